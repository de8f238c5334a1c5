"""Runs the code of others apart: each tool call and each slow prepare step is a task of its own.

So the code can only harm its own task: its context, a cancellation that it leaves behind, an exception that comes too
late. If it ignores its cancellation or its time limit, the driver leaves it: it goes on alone, and its result does
not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from decimal import getcontext, setcontext
from typing import Any, TypeVar

HEED_S = 5.0
"""How long a cancelled task may take to end."""

T = TypeVar("T")


class Left(TimeoutError):
    """The caller stopped waiting for the work. It may still be running."""


class Apart:
    """What runs apart for one session. One timer watches over the time of all, so that an ordinary task sets none."""

    def __init__(self) -> None:
        self._ends: dict[asyncio.Future[None], float] = {}
        """When a task is left, by the loop's clock, for each that somebody waits for."""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Return or raise what the work does.

        Raises:
            Left: it ignored its cancellation, or took longer than the limit.
        """
        loop = asyncio.get_running_loop()
        is_over: asyncio.Future[None] = loop.create_future()

        async def guarded() -> T:
            setcontext(getcontext().copy())  # a copied context shares this one, and it is changed in place
            try:
                return await work
            finally:
                if not is_over.done():
                    is_over.set_result(None)

        task = asyncio.create_task(guarded())
        end = self._ends[is_over] = loop.time() + limit_s
        if self._timer is None or end < self._timer.when():
            self._arm()
        try:
            await is_over  # the task itself would take its own cancellation from here
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=HEED_S)
        finally:
            del self._ends[is_over]
        if task.done():
            return task.result()
        if not task.cancelling():
            task.cancel()
        task.add_done_callback(_ignore)
        raise Left

    def close(self) -> None:
        """Stop the timer. The driver no longer waits for any task."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        ends = [end for is_over, end in self._ends.items() if not is_over.done()]
        self._timer = asyncio.get_running_loop().call_at(min(ends), self._look) if ends else None

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for is_over, end in self._ends.items():
            if end <= now_s and not is_over.done():
                is_over.set_result(None)
        self._arm()


def _ignore(task: asyncio.Task[Any]) -> None:
    """Take what a task raises that was left, so that nobody complains about it."""
    if not task.cancelled():
        task.exception()
