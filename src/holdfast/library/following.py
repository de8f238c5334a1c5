"""Follows the work of an agent, and reads what is recorded of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import datetime

import msgspec

from holdfast.app import App
from holdfast.core.state import State
from holdfast.errors import NoSuchSession, UsageError
from holdfast.library.runtime import Runtime
from holdfast.protocol.events import Event as Fact
from holdfast.protocol.events import Record
from holdfast.protocol.limits import usd
from holdfast.protocol.rows import Sought
from holdfast.runtime.bus import Item
from holdfast.runtime.driven import listed
from holdfast.runtime.fold import readable
from holdfast.views.lines import utc

_PAGE = 500
"""How many records are read at once."""


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a session and is recorded."""

    session: str
    seq: int
    at: datetime
    """In UTC."""
    type: str
    """The name of the event: `Responded`, `ToolCallStarted`, `RunStopped` ..."""
    body: Fact


async def found(app: App, name: str) -> str:
    """Return the id of the session with a name.

    Raises:
        NoSuchSession: no session has this name.
        UsageError: there are several.
    """
    found = await app.store.find(name)
    if not found:
        raise NoSuchSession(f"There is no session {name!r} here.")
    if len(found) > 1:
        raise UsageError(f"{name!r} matches {len(found)} sessions.", hint="Use a longer prefix.")
    return found[0]


class SessionInfo(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    key: str
    """CHANNEL:CHAT; empty if it has none."""
    status: str
    """That of its last run; `new` without one, `open` or `running` while it has not ended."""
    reason: str
    title: str
    """The beginning of its first task."""
    model: str
    workspace: str
    turns: int
    cost_usd: str | None
    created_at: datetime
    updated_at: datetime


class Session:
    """One session of an agent, to read."""

    def __init__(self, name: str, opening: Callable[[], Awaitable[App]]) -> None:
        self.name = name
        """Its id, the beginning of one, or CHANNEL:CHAT, as it was given."""
        self._opening = opening

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield what is recorded by now, in order, after this number.

        Raises:
            NoSuchSession: there is no such session.
        """
        app = await self._opening()
        session = await found(app, self.name)
        last = await app.store.last_seq(session)
        while after < last:
            page = await app.store.read(session, after, min(after + _PAGE, last))
            for stored in page:
                yield event_of(readable(stored))
            after += _PAGE


async def listed_sessions(app: App, sought: Sought, limit: int) -> list[SessionInfo]:
    """Return the sessions, the one that changed last first."""
    return [
        SessionInfo(
            id=row.session,
            key=row.key,
            status=row.status,
            reason=row.reason,
            title=row.title,
            model=row.model,
            workspace=row.workspace,
            turns=row.turns,
            cost_usd=None if row.cost_microusd is None else usd(row.cost_microusd),
            created_at=utc(row.created_ms),
            updated_at=utc(row.updated_ms),
        )
        for row in await listed(app.store, sought, limit)
    ]


async def watch(
    app: App, runtime: Runtime, session: str, cursor: int, work: Callable[[], Awaitable[State]]
) -> AsyncGenerator[Item | State, None]:
    """Do the work on a session, and yield what happens until it rests, and at the end its state. If this is closed
    early, the work is cancelled.
    """

    async def drive() -> State:
        with runtime.working(session):
            return await work()

    async def following() -> Item:
        return await anext(items)

    items = app.controller.follow(session, cursor)
    # The follower begins first: a driver may get far before it waits for anything.
    coming, driving = asyncio.create_task(following()), asyncio.create_task(drive())
    try:
        while not driving.done() or cursor < driving.result().seq:
            waited = {coming} if driving.done() else {coming, driving}
            with runtime.working():  # but not while the reader handles an item, or is gone
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                item = coming.result()
                cursor = item.seq if isinstance(item, Record) else cursor
                yield item
                coming = asyncio.create_task(following())
        yield driving.result()
    finally:
        driving.cancel()
        coming.cancel()
        await asyncio.gather(driving, coming, return_exceptions=True)
        await items.aclose()


def event_of(record: Record) -> Event:
    """Return a record as the library shows it."""
    return Event(record.session, record.seq, utc(record.at_ms), type(record.event).__name__, record.event)
