"""Lists sessions with those that somebody drives now, which no journal says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from holdfast.errors import StorageCorrupt
from holdfast.protocol.ports import Index, Leases
from holdfast.protocol.rows import SessionRow, Situation, Sought
from holdfast.runtime.holder import is_free


class Listed(Index, Leases, Protocol):
    """What a list needs."""


async def listed(store: Listed, sought: Sought, limit: int) -> Sequence[SessionRow]:
    """Return what `Index.sessions` returns, with `running` for sessions that somebody drives."""
    if sought.status not in ("open", "running"):
        return [await as_driven(store, row) for row in await store.sessions(sought, limit)]
    open_ones = await store.sessions(replace(sought, status="open"), sys.maxsize)
    rows = [await as_driven(store, row) for row in open_ones]
    return [row for row in rows if row.status == sought.status][:limit]


async def as_driven(leases: Leases, row: SessionRow) -> SessionRow:
    """Return the row, with `running` for an open session that somebody drives."""
    return marked(row, await situation_of(leases, row.session)) if row.status == "open" else row


def marked(row: SessionRow, situation: Situation | None) -> SessionRow:
    """Return the row, with `running` for an open session if a driver has its lease."""
    is_driven = situation is not None and not is_free(situation.lease)
    return replace(row, status="running") if is_driven and row.status == "open" else row


async def situation_of(leases: Leases, session: str) -> Situation | None:
    """Return what decides whether a session is to be driven; None if its lease is damaged. Such damage must not hide
    the session."""
    try:
        return await leases.situation(session)
    except StorageCorrupt:
        return None
