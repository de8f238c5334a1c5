"""Where a provider is to keep a request in its cache, and how the texts that say so come between its bytes.

`conversation` has the messages. A wire says what the text is, and where in a message it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.protocol.ports import Wire
from holdfast.protocol.request import CachePoint
from holdfast.protocol.wires import PointedWire

Inserts = Sequence[tuple[int, bytes]]
"""Texts, and where in some chunks they go, in order."""
_PLACES = 3
"""In how many of the last messages a place is looked for."""


def new_points(
    wire: Wire, answered: int, count: int, element_at: Callable[[int], bytes]
) -> tuple[CachePoint, ...]:
    """Return where a provider is to keep the next request: at its end, and at the end of the last one that it
    answered, which it finds again there however much was added since then.

    Args:
        answered: How many of the messages the last answered request had.
        count: How many messages there are.
        element_at: Returns the message of a place.
    """
    if not isinstance(wire, PointedWire):
        return ()
    points: list[CachePoint] = []
    for end in (answered, count):
        for place in range(end - 1, max(end - 1 - _PLACES, -1), -1):
            found = wire.cache_point(element_at(place))
            if found is not None:
                points.append(CachePoint(place, *found))
                break
    return tuple(dict.fromkeys(points))


def spliced(
    chunks: Iterable[bytes | bytearray | memoryview], inserts: Inserts
) -> Iterator[bytes | memoryview]:
    """Yield the chunks with the texts in between, each at its place, in order."""
    start, waiting = 0, list(inserts)
    for chunk in chunks:
        view, at = memoryview(chunk), 0
        while waiting and waiting[0][0] <= start + len(view):
            place, text = waiting.pop(0)
            yield view[at : place - start]
            yield text
            at = place - start
        yield view[at:]
        start += len(view)
