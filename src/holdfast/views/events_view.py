"""The journal itself, record by record: complete for scripts, one line each for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.protocol.codec import StoredRecord, encode_json
from holdfast.protocol.events import VERSIONS, Record
from holdfast.protocol.ids import trace_id
from holdfast.views.journal import Journal
from holdfast.views.lines import Line, Span, iso, local, one_line


def event_row(
    stored: StoredRecord, record: Record | None, run: int, body: dict[str, Any] | None
) -> dict[str, Any]:
    """A record as plain data; what a newer version wrote is shown as it lies there, the body
    of an erased one is null.

    Args:
        record: The same, decoded; None where this version cannot.
        run: The run that it belongs to.
        body: Its event as `plain` has it.
    """
    return {
        "seq": stored.seq,
        "at": iso(stored.at_ms),
        "type": stored.type,
        "v": stored.v if record is None else VERSIONS[type(record.event)],
        "trace_id": trace_id(stored.session, run),
        "epoch": stored.epoch,
        "cause": stored.cause,
        "body": _unread(stored) if record is None else body,
    }


def _unread(stored: StoredRecord) -> Any:
    return None if stored.is_erased else msgspec.json.decode(stored.body)


def event_lines(journal: Journal, width: int) -> Iterator[Line]:
    """One line for each record: seq, time, type, and the beginning of its body."""
    digits = len(str(len(journal.stored)))
    for record in journal.records:
        name = type(record.event).__name__
        head = f"{record.seq:>{digits}}  {local(record.at_ms, '%H:%M:%S')}  {name:<18}  "
        body = encode_json(record.event).decode()
        yield [Span(head, "bold"), Span(one_line(body, max(width - len(head), 1)), "dim")]
