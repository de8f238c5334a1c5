"""Reads the bodies of requests and responses, and writes them anew: functions of bytes, and nothing else.

Only the content of a body goes on. Its chunks are the proxy's own, so nothing hides in how a body was cut.
"""

from __future__ import annotations

import re
from typing import Literal

Length = int | Literal["chunks", "close"]
"""Where a body ends: after so many bytes, after its last chunk, or where the connection is closed."""

LAST_CHUNK = b"0\r\n\r\n"
_STRICT = re.compile(rb"([0-9A-Fa-f]{1,12})")
_LOOSE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?")
_STRICT_LINE_BYTES = 14
_LOOSE_LINE_BYTES = 4 << 10
_TRAILERS_BYTES = 32 << 10


class Unreadable(Exception):
    """A head or body that is refused whatever host it names. The message is a sentence.

    Args:
        status: The status of the answer.
        message: Why.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Body:
    """A body as it comes: tells its content.

    Args:
        length: Where it ends.
        is_strict: Nothing that two programs could read in different ways is accepted in its chunks. A server may say
            more beside them, which is dropped.
    """

    def __init__(self, length: Length, *, is_strict: bool = True) -> None:
        self.length: Length = length
        self.is_over = length == 0
        self._is_strict = is_strict
        self._left = length if isinstance(length, int) else 0
        """So much is missing of the body, or of the chunk."""
        self._awaited: Literal["size", "end", "trailer"] = "size"
        self._line = b""
        self._trailers_left = 0 if is_strict else _TRAILERS_BYTES

    def take(self, data: bytes) -> bytes:
        """Return the content in these bytes. What follows the end of the body is dropped.

        Raises:
            Unreadable: it is not written as chunks are.
        """
        if self.length == "close":
            return data
        if self.length != "chunks":
            part = data[: self._left]
            self._left -= len(part)
            self.is_over = not self._left
            return part
        pieces = list[bytes]()
        place = 0
        while place < len(data) and not self.is_over:
            if self._left:
                pieces.append(data[place : place + self._left])
                self._left -= len(pieces[-1])
                place += len(pieces[-1])
            else:
                place = self._read_on(data, place)
        return b"".join(pieces)

    def _read_on(self, data: bytes, place: int) -> int:
        """Read what is between chunks from a place, and return the next one."""
        end = data.find(b"\n", place) + 1
        self._line += data[place : end or len(data)]
        if len(self._line) > (_STRICT_LINE_BYTES if self._is_strict else _LOOSE_LINE_BYTES):
            raise Unreadable(400, "A chunk of the body has no plain length.")
        if end:
            line, self._line = self._line, b""
            self._read_line(line)
        return end or len(data)

    def _read_line(self, line: bytes) -> None:
        said = line[:-2]
        if not line.endswith(b"\r\n"):
            raise Unreadable(400, "A chunk of the body does not end where it says.")
        if self._awaited == "end":
            if said:
                raise Unreadable(400, "A chunk of the body does not end where it says.")
            self._awaited = "size"
        elif self._awaited == "size":
            found = (_STRICT if self._is_strict else _LOOSE).fullmatch(said)
            if found is None:
                raise Unreadable(400, "A chunk of the body has no plain length.")
            self._left = int(found[1], 16)
            self._awaited = "end" if self._left else "trailer"
        else:
            self.is_over = not said
            self._trailers_left -= len(said)
            if self._trailers_left < 0:
                raise Unreadable(400, "Something follows the last chunk of the body.")


def chunk(content: bytes) -> bytes:
    """Return content as one chunk; nothing for no content, because an empty chunk is the last one."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""
