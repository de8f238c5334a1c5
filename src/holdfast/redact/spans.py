"""Stretches of a text: what every finder of secrets gives. What makes a stretch secret is not said here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """A stretch of text that is secret."""

    start: int
    end: int
    kind: str


def places(text: str, needle: str) -> Iterator[int]:
    """Every index at which the needle begins."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)
