"""Watching a session: its records in order and without a gap, whoever writes them, and what arrives meanwhile.

What is watched for, and how it is shown, is the watchers' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from holdfast.protocol.events import (
    Event,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    Record,
    Responded,
    ToolCallAbandoned,
    ToolCallFinished,
)
from holdfast.protocol.ports import Delta, Journals
from holdfast.runtime.bus import Bus, Item
from holdfast.runtime.journal import readable

WATCH_S = 0.2
"""How often a session that another process drives is looked at."""


async def follow(store: Journals, bus: Bus, session: str, after_seq: int) -> AsyncGenerator[Item, None]:
    """As `SessionController.follow`.

    Raises:
        StorageError: the journal cannot be read.
    """
    queue = bus.subscribe(session)
    over: set[str] = set()
    """The attempts whose end was read ahead of the crumbs that wait in the queue: nobody wants these then."""
    try:
        cursor = after_seq
        async for record in _records(store, session, cursor):
            cursor = record.seq
            yield record
        while True:
            if queue.empty():
                over.clear()
            item = await _next(queue)
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
    finally:
        bus.unsubscribe(session, queue)


async def _next(queue: asyncio.Queue[Item]) -> Item | None:
    """The next thing told in this process; None when it is time to look whether another one wrote."""
    if not queue.empty():  # a crumb for each of many words: none of them is worth a timer
        return queue.get_nowait()
    try:
        async with asyncio.timeout(WATCH_S):
            return await queue.get()
    except TimeoutError:
        return None


async def _records(store: Journals, session: str, cursor: int) -> AsyncIterator[Record]:
    if await store.last_seq(session) > cursor:
        for stored in await store.read(session, cursor):
            yield readable(stored)


def _ended(event: Event) -> str:
    """The key under which an attempt that ended with the event told what arrived; empty for any other event."""
    match event:
        case (
            Responded(key=key)
            | ModelCallFailed(key=key)
            | ModelCallCut(key=key)
            | ModelCallAbandoned(key=key)
        ):
            return key
        case ToolCallFinished(call_id=call_id) | ToolCallAbandoned(call_id=call_id):
            return call_id
        case _:
            return ""
