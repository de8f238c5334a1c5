"""What a model received, exactly: the bytes of every recorded request, put together from the journal again.

Pure: whoever asks brings the records and the blob before the messages. How a request is planned and rendered
does not belong here, nor how an answer is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.context.transcript import QUOTABLE, text_in
from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import json_text
from holdfast.protocol.events import Fresh, ModelCallStarted, Piece, Record

_HINT = "`holdfast fsck` tells what is wrong with this home."


class Sent(NamedTuple):
    """A request that went over the wire, without what stands before its messages."""

    number: int
    """Of the attempt, from 1 over the whole session, retries included."""
    record: Record
    started: ModelCallStarted
    fragments: tuple[bytes, ...]


def requests(records: Iterable[Record]) -> Iterator[Sent]:
    """Every request of a session in order, made from its records from the first one on.

    Raises:
        StorageCorrupt: a request quotes or repeats something that is not there.
    """
    texts: dict[int, str] = {}
    known: list[bytes] = []
    last: tuple[bytes, ...] = ()
    number = 0
    for record in records:
        if type(record.event) in QUOTABLE:
            texts[record.seq] = text_in(record.event)
        if isinstance(record.event, ModelCallStarted):
            number += 1
            last = (*_kept(last, record.event), *_rest(known, record.event, texts))
            yield Sent(number, record, record.event, last)


def body_of(sent: Sent, base: bytes) -> bytes:
    """The whole body, proven by the recorded hash. `base` is the blob that the request names.

    Raises:
        StorageCorrupt: the bytes are not those that were sent.
    """
    body = base + b",".join(sent.fragments) + sent.started.request.tail.encode()
    if hashlib.sha256(body).hexdigest() != sent.started.request.sha256:
        where = f"request {sent.number} (record {sent.record.seq})"
        raise StorageCorrupt(f"{where} cannot be shown: its bytes do not have the recorded hash", hint=_HINT)
    return body


def fragment(piece: Piece, texts: Mapping[int, str]) -> bytes:
    """An encoded message: its literal texts, and the quoted ones escaped for JSON.

    Raises:
        StorageCorrupt: a quoted record is missing, or is of a kind that holds no text to quote.
    """
    parts: list[bytes] = []
    for part in piece:
        if isinstance(part, str):
            parts.append(part.encode())
        elif part in texts:
            parts.append(json_text(texts[part]))
        else:
            raise StorageCorrupt(f"a request quotes record {part}, which holds no text", hint=_HINT)
    return b"".join(parts)


def _kept(last: tuple[bytes, ...], started: ModelCallStarted) -> tuple[bytes, ...]:
    keep = started.request.keep
    if keep > len(last):
        raise StorageCorrupt(f"the request {started.key} keeps more than the one before it had", hint=_HINT)
    return last[:keep]


def _rest(known: list[bytes], started: ModelCallStarted, texts: Mapping[int, str]) -> list[bytes]:
    """The fragments behind the kept ones; fresh ones become known."""
    found: list[bytes] = []
    for each in started.request.rest:
        if isinstance(each, Fresh):
            known.append(fragment(each.piece, texts))
            found.append(known[-1])
            continue
        first, last = each
        if not 0 <= first <= last < len(known):
            raise StorageCorrupt(f"the request {started.key} repeats what never was sent", hint=_HINT)
        found += known[first : last + 1]
    return found
