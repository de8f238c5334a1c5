"""Spans of a text, which every finder of secrets returns. The finders decide what is secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """A secret span of text."""

    start: int
    end: int
    kind: str


def places(text: str, needle: str) -> Iterator[int]:
    """Yield every index where the needle begins."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)
