"""Reads the JSON objects of an untrusted response, even if a server cut a character in two.

JSON may write a character as two escapes, and servers that count such halves cut between them. The readers know what
the objects mean.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.protocol.untrusted import decode_untrusted
from holdfast.providers.errors import BadResponse, wrong_shape

_REPLACEMENT = "\\ufffd"
_ESCAPE = re.compile(
    r"\\(?:u(?P<high>d[89ab][0-9a-f]{2})(?P<low>\\ud[c-f][0-9a-f]{2})?|u(?P<lone>d[c-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
"""Any escape, so that an escaped backslash does not begin another one."""

_MARK = re.compile(r'\\(?:.|\Z)|["{}\[\]]', re.DOTALL)
_SCALAR_CHARS = 32


class Objects:
    """The objects of one stream, in order."""

    def __init__(self) -> None:
        self._half = ""
        """The escape at the end of a string, if it may be the first half of a character."""

    def read(self, text: str) -> dict[str, Any]:
        """Return the next object. Half a character is joined with its other half, replaced inside a text, and left
        out at the end of the last object.

        Raises:
            BadResponse: it is not JSON, or not an object.
        """
        value = _decoded(text)
        if value is None:
            text, self._half = _mended(text, self._half)
            value = _decoded(text)
        return _object(value, text)


class Growing:
    """A JSON value that arrives in pieces. Asking whether it is whole costs only what came since the last time."""

    def __init__(self) -> None:
        self.chars = 0
        self._pieces: list[str] = []
        self._followed = 0
        """How many of the pieces the fields below cover."""
        self._depth = 0
        self._is_in_string = False
        self._backslash = ""
        """The last piece ends in a backslash, which belongs to the next character."""
        self._is_closed = False
        self._is_json: bool | None = None
        """The value is closed: anything that follows can only break it."""

    def add(self, piece: str) -> None:
        """Add a piece."""
        self.chars += len(piece)
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """Return everything that came."""
        return "".join(self._pieces)

    def is_whole(self) -> bool:
        """Return whether everything that came is one JSON value. A number longer than any real one is not."""
        for piece in self._pieces[self._followed :]:
            self._follow(piece)
        self._followed = len(self._pieces)
        if not self._is_closed:
            return self.chars <= _SCALAR_CHARS and is_json(self.text)
        if self._is_json is None:
            self._is_json = is_json(self.text)
        return self._is_json

    def _follow(self, piece: str) -> None:
        if self._is_closed:
            self._is_json = self._is_json if not piece.strip() else False
            return
        marks = _marks(self._backslash + piece)
        self._backslash = "\\" if marks[-1:] == ["\\"] else ""
        for mark in marks:
            if mark == '"':
                self._is_in_string = not self._is_in_string
                self._is_closed = not self._is_in_string and self._depth == 0
            elif not self._is_in_string:
                self._depth += (mark in "{[") - (mark in "}]")
                self._is_closed = self._depth <= 0 and mark in "}]"
            if self._is_closed:
                return


def _marks(text: str) -> list[str]:
    """Yield the quotes and brackets in the text, except after a backslash."""
    return _MARK.findall(text)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the object of a whole response.

    Raises:
        BadResponse: it is not JSON, or not an object.
    """
    value = _decoded(body)
    if value is None:
        text, _ = _mended(body.decode("utf-8", "replace"), "")
        value = _decoded(text)
    return _object(value, body)


def is_json(text: str) -> bool:
    """Return whether the text is one whole JSON value. This tells partial arguments from whole ones."""
    try:
        decode_untrusted(text)
    except msgspec.DecodeError:
        return False
    return True


def _decoded(text: str | bytes) -> Any:
    try:
        return decode_untrusted(text)
    except msgspec.DecodeError:
        return None


def _object(value: Any, read: str | bytes) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    shown = read if isinstance(read, str) else read.decode("utf-8", "replace")
    raise BadResponse(wrong_shape("something that is not a JSON object", shown))


def _mended(text: str, before: str) -> tuple[str, str]:
    """Return the text with every half of a character joined with the half `before`, or replaced; and the half at the
    end of a string, which is left out.
    """
    pieces: list[str] = []
    at, left = 0, ""
    for found in _ESCAPE.finditer(text):
        if found["low"] or not (found["high"] or found["lone"]):
            continue
        pieces.append(text[at : found.start()])
        at = found.end()
        if found["lone"] and before and _begins_string(text, found.start()):
            pieces.append(before + found[0])
            before = ""
        elif found["high"] and text.startswith('"', at):
            left = found[0]
        else:
            pieces.append(_REPLACEMENT)
    return "".join((*pieces, text[at:])), left


def _begins_string(text: str, at: int) -> bool:
    return text[at - 1] == '"' and text[at - 2] != "\\"
