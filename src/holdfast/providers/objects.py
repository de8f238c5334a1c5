"""The JSON objects of a response, read without trust: also where a server cut a character in two.

JSON may write a character outside the first plane as two escapes, and servers that count in such halves cut between
them. What the objects mean is the readers' business.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.protocol.untrusted import decode_untrusted
from holdfast.providers.errors import BadAnswer, wrong_shape

_REPLACEMENT = "\\ufffd"
_ESCAPE = re.compile(
    r"\\(?:u(?P<high>d[89ab][0-9a-f]{2})(?P<low>\\ud[c-f][0-9a-f]{2})?|u(?P<lone>d[c-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
"""Any escape, so that a backslash that is itself escaped begins none."""

_MARK = re.compile(r'\\(?:.|\Z)|["{}\[\]]', re.DOTALL)
_SCALAR_CHARS = 32


class Objects:
    """The objects of one stream, in order."""

    def __init__(self) -> None:
        self._half = ""
        """The escape that ended a string, if its other half may begin one of the next object's."""

    def read(self, text: str) -> dict[str, Any]:
        """The next object. Half a character is joined with the other half, is replaced inside a text, and is left
        out at the end of the last one.

        Raises:
            BadAnswer: it is no JSON, or no object.
        """
        value = _decoded(text)
        if value is None:
            text, self._half = _mended(text, self._half)
            value = _decoded(text)
        return _object(value, text)


class Growing:
    """A JSON value that arrives in pieces. To ask whether it is whole costs what came since it was asked last."""

    def __init__(self) -> None:
        self.chars = 0
        self._pieces: list[str] = []
        self._followed = 0
        """How many of the pieces the fields below are about."""
        self._depth = 0
        self._is_in_string = False
        self._backslash = ""
        """One that ended the last piece: the first character of the next belongs to it."""
        self._is_closed = False
        self._is_json: bool | None = None
        """Of the closed value: what comes behind it can only spoil it."""

    def add(self, piece: str) -> None:
        """Another piece."""
        self.chars += len(piece)
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """All that came."""
        return "".join(self._pieces)

    def is_whole(self) -> bool:
        """Whether all that came is one JSON value; a number longer than any real one counts as none."""
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
    """The quotes and brackets in the text; whatever a backslash is before counts as neither."""
    return _MARK.findall(text)


def parse_object(body: bytes) -> dict[str, Any]:
    """The object that came whole.

    Raises:
        BadAnswer: it is no JSON, or no object.
    """
    value = _decoded(body)
    if value is None:
        text, _ = _mended(body.decode("utf-8", "replace"), "")
        value = _decoded(text)
    return _object(value, body)


def is_json(text: str) -> bool:
    """Whether the text is one whole JSON value: how half-received arguments are told from whole ones."""
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
    raise BadAnswer(wrong_shape("something that is no JSON object", shown))


def _mended(text: str, before: str) -> tuple[str, str]:
    """The text with every half of a character joined with the half `before`, or replaced; and the half that ends a
    string, which is left out of it."""
    parts: list[str] = []
    at, left = 0, ""
    for found in _ESCAPE.finditer(text):
        if found["low"] or not (found["high"] or found["lone"]):
            continue
        parts.append(text[at : found.start()])
        at = found.end()
        if found["lone"] and before and _begins_string(text, found.start()):
            parts.append(before + found[0])
            before = ""
        elif found["high"] and text.startswith('"', at):
            left = found[0]
        else:
            parts.append(_REPLACEMENT)
    return "".join((*parts, text[at:])), left


def _begins_string(text: str, at: int) -> bool:
    return text[at - 1] == '"' and text[at - 2] != "\\"
