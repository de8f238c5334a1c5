"""Publishes events in this process: records after their commit, deltas while they arrive, and wake-ups.

Subscribers may miss items: one that is slow or late reads the journal from its cursor. Nothing is stored here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from holdfast.protocol.events import Record
from holdfast.protocol.ports import Delta

CAPACITY = 1_000

Item = Record | Delta
K = TypeVar("K")
T = TypeVar("T")


class Subscription:
    """The pending items of one subscriber."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[Item | None] = asyncio.Queue(CAPACITY)
        self._is_behind = False
        """The journal may have items that were not published here."""
        self.first_seq = 0
        """The first record that was published here; 0 before there was one."""

    @property
    def is_empty(self) -> bool:
        """Whether the subscriber took everything."""
        return self._items.empty()

    def tell(self, items: Iterable[Item]) -> None:
        """Add items. If there is no room, the subscriber reads them from the journal."""
        for item in items:
            if self._items.full():
                self._is_behind = True
            else:
                self._items.put_nowait(item)
                if not self.first_seq and isinstance(item, Record):
                    self.first_seq = item.seq

    def look(self) -> None:
        """Say that the journal may have more."""
        self._is_behind = True
        if self._items.empty():
            self._items.put_nowait(None)

    async def next(self) -> Item | None:
        """Return the next item; None means: read the journal."""
        if self._items.empty() and self._is_behind:
            self._is_behind = False
            return None
        item = await self._items.get()
        if item is None:
            self._is_behind = False
        return item


class Bus:
    """The subscriptions of a process, by session."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[Subscription]] = defaultdict(list)
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)

    def is_heard(self, session: str) -> bool:
        """Return whether anybody listens. If nobody does, no deltas are made."""
        return session in self._subscriptions

    def publish(self, session: str, items: Sequence[Item]) -> None:
        """Publish items to the subscribers."""
        for subscription in self._subscriptions.get(session, ()):
            subscription.tell(items)

    def committed(self, session: str, records: Sequence[Record]) -> None:
        """Publish to the subscribers, and wake everything that waits for a commit, even one without records."""
        if session in self._subscriptions:
            self.publish(session, records)
        if session in self._waiting:
            self.wake(session)

    def look(self, session: str) -> None:
        """Wake followers and waiters to read the store: another process may have written."""
        for subscription in self._subscriptions.get(session, ()):
            subscription.look()
        self.wake(session)

    def wake(self, session: str) -> None:
        """Wake everything that waits for a change of the session."""
        for event in self._waiting.get(session, ()):
            event.set()

    def wake_all(self) -> None:
        """Wake everything that waits."""
        for session in self._waiting:
            self.wake(session)

    @property
    def sessions(self) -> set[str]:
        """The sessions that somebody follows or waits for."""
        return self._subscriptions.keys() | self._waiting.keys()

    @contextmanager
    def subscribed(self, session: str) -> Iterator[Subscription]:
        """Subscribe to everything from now on."""
        with listed(self._subscriptions, session, Subscription()) as subscription:
            yield subscription

    @contextmanager
    def waiting(self, session: str) -> Iterator[asyncio.Event]:
        """Return an event that every change of the session sets. Clear it before you check."""
        with listed(self._waiting, session, asyncio.Event()) as event:
            yield event


@contextmanager
def listed(lists: dict[K, list[T]], key: K, entry: T) -> Iterator[T]:
    """Keep the entry in the list of its key for a while. An empty list is removed."""
    lists[key].append(entry)
    try:
        yield entry
    finally:
        lists[key].remove(entry)
        if not lists[key]:
            del lists[key]
