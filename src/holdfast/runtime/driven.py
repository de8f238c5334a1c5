"""Lists sessions with those that somebody drives now, which no journal says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from holdfast.errors import StorageCorrupt
from holdfast.protocol.ports import Index, Leases
from holdfast.protocol.rows import SessionRow
from holdfast.runtime.holder import is_free


class Listed(Index, Leases, Protocol):
    """The parts of a store that a list needs."""


async def listed(store: Listed, status: str, grep: str, limit: int) -> Sequence[SessionRow]:
    """Return what `Index.sessions` returns, with `running` for sessions that somebody drives."""
    if status not in ("open", "running"):
        return [await as_driven(store, row) for row in await store.sessions(status, grep, limit)]
    rows = [await as_driven(store, row) for row in await store.sessions("open", grep, sys.maxsize)]
    return [row for row in rows if row.status == status][:limit]


async def as_driven(leases: Leases, row: SessionRow) -> SessionRow:
    """Return the row, with `running` for an open session that somebody drives."""
    if row.status != "open":
        return row
    try:
        standing = await leases.standing(row.session)
    except StorageCorrupt:  # a damaged lease hides no session
        return row
    return row if standing is None or is_free(standing.lease) else replace(row, status="running")
