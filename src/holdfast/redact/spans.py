"""Spans of a text, which every finder of secrets returns. The finders decide what is secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """A secret span of text."""

    start: int
    end: int
    kind: str


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def lowered(text: str) -> str:
    """Return the text in small letters, of the same length."""
    small = text.lower()
    # A letter that changes length in lower case would shift all that follows.
    return small if len(small) == len(text) else text.translate(_ASCII_LOWER)


def places(text: str, needle: str) -> Iterator[int]:
    """Yield every index where the needle begins."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


_GUESSED = ("authorization", "secret", "password")
"""A finder that knows more about a span has another kind for it."""


def apart(spans: list[Span]) -> list[Span]:
    """Return the spans in order, with those that overlap made one."""
    spans.sort(key=lambda span: (span.start, -span.end, span.kind in _GUESSED))
    merged: list[Span] = []
    for span in spans:
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def mask(text: str, spans: list[Span]) -> str:
    """Return the text with each of the spans, in order, replaced by its mark."""
    pieces: list[str] = []
    at = 0
    for start, end, kind in spans:
        pieces += (text[at:start], f"[redacted:{kind}]")
        at = end
    return "".join(pieces) + text[at:]


_BORDERS = ("\n", " ", '"')
"""The ends of lines and words. No address and no key has a blank or a quotation mark in it."""
_LINE_CHARS = 1024


def border(text: str, at: int) -> int:
    """Return where the next line ends, or the next word if that line is long."""
    for begin in range(at, len(text), _LINE_CHARS):
        for mark in _BORDERS:
            border = text.find(mark, begin, begin + _LINE_CHARS)
            if border >= 0:
                return border
    return len(text)


def word_end(text: str, at: int) -> int:
    """Return where the next word of a long line ends."""
    for mark in _BORDERS[1:]:
        end = text.find(mark, at, at + _LINE_CHARS)
        if end >= 0:
            return end
    return border(text, at + _LINE_CHARS) if at + _LINE_CHARS < len(text) else len(text)


def border_before(text: str, at: int) -> int:
    """Return where the last line begins, or the last word if that line is long."""
    for end in range(at, 0, -_LINE_CHARS):
        for mark in _BORDERS:
            border = text.rfind(mark, max(end - _LINE_CHARS, 0), end)
            if border >= 0:
                return border
    return 0
