"""Commands of a home take turns, also those of several processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.tools import turns
from holdfast.tools.turns import Table


class _Waits(Exception):
    """Somebody would have to wait."""


@pytest.mark.requirement("L2", "C8")
@pytest.mark.parametrize(
    ("one", "other", "waits"),
    [
        ("alone", "alone", True),
        ("alone", "looking", True),
        ("looking", "alone", True),
        ("looking", "looking", False),
    ],
)
def test_while_one_process_looks_no_other_one_puts_anything_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str, *, waits: bool
) -> None:
    """Two tables of one folder are what two processes have."""
    is_inside = False

    def sleep(_: float) -> None:
        raise _Waits

    monkeypatch.setattr(turns.time, "sleep", sleep)
    first, second = Table(tmp_path / "aside"), Table(tmp_path / "aside")
    with getattr(first, one)(), suppress(_Waits), getattr(second, other)():
        is_inside = True
    assert is_inside is not waits
    with getattr(second, other)():
        pass
