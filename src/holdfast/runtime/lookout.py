"""Polls the home slowly, once for all sessions of a process.

It finds records and commands of other processes, and holders of leases that are gone. The `bus` reports what
happens in this process.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from holdfast.errors import StorageError
from holdfast.protocol.ports import Index, Leases
from holdfast.protocol.rows import Holder, Mark
from holdfast.runtime.bus import Bus, listed
from holdfast.runtime.driver import Driver
from holdfast.runtime.holder import is_dead

LOOK_S = 0.5
ANSWER_S = 0.05
"""While somebody waits for another process to handle a command."""
LAPSE_S = 2.0
"""How often to look for leases that lapsed or were given back without a word."""


class Watched(Index, Leases, Protocol):
    """What is looked at."""


class Lookout:
    """Polls while somebody in this process needs it."""

    def __init__(self, store: Watched, bus: Bus, drivers: Mapping[str, Driver]) -> None:
        """`drivers`: returns which driver of this process has which session now."""
        self._store = store
        self._bus = bus
        self._drivers = drivers
        self._watchers = 0
        self._hurried = 0
        self._minded: dict[Holder | None, list[str]] = defaultdict(list)
        """The sessions whose lease somebody here waits for, by the holder of that lease."""
        self._lapses_s = 0.0
        """When to look for lapsed leases, by the loop's time."""
        self._looking: asyncio.Task[None] | None = None
        self._has_mark = asyncio.Event()

    @contextmanager
    def watching(self, *, is_hurried: bool = False) -> Iterator[None]:
        """Poll inside the block. `is_hurried`: somebody waits for the result."""
        self._watchers += 1
        self._hurried += is_hurried
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._watchers -= 1
            self._hurried -= is_hurried

    async def ready(self) -> None:
        """Nothing after this is missed: a follower reads the store next."""
        await self._has_mark.wait()

    @contextmanager
    def minding(self, session: str, holder: Holder | None) -> Iterator[None]:
        """Wake who waits for the session when its lease may be free: it lapsed, or its holder is gone. `holder`:
        None while it is not known."""
        with listed(self._minded, holder, session):
            yield

    async def aclose(self) -> None:
        """Stop polling."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        self._has_mark.set()  # who waits for it finds that all is closed

    async def _look(self) -> None:
        try:
            mark = await self._news(None)
            self._has_mark.set()
            while self._watchers:
                await asyncio.sleep(ANSWER_S if self._hurried else LOOK_S)
                mark = await self._news(mark)
                self._find_dead()
                await self._find_lapsed()
        finally:
            self._has_mark.clear()
            self._looking = None

    async def _news(self, since: Mark | None) -> Mark | None:
        """Report what is new, and return the next mark."""
        try:
            news = await self._store.news(since)
        except StorageError:  # wake all of them: each reads the store itself, and gets the error
            self._tell(self._drivers, self._bus.sessions)
            return since
        self._tell(news.asked, (session for session in news.written if session not in self._drivers))
        if news.is_handled:
            self._bus.wake_all()
        return news.mark

    def _tell(self, asked: Iterable[str], written: Iterable[str]) -> None:
        for session in list(asked):
            if session in self._drivers:
                self._drivers[session].ring()
        for session in list(written):
            self._bus.look(session)

    def _find_dead(self) -> None:
        for holder in [each for each in self._minded if each is not None and is_dead(each)]:
            self._wake(self._minded[holder])

    async def _find_lapsed(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._minded or now_s < self._lapses_s:
            return
        self._lapses_s = now_s + LAPSE_S
        minded = [session for sessions in self._minded.values() for session in sessions]
        try:
            leased = await self._store.leased()
        except StorageError:  # wake all of them: each reads the store itself, and gets the error
            leased = ()
        self._wake(session for session in minded if session not in leased)

    def _wake(self, sessions: Iterable[str]) -> None:
        for session in list(sessions):
            self._bus.wake(session)
