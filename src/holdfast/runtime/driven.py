"""Sessions as people list them: which of the open ones somebody drives at this moment. No journal tells that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from holdfast.protocol.ports import Index, Leases
from holdfast.protocol.rows import SessionRow
from holdfast.runtime.holder import is_free


class Listed(Index, Leases, Protocol):
    """What a list is read from."""


async def listed(store: Listed, status: str, grep: str, limit: int) -> Sequence[SessionRow]:
    """As `Index.sessions`, with those as `running` that somebody drives."""
    if status not in ("open", "running"):
        return [await as_driven(store, row) for row in await store.sessions(status, grep, limit)]
    rows = [await as_driven(store, row) for row in await store.sessions("open", grep, sys.maxsize)]
    return [row for row in rows if row.status == status][:limit]


async def as_driven(leases: Leases, row: SessionRow) -> SessionRow:
    """The row of an open session is `running` where somebody drives it."""
    if row.status != "open":
        return row
    standing = await leases.standing(row.session)
    return row if standing is None or is_free(standing.lease) else replace(row, status="running")
