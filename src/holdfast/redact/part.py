"""Masks a part of a longer text, wherever the part begins and ends, and cuts a text so that no part of a secret is
left. `stream` masks a text piece by piece."""

from __future__ import annotations

from holdfast.redact.begun import find_begun
from holdfast.redact.redactor import Redactor, ever_known
from holdfast.redact.spans import mask

_CHAR_BYTES = 4
"""The longest that one character is in UTF-8."""
AROUND_CHARS = 1 << 16
"""How far what only looks like a secret may reach out of the part."""


def reach_of(redact: Redactor) -> int:
    """Return how far a secret may reach out of a part, in characters."""
    return max(AROUND_CHARS, redact.longest_known)


def reach_bytes_of(redact: Redactor) -> int:
    """Return how many bytes of encoded text are kept beside a part, to see whether a secret reaches out of it."""
    return max(AROUND_CHARS, _CHAR_BYTES * redact.longest_known)


def part_of(redact: Redactor, text: str, start: int, end: int, *, is_growing: bool) -> tuple[str, int]:
    """Return `text[start:end]` with its secrets masked, also those that begin before it or end after it, and where
    the part ends.

    If the text still grows, the part ends before its last word: that may be the beginning of a secret.
    """
    reach = reach_of(redact)
    first, last = max(start - reach, 0), min(end + reach, len(text))
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


def split_at(redact: Redactor, text: str, at: int) -> tuple[str, str]:
    """Return what is before a place of a text, and what is after it. A secret that lies across the place is masked on
    both sides: in a part of it, nobody would find it. All others are left as they are.
    """
    reach, at = reach_of(redact), max(at, 0)
    begin = max(at - reach, 0)
    for span in redact.find(text[begin : at + reach]):
        first, last = begin + span.start, begin + span.end
        if first < at < last:
            mark = f"[redacted:{span.kind}]"
            return text[:first] + mark, mark + text[last:]
    return text[:at], text[at:]


def split_bytes_at(redact: Redactor, data: bytes, at: int) -> tuple[str, str]:
    """Do the same with encoded text. It is cut where the next character begins."""
    at = border_of(data, at)
    before, after = (each.decode(errors="replace") for each in (data[:at], data[at:]))
    return split_at(redact, before + after, len(before))


def border_of(data: bytes, at: int) -> int:
    """Return the first place, not before this one, where a character of encoded text begins."""
    at = min(max(at, 0), len(data))
    inside = data[at : at + _CHAR_BYTES - 1]
    return at + next((n for n, byte in enumerate(inside) if byte & 0xC0 != 0x80), len(inside))


def begin_of(text: str, chars: int) -> str:
    """Return the beginning of a text that may be masked later, and so without a part of a secret."""
    return text if len(text) <= chars else split_at(ever_known(), text, chars)[0]
