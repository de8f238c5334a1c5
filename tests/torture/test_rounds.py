"""The long suite's rounds of torture: nothing is lost, doubled or left unreported.

The same from the command line, with a table at the end: `python -m tests.torture`.
"""

from __future__ import annotations

import pytest

from tests.torture.__main__ import ALL, played, table, told
from tests.torture.rounds import play

SLICE = 20
"""Rounds of one test: they take less than ten minutes, also on a machine with other work."""

SLICES = [(kind, first) for kind, count in ALL.items() for first in range(0, count, SLICE)]


@pytest.mark.long
@pytest.mark.requirement("H1", "C11", "H5")
@pytest.mark.parametrize(("kind", "first"), SLICES)
def test_nothing_is_lost_doubled_or_unreported(kind: str, first: int) -> None:
    results = list(played(kind, range(first, first + SLICE)))
    bad = [result for result in results if result.faults]
    assert not bad, "\n".join([table(results), *map(told, bad)])
    assert sum(result.blows for result in results) >= SLICE // 2, "hardly anything was hit"


@pytest.mark.long
@pytest.mark.requirement("H5")
def test_a_question_that_expires_by_a_jump_of_the_clock_beside_a_side_call_keeps_no_command() -> None:
    """The timer of its deadline was set before the jump, and the answer to the side call comes after it."""
    result = play("long-clock", 201)
    assert not result.faults, told(result)
