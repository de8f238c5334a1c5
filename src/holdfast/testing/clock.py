"""A clock that jumps: instead of waiting for its next timer, the event loop moves time to it.

An hour's sleep takes milliseconds, and timers keep their order. Work in threads takes real time, and so does
everything that a test names with `pause_while`: nothing times out because the clock was faster than a disk.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AHEAD_S = 1_000_000.0
"""How far the clock is ahead of the real one, so that a real process with a deadline is never too late."""

_REAL_STEP_S = 0.02
"""How often a paused clock checks whether it may move."""


def never_over() -> int:
    """A `ports.Check` of a lease that does not end."""
    return sys.maxsize


class JumpingClock:
    """A `protocol.ports.Clock` that moves only when a test or a `JumpingLoop` moves it."""

    def __init__(self, start_ms: int = 1_750_000_000_000) -> None:
        self._start_ms = start_ms
        self._ahead_s = time.monotonic() + _AHEAD_S
        self._slept_s = 0.0
        self._pauses: list[Callable[[], bool]] = []
        self.elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round((self.elapsed_s + self._slept_s) * 1000)

    def uptime_ms(self) -> int:
        return round((self._ahead_s + self.elapsed_s + self._slept_s) * 1000)

    def awake_ms(self) -> int:
        return round(self.elapsed_s * 1000)

    def advance(self, seconds: float) -> None:
        """Let this much time pass."""
        self.elapsed_s += seconds

    def sleep(self, seconds: float) -> None:
        """Suspend the machine for this long: no timer runs meanwhile."""
        self._slept_s += seconds

    def step(self, seconds: float) -> None:
        """Set the clock: no time passes."""
        self._start_ms += round(seconds * 1000)

    def pause_while(self, is_busy: Callable[[], bool]) -> None:
        """Let no time pass while `is_busy()`: for the test's own sockets, processes and threads."""
        self._pauses.append(is_busy)

    def is_paused(self) -> bool:
        """Return whether something real is in progress."""
        return any(is_busy() for is_busy in self._pauses)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop on a `JumpingClock`."""

    def __init__(self, clock: JumpingClock) -> None:
        self._clock = clock
        self._in_threads = 0
        super().__init__(_JumpingSelector(clock))
        clock.pause_while(lambda: self._in_threads > 0)

    def time(self) -> float:
        return self._clock.elapsed_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, clock: JumpingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return super().select(None)
        if self._clock.is_paused():
            return super().select(_REAL_STEP_S)
        self._clock.advance(timeout)
        return []


def run_jumping(main: Callable[[JumpingClock], Coroutine[Any, Any, T]]) -> T:
    """Run `main(clock)` to its end on a loop whose time jumps, and return its result.

    A store with a writer thread needs `clock.pause_while(lambda: store.in_flight > 0)` (`faults.FaultyStore` counts).
    """
    clock = JumpingClock()
    with asyncio.Runner(loop_factory=lambda: JumpingLoop(clock)) as runner:
        return runner.run(main(clock))
