"""The clocks of this machine: the only place that asks the system for the time. All other code receives a clock."""

from __future__ import annotations

import time

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


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
