"""What comes in for one reader, in order, from anywhere in its event loop.

An `asyncio.Queue` serves many readers and has a bound: for one reader without a bound this does the same with a
tenth of the calls, and a driver asks it at every step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items until they are taken."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: asyncio.Future[None] | None = None
        """Waits for the next item."""

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Leave an item, and wake the reader."""
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> T:
        """The oldest item, once there is one."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._items.popleft()
