"""Time limits of what tasks wait for, watched over by one timer: an ordinary wait sets none and cancels none.

An `asyncio.timeout` does the same with a timer of its own, which takes five times as long.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType


class Deadlines:
    """The limits of one owner, such as a pool of connections. All of them are in one event loop at a time."""

    def __init__(self) -> None:
        self._open: set[Deadline] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_s = math.inf
        """When the timer fires: the first limit may have passed then. Limits that moved away set it again."""

    def at(self, at_s: float) -> Deadline:
        """Return a limit to enter, by the loop's clock."""
        return Deadline(self, at_s)

    def open(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        """Watch over a limit."""
        if loop is not self._loop:  # the last one has ended, and its timer with it
            self._loop, self._timer, self._fires_s, self._open = loop, None, math.inf, set()
        self._open.add(deadline)
        if deadline.at_s < self._fires_s:
            self.sooner(deadline.at_s)

    def close(self, deadline: Deadline) -> None:
        """Watch over it no longer."""
        self._open.discard(deadline)

    def sooner(self, at_s: float) -> None:
        """Fire at this time at the latest."""
        if self._loop is not None and at_s < self._fires_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._fires_s = self._loop.call_at(at_s, self._look, self._loop), at_s

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._fires_s = None, math.inf
        now_s = loop.time()
        for deadline in [each for each in self._open if each.at_s <= now_s]:
            self._open.discard(deadline)
            deadline.pass_()
        if self._open:
            self.sooner(min([each.at_s for each in self._open]))


class Deadline:
    """A limit for the task that enters it. When it has passed, what the task awaits is cancelled, and `TimeoutError`
    is raised in its place."""

    __slots__ = ("_all", "_before", "_has_passed", "_task", "at_s")

    def __init__(self, all_: Deadlines, at_s: float) -> None:
        self._all = all_
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        """How often the task was cancelled before."""
        self._has_passed = False
        self.at_s = at_s

    def __enter__(self) -> Deadline:
        loop = asyncio.get_running_loop()
        task = self._task = asyncio.current_task(loop)
        assert task is not None
        self._before = task.cancelling()
        self._all.open(self, loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._all.close(self)
        if self._has_passed and self._task is not None:
            is_ours = self._task.uncancel() <= self._before
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    @property
    def has_passed(self) -> bool:
        """Return whether the time came before the end of what the task waited for."""
        return self._has_passed

    def move(self, at_s: float) -> None:
        """Set another time. If the limit has passed, this comes too late."""
        if not self._has_passed:
            is_sooner, self.at_s = at_s < self.at_s, at_s
            if is_sooner and self._task is not None:
                self._all.sooner(at_s)

    def pass_(self) -> None:
        """Cancel what the task awaits."""
        self._has_passed = True
        if self._task is not None:
            self._task.cancel()
