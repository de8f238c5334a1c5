"""Watches for attempts that outlive their time: with one timer for all, so that an ordinary attempt sets none.

It only tells. What an overdue attempt means is the driver's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Overdue:
    """The attempts that have a time to be over, by their keys."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._ends: dict[str, float] = {}
        """By the clock of the event loop."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, key: str, limit_s: float) -> None:
        """Tell if the attempt is not forgotten within this time, or within one that was set before."""
        end = asyncio.get_running_loop().time() + limit_s
        end = self._ends[key] = min(end, self._ends.get(key, end))
        if self._timer is None or end < self._timer.when():
            self._arm()

    def forget(self, key: str) -> None:
        """The attempt is over."""
        self._ends.pop(key, None)

    def close(self) -> None:
        """Tell nothing any more."""
        self._ends.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        ends, loop = self._ends.values(), asyncio.get_running_loop()
        self._timer = loop.call_at(min(ends), self._look) if ends else None

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for key in [key for key, end in self._ends.items() if end <= now]:
            del self._ends[key]
            self._tell(key)
        self._arm()
