"""The journal, record by record: complete for scripts, one line each for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.protocol.codec import StoredRecord, encode_json
from holdfast.protocol.events import (
    VERSIONS,
    ApprovalRequested,
    Event,
    Record,
    Responded,
    ToolCallStarted,
)
from holdfast.protocol.ids import trace_id
from holdfast.protocol.messages import calls_of
from holdfast.views.lines import MASKED, Line, Span, iso, local, one_line
from holdfast.views.stored import StoredSession


def event_row(
    stored: StoredRecord, record: Record | None, run: int, body: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a record as plain data. A record of a newer version keeps its stored body; an erased one has none.

    Args:
        record: The decoded record; None if this version cannot decode it.
        run: The number of its run.
        body: The event as `views.plain` returns it.
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


def _is_masked(event: Event) -> bool:
    match event:
        case Responded(parts=parts):
            return any(call.is_masked for call in calls_of(parts))
        case ToolCallStarted(is_masked=is_masked):
            return is_masked
        case ApprovalRequested(seal=seal):
            return bool(seal)
        case _:
            return False


def event_lines(session: StoredSession, width: int) -> Iterator[Line]:
    """Return one line per record: seq, time, type and the beginning of the body."""
    digits = len(str(len(session.stored)))
    for record in session.records:
        name = type(record.event).__name__
        head = f"{record.seq:>{digits}}  {local(record.at_ms, '%H:%M:%S')}  {name:<18}  "
        body = f"({MASKED}) " if _is_masked(record.event) else ""
        body += encode_json(record.event).decode()
        yield [Span(head, "bold"), Span(one_line(body, max(width - len(head), 1)), "dim")]
