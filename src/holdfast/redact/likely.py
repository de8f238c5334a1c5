"""Finds what looks like a secret, or is in the place of one, in the parts of a text that a gate opens for.

The finders decide what is secret; this only saves them the rest of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from holdfast.redact import assigned, credentials, shapes
from holdfast.redact.assigned import find_assigned
from holdfast.redact.credentials import find_credentials
from holdfast.redact.gates import Gate
from holdfast.redact.shapes import KEY_SIGN, find_private_keys, find_tokens
from holdfast.redact.spans import Span, border_before, word_end

Part = tuple[int, int, int]
"""Where a part of a text begins and ends, and up to where the text shows what it is."""

_UNSEEN_CHARS = 32_768
"""What a short command reads. It takes milliseconds without the gates, and about twenty to make one."""
_PART_CHARS = 1024
_PIECE_CHARS = 256
"""A gate tells which parts of a text may have a secret, and then which pieces of these. Only those are read."""
_REACH_CHARS = 32
"""More than what a gate must see of a place that goes over several lines, besides its last line."""
_LONG_REACH_CHARS = 160
"""More than what it must see of a place with blanks or quotation marks in it, besides its last word."""
GATE = Gate(
    chain(shapes.gate_patterns(), assigned.gate_patterns(), credentials.gate_patterns()), _UNSEEN_CHARS
)
"""Closed for ordinary text."""
_SHAPES_GATE = Gate(shapes.gate_patterns(), 2 * _UNSEEN_CHARS)
_CREDENTIALS_GATE = Gate(credentials.gate_patterns(), 2 * _UNSEEN_CHARS)
"""Where `GATE` is open, these are nearly always closed. A process with few such texts makes none of them."""


def find_likely(text: str, parts: Iterable[Part]) -> Iterator[Span]:
    """Yield what looks like a secret, or is in the place of one."""
    has_key = False
    for begin, end, seen in chain.from_iterable(_open_within(text, *part) for part in parts):
        piece = text[begin:seen]
        if _SHAPES_GATE.is_open(piece):
            yield from find_tokens(text, begin, end)
            has_key = has_key or KEY_SIGN in piece
        yield from find_assigned(text, begin, end)
        if _CREDENTIALS_GATE.is_open(piece):
            yield from find_credentials(text, begin, end, seen)
    if has_key:
        yield from find_private_keys(text)


def open_parts(text: str) -> list[Part]:
    """Return the parts that may have a secret."""
    parts: list[Part] = []
    begin, size, is_open = 0, len(text), GATE.is_open
    while begin < size:
        end, seen = cut(text, begin + _PART_CHARS)
        if is_open(text[begin:seen]):
            parts.append((begin, end, seen))
        begin = end
    return parts


def _open_within(text: str, begin: int, end: int, seen: int) -> Iterator[Part]:
    """Yield the open pieces of an open piece: a half, and then a half of that."""
    while GATE.is_made and end - begin > _PIECE_CHARS:
        middle, middle_seen = cut(text, (begin + end) // 2)
        if middle >= end:
            break
        if GATE.is_open(text[begin:middle_seen]):
            yield from _open_within(text, begin, middle, middle_seen)
            if not GATE.is_open(text[middle:seen]):
                return
        begin = middle
    yield begin, end, seen


def cut(text: str, at: int) -> tuple[int, int]:
    """Return where the next line ends, or the next word of a long line; and up to where a gate must see the text to
    judge what begins before that.
    """
    end = text.find("\n", at, at + _PART_CHARS)
    if end < 0:
        end = word_end(text, at)
    seen = text.find("\n", end + _REACH_CHARS, end + _PART_CHARS)
    return end, seen if seen >= 0 else word_end(text, end + _LONG_REACH_CHARS)


def around(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return from where and up to where the text shows what there is in that part or right beside it."""
    line = text.rfind("\n", max(begin - _PART_CHARS, 0), max(begin - _REACH_CHARS, 0))
    first = line if line >= 0 else border_before(text, begin - _LONG_REACH_CHARS)
    return first, cut(text, end)[1]
