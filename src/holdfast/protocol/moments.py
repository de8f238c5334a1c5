"""Moments of the machine, and the time between them, whatever somebody does to its clocks.

What processes share and must wait for is stored as a moment and the time that was left then. So a clock that was set
forward ends no wait, and one that was set back makes none longer.
"""

from __future__ import annotations

import msgspec


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A moment by the two clocks that all processes of a machine share (`ports.Clock`)."""

    now_ms: int
    """The calendar."""
    uptime_ms: int


def elapsed_ms(since: Moment, now: Moment) -> int:
    """Return how much time has passed at the least.

    The uptime knows: it never jumps. It begins anew with the machine, and then the calendar counts. If the machine
    has run for longer since then than it had run before, the time while it was off is not seen.
    """
    by_uptime = now.uptime_ms - since.uptime_ms
    return by_uptime if by_uptime >= 0 else max(now.now_ms - since.now_ms, 0)
