"""What a command that begins beside others takes over from them."""

from __future__ import annotations

import pytest

from holdfast.tools.baseline import older
from holdfast.tools.kept import Kept
from holdfast.tools.trace import Trace

pytestmark = pytest.mark.requirement("L2")


def trace(led: tuple[str, ...] = (), read_ns: int = 0) -> Trace:
    return Trace(("/ws",), 0, {}, (), led=led, kept=Kept({}, {}, (), ("/ws",), read_ns))


def test_where_something_protected_led_before_the_other_command_counts_too() -> None:
    others = [trace(("/ws/theirs", "/elsewhere/theirs"))]
    assert older(trace(("/ws/mine",)), others, lambda _: ()).led == ("/ws/mine", "/ws/theirs")


@pytest.mark.parametrize(("mine", "theirs"), [(3, 5), (5, 3)])
def test_what_both_keep_counts_as_read_when_the_first_of_them_read_it(mine: int, theirs: int) -> None:
    """A change that is younger is not taken for what was read."""
    kept = older(trace(read_ns=mine), [trace(read_ns=theirs)], lambda _: ()).kept
    assert kept is not None
    assert kept.read_ns == 3
