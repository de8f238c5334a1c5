"""What a model received, exactly: the bytes of every recorded request, put together from the journal again.

Pure: whoever asks brings the records and the blob before the messages. How a request is planned and rendered
does not belong here, nor how an answer is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import json_text
from holdfast.protocol.events import (
    Event,
    MessageReceived,
    ModelCallCut,
    ModelCallStarted,
    NoteAdded,
    Piece,
    Record,
    RunLanding,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
)

_HINT = "`holdfast fsck` tells what is wrong with this home."


class Sent(NamedTuple):
    """A request that went over the wire, without what stands before its messages."""

    number: int
    """Of the attempt, from 1 over the whole session, retries included."""
    record: Record
    request: ModelCallStarted
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
        text = quoted_text(record.event)
        if text is not None:
            texts[record.seq] = text
        if isinstance(record.event, ModelCallStarted):
            number += 1
            added = [fragment(piece, texts) for piece in record.event.add]
            known += added
            last = (*_kept(last, record.event), *_again(known, record.event), *added)
            yield Sent(number, record, record.event, last)


def body_of(sent: Sent, base: bytes) -> bytes:
    """The whole body, proven by the recorded hash. `base` is the blob that the request names.

    Raises:
        StorageCorrupt: the bytes are not those that were sent.
    """
    body = base + b",".join(sent.fragments) + sent.request.tail.encode()
    if hashlib.sha256(body).hexdigest() != sent.request.sha256:
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


def quoted_text(event: Event) -> str | None:
    """The text of a record that a request may quote; None for a record of any other kind."""
    match event:
        case MessageReceived(text=text) | NoteAdded(text=text) | ToolCallAbandoned(text=text):
            return text
        case ModelCallCut(text=text) | RunLanding(message=text):
            return text
        case ToolCallFinished(result=result):
            return result.text
        case ToolCallRefused(failure=failure):
            return failure.message
    return None


def _kept(last: tuple[bytes, ...], request: ModelCallStarted) -> tuple[bytes, ...]:
    if request.keep > len(last):
        raise StorageCorrupt(f"the request {request.key} keeps more than the one before it had", hint=_HINT)
    return last[: request.keep]


def _again(known: list[bytes], request: ModelCallStarted) -> list[bytes]:
    """The fragments of the ranges, whose both ends are included."""
    repeated: list[bytes] = []
    for first, last in request.again:
        if not 0 <= first <= last < len(known):
            raise StorageCorrupt(f"the request {request.key} repeats what never was sent", hint=_HINT)
        repeated += known[first : last + 1]
    return repeated
