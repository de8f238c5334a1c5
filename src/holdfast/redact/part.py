"""Masks a part of a longer text, wherever the part begins and ends. `stream` masks a text piece by piece."""

from __future__ import annotations

from holdfast.redact.begun import find_begun
from holdfast.redact.redactor import Redactor
from holdfast.redact.spans import mask

AROUND_CHARS = 1 << 16
"""How far a secret may reach out of the part."""


def part_of(redact: Redactor, text: str, start: int, end: int, *, is_growing: bool) -> tuple[str, int]:
    """Return `text[start:end]` with its secrets masked, also those that begin before it or end after it, and where
    the part ends.

    If the text still grows, the part ends before its last word: that may be the beginning of a secret.
    """
    first, last = max(start - AROUND_CHARS, 0), min(end + AROUND_CHARS, len(text))
    around = text[first:last]
    if is_growing and last == len(text):
        word = max(around.rfind(" "), around.rfind("\n")) + 1
        end = min(end, first + min(word, find_begun(around)))
    end = max(min(end, len(text)), start)
    spans = [
        span._replace(
            start=max(span.start + first, start) - start,
            end=min(span.end + first, end) - start,
        )
        for span in redact.find(around, is_cut=True)
        if span.start + first < end and span.end + first > start
    ]
    return mask(text[start:end], spans), end
