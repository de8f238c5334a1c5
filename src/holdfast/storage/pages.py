"""Rows read straight from the pages of a database file, where SQLite finds no way to them.

Only leaves of tables are read, each on its own: a lost root or inner page hides none of them. What is found may be
old or wrong; who asks must be able to tell.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_LEAF = 0x0D
_HEAD_BYTES = 8
_INTS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The serial types of whole numbers, and their bytes."""
_MOST_BYTES = 1 << 30


class Pages(NamedTuple):
    """A database as it lies there."""

    content: bytes
    size: int
    """The size of a page, in bytes."""
    newer: Mapping[int, bytes]
    """The pages of which the log has a newer version, by number."""

    def page(self, number: int) -> bytes:
        """A page, counted from 1; shorter or empty where the file ends."""
        return self.newer.get(number) or self.content[(number - 1) * self.size : number * self.size]


def leaf_rows(pages: Pages) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """All rows of all leaves that can be read, each with its number."""
    last = max([len(pages.content) // pages.size, *pages.newer])
    for number in range(2, last + 1):
        page = pages.page(number)
        if len(page) == pages.size and page[0] == _LEAF:
            count = int.from_bytes(page[3:5], "big")
            for at in range(_HEAD_BYTES, min(_HEAD_BYTES + 2 * count, pages.size - 1), 2):
                try:
                    yield _row(pages, page, int.from_bytes(page[at : at + 2], "big"))
                except (IndexError, ValueError, struct.error):
                    continue  # not a row, or a part of it is lost


def _row(pages: Pages, page: bytes, at: int) -> tuple[int, tuple[Any, ...]]:
    size, at = _varint(page, at)
    number, at = _varint(page, at)
    return number, _values(_payload(pages, page, at, size))


def _payload(pages: Pages, page: bytes, at: int, size: int) -> bytes:
    """The bytes of a row, also those that are on further pages."""
    if not 0 < size < _MOST_BYTES:
        raise ValueError(size)
    most, least = pages.size - 35, (pages.size - 12) * 32 // 255 - 23
    here = size
    if size > most:
        here = least + (size - least) % (pages.size - 4)
        here = here if here <= most else least
    chunks = [page[at : at + here]]
    left, next_page = size - here, int.from_bytes(page[at + here : at + here + 4], "big")
    while left > 0:
        more = pages.page(next_page)
        if next_page < 2 or len(more) < pages.size:
            raise ValueError(next_page)
        chunks.append(more[4 : 4 + left])
        left, next_page = left - (pages.size - 4), int.from_bytes(more[:4], "big")
    return b"".join(chunks)


def _values(payload: bytes) -> tuple[Any, ...]:
    head_size, at = _varint(payload, 0)
    place, values = head_size, []
    while at < head_size:
        kind, at = _varint(payload, at)
        value, place = _value(payload, kind, place)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, kind: int, at: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    size = _INTS.get(kind, (kind - 12) // 2)
    if kind in (7, 10, 11) or at + size > len(payload):
        raise ValueError(kind)
    raw = payload[at : at + size]
    if kind in _INTS:
        return int.from_bytes(raw, "big", signed=True), at + size
    return (raw.decode() if kind % 2 else raw), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[at + count]
        if count == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError(at)
