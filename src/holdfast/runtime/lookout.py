"""One slow look of a process at its home, for all of its sessions: what other processes wrote, what they asked for,
and whether one that holds a lease is gone. What happens in this process the `bus` tells at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.errors import StorageError
from holdfast.protocol.ports import Index
from holdfast.protocol.rows import Holder, Mark
from holdfast.runtime.bus import Bus
from holdfast.runtime.driver import Driver
from holdfast.runtime.holder import is_dead

LOOK_S = 0.25
ANSWER_S = 0.05
"""While somebody waits for what another process does with a command."""


class Lookout:
    """Looks as long as somebody in this process wants to know."""

    def __init__(self, index: Index, bus: Bus, drivers: Mapping[str, Driver]) -> None:
        """`drivers`: who drives which session here, at any moment."""
        self._index = index
        self._bus = bus
        self._drivers = drivers
        self._watchers = 0
        self._hurried = 0
        self._minded: dict[str, Holder] = {}
        """Who holds the lease of a session that somebody here waits for."""
        self._looking: asyncio.Task[None] | None = None
        self._has_mark = asyncio.Event()

    @contextmanager
    def watching(self, *, is_hurried: bool = False) -> Iterator[None]:
        """Look until this ends. `is_hurried`: somebody waits for an answer."""
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
        """From now on nothing is missed: whoever watches reads the store after this."""
        await self._has_mark.wait()

    @contextmanager
    def minding(self, session: str, holder: Holder) -> Iterator[None]:
        """Have an eye on who holds the session's lease."""
        self._minded[session] = holder
        try:
            yield
        finally:
            self._minded.pop(session, None)

    async def aclose(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))

    async def _look(self) -> None:
        try:
            mark = await self._news(None)
            self._has_mark.set()
            while self._watchers:
                await asyncio.sleep(ANSWER_S if self._hurried else LOOK_S)
                mark = await self._news(mark)
                self._find_dead()
        finally:
            self._has_mark.clear()
            self._looking = None

    async def _news(self, since: Mark | None) -> Mark | None:
        """Tell what is new; the mark to go on from."""
        try:
            news = await self._index.news(since)
        except StorageError:  # whoever looks for themselves is told what is wrong
            self._tell(self._drivers, self._bus.sessions)
            return since
        self._tell(news.asked, (session for session in news.written if session not in self._drivers))
        if news.is_settled:
            self._bus.wake_all()
        return news.mark

    def _tell(self, asked: Iterable[str], written: Iterable[str]) -> None:
        for session in list(asked):
            if session in self._drivers:
                self._drivers[session].ring()
        for session in list(written):
            self._bus.look(session)

    def _find_dead(self) -> None:
        dead = {holder for holder in set(self._minded.values()) if is_dead(holder)}
        for session, holder in list(self._minded.items()):
            if holder in dead:
                self._bus.wake(session)
