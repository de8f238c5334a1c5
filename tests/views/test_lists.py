"""The lists of a home: what of an open approval is shown, and what is hidden."""

from __future__ import annotations

import json

from holdfast.protocol.rows import ApprovalRow
from holdfast.views.lines import wrapped
from holdfast.views.lists import approval_lines, clipped_call


def test_a_clipped_call_says_how_much_is_hidden() -> None:
    shown, hidden = clipped_call(json.dumps({"command": "x" * 10_000}))
    assert f"[... {hidden:,} characters are hidden ...]" in shown
    assert shown.count("x") + hidden == 10_000
    assert clipped_call('{"path":"a.txt"}') == ("path: a.txt", 0)


def test_the_lines_of_an_approval_stay_at_its_left_on_a_narrow_terminal() -> None:
    reason = "Running commands needs approval."
    row = ApprovalRow("01JXT21Q020000000000000002-1", "S", "t1.c1", "shell", "{}", 0, 604_800_000, reason)
    first, *others = (
        "".join(span.text for span in piece)
        for line in approval_lines([row], 40)
        for piece in wrapped(line, 40)
    )
    assert first == row.id
    assert any("asked" in line for line in others)
    assert all(len(line) - len(line.lstrip()) <= 14 for line in others), others
