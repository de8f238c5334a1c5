"""Follows a session: its records in order and without a gap, from any process, and deltas as they arrive.

The caller decides what to look for and how to show it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from holdfast.protocol.events import (
    Event,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    Record,
    Responded,
    SideCallEnded,
    ToolCallAbandoned,
    ToolCallFinished,
)
from holdfast.protocol.ports import Delta, Journals
from holdfast.runtime.bus import Bus, Item
from holdfast.runtime.fold import readable
from holdfast.runtime.lookout import Lookout


async def follow(
    store: Journals, bus: Bus, lookout: Lookout, session: str, after_seq: int
) -> AsyncGenerator[Item, None]:
    """See `SessionController.follow`.

    Raises:
        StorageError: the journal cannot be read.
    """
    over: set[str] = set()
    """The attempts whose end was read while their deltas still wait. Those deltas are dropped."""
    with bus.subscribed(session) as told, lookout.watching():
        await lookout.ready()
        cursor = after_seq
        async for record in _records(store, session, cursor):
            if 0 < told.first_seq <= record.seq:
                break  # from here on all waits in order, the deltas between the records
            cursor = record.seq
            over.add(_ended(record.event))
            yield record
        while True:
            if told.is_empty:
                over.clear()
            item = await told.next()
            if isinstance(item, Delta):
                if item.key not in over:
                    yield item
            elif item is not None and item.seq == cursor + 1:
                cursor = item.seq
                yield item
            elif item is None or item.seq > cursor:
                async for record in _records(store, session, cursor):
                    cursor = record.seq
                    over.add(_ended(record.event))
                    yield record


async def _records(store: Journals, session: str, cursor: int) -> AsyncIterator[Record]:
    if await store.last_seq(session) > cursor:
        for stored in await store.read(session, cursor):
            yield readable(stored)


def _ended(event: Event) -> str:
    """Return the key of the attempt that the event ends; empty for any other event."""
    match event:
        case (
            Responded(key=key)
            | ModelCallFailed(key=key)
            | ModelCallCut(key=key)
            | ModelCallAbandoned(key=key)
            | SideCallEnded(key=key)
        ):
            return key
        case ToolCallFinished(call_id=call_id) | ToolCallAbandoned(call_id=call_id):
            return call_id
        case _:
            return ""
