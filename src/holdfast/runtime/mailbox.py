"""Delivers items to one reader, in order, from anywhere in its event loop.

An `asyncio.Queue` serves many readers and has a bound. For one reader without a bound, this does the same with a
tenth of the calls, and a driver uses it at every step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """The items that were not taken yet."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: asyncio.Future[None] | None = None
        """Wait for the next item."""

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item, and wake the reader."""
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Wake the reader, to look at something else."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def ready(self) -> None:
        """Wait until there is an item, or somebody wakes the reader."""
        if not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def take(self) -> T:
        """Return the oldest item."""
        return self._items.popleft()
