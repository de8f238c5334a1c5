"""What the corpus scorer calls to measure the event parser; holds no test itself."""

from __future__ import annotations

from holdfast.providers.sse import EventParser


def parse_sse(chunks: list[bytes]) -> list[tuple[str | None, str, str | None]]:
    parser = EventParser()
    return [(event.type or None, event.data, event.id) for chunk in chunks for event in parser.feed(chunk)]
