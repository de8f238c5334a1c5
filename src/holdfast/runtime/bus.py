"""What happens, told in this process: records after their commit, deltas while they arrive.

Lossy by design: a subscriber that is slow or late reads the journal from its cursor. Nothing is stored here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from holdfast.protocol.events import Record
from holdfast.protocol.ports import Delta

CAPACITY = 1_000

Item = Record | Delta


class Bus:
    """The subscriptions of a process, by session."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Queue[Item]]] = defaultdict(list)

    def is_heard(self, session: str) -> bool:
        """Whether anybody listens: without, nothing is made for them."""
        return session in self._queues

    def publish(self, session: str, items: tuple[Item, ...] | list[Item] | list[Record]) -> None:
        """Tell the subscribers; what a full queue cannot take is dropped."""
        for queue in self._queues.get(session, ()):
            for item in items:
                if not queue.full():
                    queue.put_nowait(item)

    def subscribe(self, session: str) -> asyncio.Queue[Item]:
        """A queue of what happens from now on."""
        queue: asyncio.Queue[Item] = asyncio.Queue(CAPACITY)
        self._queues[session].append(queue)
        return queue

    def unsubscribe(self, session: str, queue: asyncio.Queue[Item]) -> None:
        """The end of a subscription."""
        self._queues[session].remove(queue)
        if not self._queues[session]:
            del self._queues[session]
