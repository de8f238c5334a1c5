"""The places in which tool calls run: a bounded number, given to sessions in turn, and a lock for each resource.

Within a session the core starts only calls that do not touch the same. Here the sessions of a process meet: one with
a hundred calls must not keep the others waiting, and two must not write one file at once. Other processes are not
seen: files are still changed only if they are what the call expects.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from holdfast.protocol.tools import Access, Resource, folded, folders_of

PLACES = 256
"""How many calls run at once in a process. Most wait for a network or a program, some for hours."""
PLACES_OF_ONE = 32
"""How many of them one session has at most: long calls of one must not keep all others waiting."""
_CLASHING: dict[Access, tuple[Access, ...]] = {"read": ("write",), "write": ("write", "read")}


class _Call:
    """A call that waits for a place, or has one."""

    __slots__ = ("locks", "may_start", "pool", "resources", "session")

    def __init__(self, pool: Pool, session: str, resources: Sequence[Resource]) -> None:
        self.pool = pool
        self.session = session
        self.resources = resources
        self.may_start: asyncio.Future[None] | None = None
        """None while it need not wait."""
        self.locks: list[tuple[Access, str, list[str]]] | None = None
        """What it locks: each path, with the folders above it. None while nobody has asked."""

    async def __aenter__(self) -> None:
        self.pool.join(self)
        if self.may_start is not None:
            try:
                await self.may_start
            except BaseException:
                self.pool.leave(self)
                raise

    async def __aexit__(self, *_: object) -> None:
        self.pool.leave(self)

    def locked(self) -> list[tuple[Access, str, list[str]]]:
        """Return its locks. A command may touch anything, so it locks nothing: it would stop all other sessions."""
        if self.locks is None:
            paths = [(each.access, folded(each.path)) for each in self.resources if each.path]
            self.locks = [(access, path, folders_of(path)) for access, path in paths]
        return self.locks


class _Locks:
    """What calls lock, by session. Comparing another call with all of them takes no longer if they are many."""

    def __init__(self) -> None:
        self._paths: dict[tuple[Access, str], Counter[str]] = {}
        """How many calls of each session lock a path."""
        self._above: dict[tuple[Access, str], Counter[str]] = {}
        """The same for the folders above them, and the paths themselves."""

    def add(self, call: _Call) -> None:
        for access, path, above in call.locked():
            self._paths.setdefault((access, path), Counter())[call.session] += 1
            for each in above:
                self._above.setdefault((access, each), Counter())[call.session] += 1

    def remove(self, call: _Call) -> None:
        for access, path, above in call.locked():
            _drop(self._paths, (access, path), call.session)
            for each in above:
                _drop(self._above, (access, each), call.session)

    def lock_for(self, call: _Call) -> bool:
        """Lock what a waiting call touches. Return whether that was needed: what two sessions lock, all others find
        locked."""
        if all(len(self._paths.get((access, path), ())) > 1 for access, path, _ in call.locked()):
            return False
        self.add(call)
        return True

    def keep_waiting(self, call: _Call) -> bool:
        """Return whether another session locks what the call touches."""
        for access, path, above in call.locked():
            for other in _CLASHING[access]:
                if _is_of_others(self._above.get((other, path)), call.session):
                    return True
                if any(_is_of_others(self._paths.get((other, each)), call.session) for each in above):
                    return True
        return False


def _drop(counts: dict[tuple[Access, str], Counter[str]], key: tuple[Access, str], session: str) -> None:
    of_key = counts[key]
    of_key[session] -= 1
    if not of_key[session]:
        del of_key[session]
        if not of_key:
            del counts[key]


def _is_of_others(sessions: Counter[str] | None, session: str) -> bool:
    return sessions is not None and len(sessions) > (session in sessions)


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
        self._alone: _Call | None = None
        """The running call whose locks nobody had to know yet."""
        self._locks = _Locks()
        """Those of all other running calls."""
        self._counts: Counter[str] = Counter()
        """How many calls of each session run."""
        self._waiting: dict[str, list[_Call]] = {}
        """The calls of each session that wait, in order. The session that is served next comes first."""

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(map(len, self._waiting.values()))

    def place(self, session: str, resources: Sequence[Resource]) -> AbstractAsyncContextManager[None]:
        """Wait for a place, and hold it. A task that is cancelled meanwhile leaves the line."""
        return _Call(self, session, resources)

    def join(self, call: _Call) -> None:
        """Take a place, or a place in the line."""
        if not self._running:  # alone: nothing to wait for, and nobody to pass
            self._running.add(call)
            self._alone = call
            self._free -= 1
            return
        call.may_start = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(call.session, []).append(call)
        self._serve()

    def leave(self, call: _Call) -> None:
        """Give the place away."""
        if call in self._running:
            self._running.remove(call)
            self._free += 1
            if call is self._alone:
                self._alone = None
            else:
                self._locks.remove(call)
                self._counts[call.session] -= 1
                if not self._counts[call.session]:
                    del self._counts[call.session]
        else:
            self._unlist(call)
        if self._waiting:
            self._serve()

    def _unlist(self, call: _Call) -> None:
        line = self._waiting[call.session]
        line.remove(call)
        if not line:
            del self._waiting[call.session]

    def _begin(self, call: _Call) -> None:
        """Note that a call runs."""
        self._locks.add(call)
        self._counts[call.session] += 1

    def _serve(self) -> None:
        """Give the free places away, one to each session in turn.

        Say a has three calls and b has one, and two places are free: a1 and b1 start. When one ends, a2 follows.
        """
        if self._alone is not None:
            self._begin(self._alone)
            self._alone = None
        # A call that must wait keeps later ones of other sessions from passing it, as one that runs does.
        held: dict[_Call, bool] = {}
        sessions = deque(self._waiting)
        while self._free and sessions:
            session = sessions.popleft()
            call = self._first(session, held)
            if call is None:
                continue
            self._unlist(call)
            self._running.add(call)
            self._free -= 1
            self._begin(call)
            if session in self._waiting:  # it goes to the end of the line
                self._waiting[session] = self._waiting.pop(session)
                sessions.append(session)
            if call.may_start is not None and not call.may_start.done():
                call.may_start.set_result(None)
        for call, is_locked in held.items():
            if is_locked:
                self._locks.remove(call)

    def _first(self, session: str, held: dict[_Call, bool]) -> _Call | None:
        """Return the first call of a session that may start: no other session has what it touches, or waits for it
        since longer."""
        if self._counts.get(session, 0) >= self._places_of_one:
            return None
        for call in self._waiting[session]:
            if call in held:
                continue
            if not self._locks.keep_waiting(call):
                return call
            held[call] = self._locks.lock_for(call)
        return None
