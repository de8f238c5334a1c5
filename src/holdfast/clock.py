"""The clocks of this machine, and what the times of files prove. Only this place asks the system for the time: all
other code receives a clock.
"""

from __future__ import annotations

import time

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TICK_MS = 50
"""Longer than any tick by which a kernel rounds the times of files."""
COARSE_MS = 2_050
"""The same on a file system that counts whole seconds, or every second one."""
_SECOND_NS = 1_000_000_000


class SystemClock:
    """`ports.Clock` of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def uptime_ms(self) -> int:
        """Milliseconds since the machine booted, including its sleep."""
        return time.clock_gettime_ns(_UPTIME) // 1_000_000

    def awake_ms(self) -> int:
        """Milliseconds since some moment, without the machine's sleep."""
        return time.monotonic_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()
"""The one clock of the process. It has no state, so one is enough."""


def is_fresh(changed_ns: int, looked_ms: int) -> bool:
    """Return whether a file or folder may have changed after a look and still have the time that it had then.

    Args:
        changed_ns: Its `st_ctime_ns` in this look. Any program can set the other times.
        looked_ms: When the look began.
    """
    rounded_ms = COARSE_MS if is_coarse(changed_ns) else _TICK_MS
    return looked_ms - changed_ns // 1_000_000 <= rounded_ms


def is_coarse(changed_ns: int) -> bool:
    """Return whether the time of a file comes from a file system that counts whole seconds."""
    return changed_ns % _SECOND_NS == 0
