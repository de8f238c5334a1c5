"""What happens, told in this process: records after their commit, deltas while they arrive, and that there is
something to look at in the store.

Lossy by design: a subscriber that is slow or late reads the journal from its cursor. Nothing is stored here.
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
    """What one subscriber has yet to take."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[Item | None] = asyncio.Queue(CAPACITY)
        self._is_behind = False
        """The journal may hold what was not told here."""

    @property
    def is_empty(self) -> bool:
        """Whether all that was told is taken."""
        return self._items.empty()

    def tell(self, items: Iterable[Item]) -> None:
        """Leave the items; what there is no room for is left to the journal."""
        for item in items:
            if self._items.full():
                self._is_behind = True
            else:
                self._items.put_nowait(item)

    def look(self) -> None:
        """Tell that the journal may hold more."""
        self._is_behind = True
        if self._items.empty():
            self._items.put_nowait(None)

    async def next(self) -> Item | None:
        """The next item; None: it is time to look into the journal."""
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
        """Whether anybody listens: without, nothing is made for them."""
        return session in self._subscriptions

    def publish(self, session: str, items: Sequence[Item]) -> None:
        """Tell the subscribers what happens."""
        for subscription in self._subscriptions.get(session, ()):
            subscription.tell(items)

    def committed(self, session: str, records: Sequence[Record]) -> None:
        """Tell the subscribers, and wake whoever waits for a commit, also one without records."""
        self.publish(session, records)
        self.wake(session)

    def look(self, session: str) -> None:
        """Somebody else may have written: whoever follows the session, or waits for it, is to look into the store."""
        for subscription in self._subscriptions.get(session, ()):
            subscription.look()
        self.wake(session)

    def wake(self, session: str) -> None:
        """Wake whoever waits for a change of the session."""
        for event in self._waiting.get(session, ()):
            event.set()

    def wake_all(self) -> None:
        """Wake everybody who waits."""
        for session in self._waiting:
            self.wake(session)

    @property
    def sessions(self) -> set[str]:
        """Those that somebody follows or waits for."""
        return self._subscriptions.keys() | self._waiting.keys()

    @contextmanager
    def subscribed(self, session: str) -> Iterator[Subscription]:
        """A subscription to what happens from now on."""
        with listed(self._subscriptions, session, Subscription()) as subscription:
            yield subscription

    @contextmanager
    def waiting(self, session: str) -> Iterator[asyncio.Event]:
        """An event that every change of the session sets; whoever waits clears it before they look."""
        with listed(self._waiting, session, asyncio.Event()) as event:
            yield event


@contextmanager
def listed(lists: dict[K, list[T]], key: K, entry: T) -> Iterator[T]:
    """The entry stands in the list of its key for a while; a list without entries is none."""
    lists[key].append(entry)
    try:
        yield entry
    finally:
        lists[key].remove(entry)
        if not lists[key]:
            del lists[key]
