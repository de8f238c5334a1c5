"""Encoded messages, and what of them a journal has already: long texts are quoted from their records.

`conversation` has the messages of a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.protocol.codec import json_text
from holdfast.protocol.request import Enclosed, Fresh, Piece, Quoted

QUOTE_FROM_CHARS = 64
"""Shorter texts are cheaper to repeat than to quote."""


Quote = tuple[Quoted, int, int]
"""What a fragment quotes, and where in its bytes: first and after the last."""


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """An encoded element of the list of messages."""

    mark: str
    seq: int
    """As in `request.Fresh`."""
    start: int
    """Its place in the buffer."""
    end: int
    quotes: tuple[Quote, ...] = ()
    light: int = 0
    """How many of its bytes do not count, because media weigh less."""

    @property
    def size(self) -> int:
        return self.end - self.start - self.light


class Unsent(msgspec.Struct, frozen=True):
    """An encoded element that the last request did not have."""

    mark: str
    seq: int
    element: bytes
    quotes: tuple[Quote, ...] = ()
    light: int = 0
    is_sent: bool = False
    """Whether the last request had it, in a view that is compacted now."""
    hollow: Piece = ()
    """What it consists of, if its blobs were not read yet; its element is empty then."""

    @property
    def size(self) -> int:
        return len(self.element) - self.light


Item = Fragment | Unsent


def found_in(element: bytes, texts: Iterable[tuple[Quoted, str]]) -> tuple[Quote, ...]:
    """Return which of the texts the element contains, and where."""
    quotes: list[Quote] = []
    at = 0
    for quoted, text in texts:
        # A long result of a tool is in the journal only once, in its own record. The fragment says "the text of
        # record 17", and has the bytes around it.
        if len(text) < QUOTE_FROM_CHARS and isinstance(quoted, int):
            continue
        escaped = json_text(text)
        start = element.find(escaped, at)
        if start >= 0:
            at = start + len(escaped)
            quotes.append((quoted, start, at))
    return tuple(quotes)


def as_fresh(unsent: Unsent) -> Fresh:
    """Return the element as literal texts and quotes of records. It reads back to exactly these bytes."""
    piece: list[str | Quoted] = []
    element, at = unsent.element, 0
    for quoted, start, end in unsent.quotes:
        piece += [element[at:start].decode(), quoted]
        at = end
    return Fresh(unsent.mark, unsent.seq, (*piece, element[at:].decode()))


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, each in value.items():
                if key in ("text", "content"):
                    yield from (each,) if isinstance(each, str) else texts_in(each)
        case list():
            for each in value:
                yield from texts_in(each)


def unescaped(text: bytes) -> str:
    """Return the text that `json_text` wrote."""
    return msgspec.json.decode(b'"' + text + b'"', type=str)


def light_of(quoted: Enclosed, content: str) -> int:
    """Return how many bytes of the content do not count."""
    return len(content) - quoted.weight_bytes if quoted.weight_bytes else 0
