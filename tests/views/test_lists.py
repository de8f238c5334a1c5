"""The lists of a home: what of an open approval is shown, and what is hidden."""

from __future__ import annotations

import json

from holdfast.views.lists import clipped_call


def test_a_clipped_call_says_how_much_is_hidden() -> None:
    shown, hidden = clipped_call(json.dumps({"command": "x" * 10_000}))
    assert f"[... {hidden:,} characters are hidden ...]" in shown
    assert shown.count("x") + hidden == 10_000
    assert clipped_call('{"path":"a.txt"}') == ("path: a.txt", 0)
