"""Finds a session by any of its names and reads its journal, for commands that only look.

Looking never creates a home, and needs neither configuration nor write permission. It shows what it can of a journal
with erased records or records of a newer version.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from holdfast.app import open_store, open_store_to_read
from holdfast.config.paths import Home
from holdfast.errors import NoSuchSession, UsageError
from holdfast.protocol.ids import trace_id
from holdfast.protocol.ports import Index, Store
from holdfast.protocol.rows import SessionRow
from holdfast.runtime.acceptance import before_sending
from holdfast.runtime.driven import marked, situation_of
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import was_used
from holdfast.views.lines import local, one_line
from holdfast.views.stored import StoredSession, readable_here

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_RUN_DIGITS = 6
_LISTED_MAX = 8
_TITLE_CELLS = 40
_EVERY = 1_000_000


@asynccontextmanager
async def reading(home: Home) -> AsyncIterator[Store]:
    """Open the store read-only. Without a home, the store is empty.

    Raises:
        StorageError: The home cannot be read.
    """
    async with aclosing(open_store_to_read(home) if _has_been_used(home) else open_store(None)) as store:
        yield store


@asynccontextmanager
async def about_to_write(home: Home) -> AsyncIterator[Store]:
    """Like `reading`, but refuse a home that is not writable, because the caller will write to it next.

    Raises:
        StorageError: The home cannot be opened or read. Nothing was accepted.
    """
    with before_sending():
        async with aclosing(open_store(home if _has_been_used(home) else None)) as store:
            yield store


def _has_been_used(home: Home) -> bool:
    with storage_errors(home.folder):
        return was_used(home.folder)


async def find_session(index: Index, name: str) -> str:
    """Return the id of a session. The name is an id, a prefix of one, channel:chat, `last` or a trace id.

    Raises:
        NoSuchSession: No session has that name.
        UsageError: Several sessions match.
    """
    found = await (_by_trace(index, name) if _TRACE_ID.fullmatch(name) else index.find(name))
    if not found:
        hint = "`holdfast sessions` lists all sessions."
        if name == "last":
            raise NoSuchSession(
                "There is no session in this home yet.", hint='Start one with `holdfast run "TASK"`.'
            )
        raise NoSuchSession(f"There is no session {name!r} in this home.", hint=hint)
    if len(found) > 1:
        candidates = [await _candidate(index, session) for session in found[:_LISTED_MAX]]
        if len(found) > _LISTED_MAX:
            candidates.append(f"  ... and {len(found) - _LISTED_MAX} more")
        raise UsageError(
            "\n".join([f"{name!r} matches {len(found)} sessions:", *candidates]), hint="Use a longer prefix."
        )
    return found[0]


async def _candidate(index: Index, session: str) -> str:
    """Return a line about a session, from which a person can tell it from others."""
    row = await index.session(session) or SessionRow(session)
    about = (local(row.updated_ms, "%m-%d %H:%M"), row.status, row.key, one_line(row.title, _TITLE_CELLS))
    return "  ".join(["  " + session, *filter(None, about)])


async def _by_trace(index: Index, trace: str) -> list[str]:
    """Return the sessions with a run of that trace id."""
    rows = await index.sessions(limit=_EVERY)
    return [row.session for row in rows if trace_id(row.session, 0)[:-_RUN_DIGITS] == trace[:-_RUN_DIGITS]]


async def read_session(store: Store, name: str) -> StoredSession:
    """Read a session.

    Raises:
        NoSuchSession: No session has that name.
        UsageError: Several sessions match.
        StorageCorrupt: A record was changed, removed or reordered.
    """
    session = await find_session(store, name)
    row, situation = await store.session(session) or SessionRow(session), await situation_of(store, session)
    stored = await store.read(session)
    records = [record for record in map(readable_here, stored) if record is not None]
    waiting = situation.waiting if situation is not None else 0
    return StoredSession(marked(row, situation), stored, records, waiting)
