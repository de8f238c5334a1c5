"""Exactly what a model received: rebuilds the bytes of every recorded request from the journal.

Pure: the caller reads the records and the blob with the base.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.context.transcript import QUOTABLE, text_in
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import json_text
from holdfast.protocol.events import ModelCallStarted, Record
from holdfast.protocol.request import Enclosed, Piece, Quoted, quoted_in

_HINT = "`holdfast fsck` lists all damage."


class Sent(NamedTuple):
    """A request that was sent, without its base."""

    number: int
    """The number of the attempt, from 1 over the whole session, with retries."""
    record: Record
    started: ModelCallStarted
    fragments: tuple[bytes, ...]


def attached(records: Iterable[Record]) -> set[Enclosed]:
    """Return the blobs that requests of these records carry."""
    starts = [record.event for record in records if isinstance(record.event, ModelCallStarted)]
    return {part for start in starts for part in quoted_in(start.request) if isinstance(part, Enclosed)}


def requests(records: Iterable[Record], contents: Mapping[Enclosed, str]) -> Iterator[Sent]:
    """Yield every request of a session in order, from its records, which start with the first one.

    Args:
        contents: The content of what is `attached`.

    Raises:
        StorageCorrupt: a request quotes something that is missing, or keeps more than the last one had.
    """
    texts: dict[Quoted, str] = dict(contents.items())
    last: tuple[bytes, ...] = ()
    number = 0
    for record in records:
        if type(record.event) in QUOTABLE:
            texts[record.seq] = text_in(record.event)
        if isinstance(record.event, ModelCallStarted):
            number += 1
            rest = [fragment(fresh.piece, texts) for fresh in record.event.request.rest]
            sent = (*_kept(last, record.event), *rest)
            if record.event.purpose == "work":  # the next request edits this one
                last = sent
            yield Sent(number, record, record.event, sent)


def body_of(sent: Sent, base: bytes) -> bytes:
    """Return the whole body, checked against the recorded hash. `base` is the blob that the request names.

    Raises:
        StorageCorrupt: the bytes are not the ones that were sent.
    """
    points, fragments = sent.started.request.points, list(sent.fragments)
    for point in points:
        whole, at = fragments[point.place], len(fragments[point.place]) - point.back
        fragments[point.place] = whole[:at] + point.text.encode() + whole[at:]
    body = base + b",".join(fragments) + sent.started.request.tail.encode()
    if hashlib.sha256(body).hexdigest() != sent.started.request.sha256:
        where = f"request {sent.number} (record {sent.record.seq})"
        raise StorageCorrupt(f"{where} cannot be shown: its bytes do not match the recorded hash", hint=_HINT)
    return body


def fragment(piece: Piece, texts: Mapping[Quoted, str]) -> bytes:
    """Return an encoded message: its literal texts, and the quoted ones escaped for JSON.

    Raises:
        StorageCorrupt: a quoted record is missing, or has no text to quote.
    """
    chunks: list[bytes] = []
    for part in piece:
        if isinstance(part, str):
            chunks.append(part.encode())
        elif part in texts:
            chunks.append(json_text(texts[part]))
        else:
            what = f"record {part}" if isinstance(part, int) else f"blob {part.blob}"
            raise StorageCorrupt(f"a request quotes {what}, which has no text", hint=_HINT)
    return b"".join(chunks)


def _kept(last: tuple[bytes, ...], started: ModelCallStarted) -> tuple[bytes, ...]:
    keep = started.request.keep
    if keep > len(last):
        raise StorageCorrupt(
            f"the request {started.key} keeps more than the request before it had", hint=_HINT
        )
    return last[:keep]
