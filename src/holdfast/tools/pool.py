"""The places in which tool calls run: a bounded number, given to sessions in turn, and a lock for each resource.

Within a session the core starts only calls that do not touch the same. Here the sessions of a process meet: one with
a hundred calls must not keep the others waiting, and two must not write one file at once. Other processes are not
seen: files are still changed only if they are what the call expects.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.protocol.tools import Resource, Touched

PLACES = 256
"""How many calls run at once in a process. Most wait for a network or a program, some for hours."""
PLACES_OF_ONE = 32
"""How many of them one session has at most: long calls of one must not keep all others waiting."""


class _Call:
    """A call that waits for a place, or has one."""

    __slots__ = ("may_start", "resources", "session")

    def __init__(self, session: str, resources: Sequence[Resource], may_start: asyncio.Future[None]) -> None:
        self.session = session
        self.resources = [each for each in resources if each.path]
        """What is locked. A command may touch anything, so it locks nothing: it would stop all other sessions."""
        self.may_start = may_start


class Pool:
    """Gives places to calls.

    Args:
        places: How many calls run at once.
        places_of_one: How many of these one session has at most.
    """

    def __init__(self, places: int = PLACES, places_of_one: int = PLACES_OF_ONE) -> None:
        self._free = places
        self._places_of_one = places_of_one
        self._running: set[_Call] = set()
        self._waiting: dict[str, list[_Call]] = {}
        """The calls of each session that wait, in order. The session that is served next comes first."""

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def place(self, session: str, resources: Sequence[Resource]) -> AsyncIterator[None]:
        """Wait for a place, and hold it. Whoever is cancelled meanwhile leaves the line."""
        call = _Call(session, resources, asyncio.get_running_loop().create_future())
        if not self._running:  # alone: nothing to wait for, and nobody to pass
            self._running.add(call)
            self._free -= 1
            try:
                yield
            finally:
                self._leave(call)
            return
        self._waiting.setdefault(session, []).append(call)
        self._serve()
        try:
            await call.may_start
            yield
        finally:
            self._leave(call)

    def _leave(self, call: _Call) -> None:
        if call in self._running:
            self._running.remove(call)
            self._free += 1
        else:
            self._unlist(call)
        if self._waiting:
            self._serve()

    def _unlist(self, call: _Call) -> None:
        line = self._waiting[call.session]
        line.remove(call)
        if not line:
            del self._waiting[call.session]

    def _serve(self) -> None:
        """Give the free places away, one to each session in turn.

        Say a has three calls and b has one, and two places are free: a1 and b1 start. When one ends, a2 follows.
        """
        while self._free and (call := self._next()) is not None:
            self._unlist(call)
            if call.session in self._waiting:  # it goes to the end of the line
                self._waiting[call.session] = self._waiting.pop(call.session)
            self._running.add(call)
            self._free -= 1
            if not call.may_start.done():
                call.may_start.set_result(None)

    def _next(self) -> _Call | None:
        """Return the next call that may start: no other session has what it touches, or waits for it since longer."""
        held: dict[str, Touched] = {}
        counts = Counter(call.session for call in self._running)
        for call in self._running:
            if call.resources:
                held.setdefault(call.session, Touched()).add(call.resources)
        for session, line in self._waiting.items():
            for call in line if counts[session] < self._places_of_one else ():
                others = [touched for other, touched in held.items() if other != session]
                if not any(touched.is_in_conflict(call.resources) for touched in others):
                    return call
                held.setdefault(call.session, Touched()).add(call.resources)
        return None
