"""The journal itself, record by record: complete for scripts, one line each for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from holdfast.cli.journal import Journal
from holdfast.cli.story import runs_of
from holdfast.cli.terminal import Line, Span, iso, local, one_line, warn
from holdfast.context.requests import fragment, quoted_text
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import encode_json, to_builtins
from holdfast.protocol.events import VERSIONS, ModelCallStarted, Record, ToolCallFinished
from holdfast.protocol.ids import trace_id
from holdfast.protocol.ports import Blobs


async def event_rows(journal: Journal, blobs: Blobs) -> AsyncIterator[dict[str, Any]]:
    """Every record in order as plain data, text that is kept elsewhere filled in.

    `body.add` of a request holds its new messages whole; a tool's clipped result has the whole output beside
    it as `full_text`, null when the blob is damaged. What a newer version wrote is shown as it lies there.
    """
    runs = dict(zip((r.seq for r in journal.records), runs_of(journal.records), strict=True))
    records = {record.seq: record for record in journal.records}
    texts: dict[int, str] = {}
    run = 0
    for stored in journal.stored:
        run = runs.get(stored.seq, run)
        record = records.get(stored.seq)
        head = {"seq": stored.seq, "at": iso(stored.at_ms), "type": stored.type, "v": stored.v}
        tail = {"trace_id": trace_id(stored.session, run), "epoch": stored.epoch, "cause": stored.cause}
        if record is None:
            yield {**head, **tail, "body": msgspec.json.decode(stored.body)}
            continue
        body = await _body(record, texts, blobs)
        yield {**head, "v": VERSIONS[type(record.event)], **tail, "body": body}


async def _body(record: Record, texts: dict[int, str], blobs: Blobs) -> dict[str, Any]:
    event = record.event
    text = quoted_text(event)
    if text is not None:
        texts[record.seq] = text
    body = to_builtins(event)
    match event:
        case ModelCallStarted(add=pieces) if pieces:
            body["add"] = [fragment(piece, texts).decode() for piece in pieces]
        case ToolCallFinished(result=result) if result.blob:
            body["result"]["full_text"] = await _whole(result.blob, record.seq, blobs)
    return body


async def _whole(blob: str, seq: int, blobs: Blobs) -> str | None:
    try:
        return (await blobs.get(blob)).decode(errors="replace")
    except StorageCorrupt as error:
        warn(f"record {seq}: {error.message}")
        return None


def event_lines(journal: Journal, width: int) -> Iterator[Line]:
    """One line for each record: seq, time, type, and the beginning of its body."""
    digits = len(str(len(journal.stored)))
    for record in journal.records:
        name = type(record.event).__name__
        head = f"{record.seq:>{digits}}  {local(record.at_ms, '%H:%M:%S')}  {name:<18}  "
        body = encode_json(record.event).decode()
        yield [Span(head, "bold"), Span(one_line(body, max(width - len(head), 20)), "dim")]
