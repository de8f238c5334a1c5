"""Parses server-sent events from bytes cut anywhere (WHATWG HTML, section 9.2). No network, no JSON."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The most bytes of one event. A longer one breaks the stream."""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its type (empty if it has none), its data, and its id (None if it has none)."""

    type: str
    data: str
    id: str | None


class Heard(IntEnum):
    """What a piece of a response says. Comments and pings say nothing: they must not count as progress."""

    NOTHING = 0
    SOMETHING = 1
    END = 2
    """Nothing that matters comes after it."""


class EventTooLarge(Exception):
    """An event is too large: the server does not speak this format."""


class EventParser:
    """Takes a stream's bytes piece by piece and returns the complete events. The rest waits inside."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_event_bytes
        self._head: bytes | None = b""
        """The first bytes of the stream, until it is clear whether there is a byte order mark; then None."""
        self._pieces: list[bytes] = []
        """The unfinished line. A list, because joining at each piece would make a long line quadratic."""
        self._size_bytes = 0
        self._ended_with_cr = False
        self._type = ""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes complete.

        Raises:
            EventTooLarge: an event exceeds the limit.
        """
        if self._head is not None:
            chunk = self._without_bom(chunk)
        if self._ended_with_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._ended_with_cr = False
        if b"\r" in chunk:
            # A CR ends its line at once; the LF that may follow in the next piece is dropped above.
            self._ended_with_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size_bytes += len(chunk)
        *whole, rest = chunk.split(b"\n")
        events: list[Event] = []
        if whole:
            if self._pieces:
                whole[0] = b"".join((*self._pieces, whole[0]))
                self._pieces.clear()
            for line in whole:
                if line:
                    self._take_field(line)
                else:
                    self._end_event(events)
            if events:
                self._size_bytes = len(rest)
        if rest:
            self._pieces.append(rest)
        if self._size_bytes > self._max_bytes:
            raise EventTooLarge(f"one event is larger than {self._max_bytes} bytes")
        return events

    def _without_bom(self, chunk: bytes) -> bytes:
        head = (self._head or b"") + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _end_event(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(self._type, b"\n".join(self._data).decode("utf-8", "replace"), self._id))
            self._data.clear()
        self._type, self._id, self._size_bytes = "", None, 0
