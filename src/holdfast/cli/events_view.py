"""The journal itself, record by record: complete for scripts, one line each for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from holdfast.cli.journal import Journal
from holdfast.cli.plain import PlainEvents
from holdfast.cli.story import runs_of
from holdfast.cli.terminal import Line, Span, iso, local, one_line
from holdfast.protocol.codec import encode_json
from holdfast.protocol.events import VERSIONS
from holdfast.protocol.ids import trace_id
from holdfast.protocol.ports import Store


async def event_rows(journal: Journal, store: Store) -> AsyncIterator[dict[str, Any]]:
    """Every record in order as plain data; what a newer version wrote is shown as it lies there, the body of an
    erased one is null."""
    runs = dict(zip((r.seq for r in journal.records), runs_of(journal.records), strict=True))
    records = {record.seq: record for record in journal.records}
    plain = PlainEvents(store, journal.row.session)
    run = 0
    for stored in journal.stored:
        run = runs.get(stored.seq, run)
        record = records.get(stored.seq)
        head = {"seq": stored.seq, "at": iso(stored.at_ms), "type": stored.type, "v": stored.v}
        tail = {"trace_id": trace_id(stored.session, run), "epoch": stored.epoch, "cause": stored.cause}
        if record is None:
            body = None if stored.is_erased else msgspec.json.decode(stored.body)
            yield {**head, **tail, "body": body}
        else:
            yield {**head, "v": VERSIONS[type(record.event)], **tail, "body": await plain.data(record)}


def event_lines(journal: Journal, width: int) -> Iterator[Line]:
    """One line for each record: seq, time, type, and the beginning of its body."""
    digits = len(str(len(journal.stored)))
    for record in journal.records:
        name = type(record.event).__name__
        head = f"{record.seq:>{digits}}  {local(record.at_ms, '%H:%M:%S')}  {name:<18}  "
        body = encode_json(record.event).decode()
        yield [Span(head, "bold"), Span(one_line(body, max(width - len(head), 20)), "dim")]
