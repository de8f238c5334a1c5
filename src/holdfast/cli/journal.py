"""Finding a session by any of its names and reading its journal, for commands that only look.

Looking never makes a home, needs no configuration and no right to write, and shows what it can of a journal
that a newer version wrote, or of which something was erased. What is shown of a journal is the views' business.
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
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import was_used
from holdfast.views.journal import Journal, readable_here

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_RUN_DIGITS = 6
_LISTED_MAX = 8
_EVERY = 1_000_000


@asynccontextmanager
async def reading(home: Home) -> AsyncIterator[Store]:
    """The home's store for looking only, also where it cannot be written; an empty one where there is no home yet.

    Raises:
        StorageError: the home cannot be read.
    """
    async with aclosing(open_store_to_read(home) if _has_been_used(home) else open_store(None)) as store:
        yield store


@asynccontextmanager
async def about_to_write(home: Home) -> AsyncIterator[Store]:
    """As `reading`, for what is to be written to next: a home that cannot be is refused before anything is done.

    Raises:
        StorageError: the home cannot be opened.
    """
    async with aclosing(open_store(home if _has_been_used(home) else None)) as store:
        yield store


def _has_been_used(home: Home) -> bool:
    with storage_errors(home.folder):
        return was_used(home.folder)


async def find_session(index: Index, name: str) -> str:
    """The id of the one session that the name means: an id, its beginning, channel:chat, last, a trace id.

    Raises:
        NoSuchSession: none is meant.
        UsageError: several are.
    """
    found = await (_by_trace(index, name) if _TRACE_ID.fullmatch(name) else index.find(name))
    if not found:
        hint = "`holdfast sessions` lists what there is."
        if name == "last":
            raise NoSuchSession(
                "There is no session in this home yet.", hint='Begin with `holdfast run "TASK"`.'
            )
        raise NoSuchSession(f"There is no session {name!r} in this home.", hint=hint)
    if len(found) > 1:
        listed = ", ".join(found[:_LISTED_MAX]) + (" ..." if len(found) > _LISTED_MAX else "")
        raise UsageError(
            f"{name!r} could be any of {len(found)} sessions: {listed}", hint="Write more of it."
        )
    return found[0]


async def _by_trace(index: Index, trace: str) -> list[str]:
    """The sessions whose runs have that trace id, whatever the run."""
    rows = await index.sessions(limit=_EVERY)
    return [row.session for row in rows if trace_id(row.session, 0)[:-_RUN_DIGITS] == trace[:-_RUN_DIGITS]]


async def read_journal(store: Store, name: str) -> Journal:
    """The journal of the one session that the name means.

    Raises:
        NoSuchSession: no session is meant.
        UsageError: several are.
        StorageCorrupt: a record was changed, cut out or reordered.
    """
    session = await find_session(store, name)
    row = await store.session(session)
    stored = await store.read(session)
    records = [record for record in map(readable_here, stored) if record is not None]
    return Journal(row or SessionRow(session), stored, records)
