"""The wall clock: the only place of the engine that asks the system for the time."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000
