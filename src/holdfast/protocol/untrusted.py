"""JSON that a model, a server or a person wrote, read without trust in its shape.

What it should look like, and what becomes of it when it does not, is the readers' business.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_NESTING = 128
"""Objects and lists inside one another. Encoders, validators and views go down level by level, and each of them would
give up at a depth of its own."""
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[][{}]', re.DOTALL)
"""An unterminated string matches to the end of the text. Otherwise the search would start again at each quote, which
is quadratic."""
_SHOWN_CHARS = 60


def decode_untrusted(text: str | bytes) -> Any:
    """The value in a JSON text.

    Raises:
        msgspec.DecodeError: it is not JSON, not UTF-8, or nested deeper than `MAX_NESTING`.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None
    if (
        len(text) > MAX_NESTING
        and text.count("[") + text.count("{") > MAX_NESTING
        and _nesting(text) > MAX_NESTING
    ):
        raise msgspec.DecodeError(f"it is nested deeper than {MAX_NESTING} levels")
    try:
        return msgspec.json.decode(text)
    except UnicodeEncodeError:  # a lone surrogate
        raise msgspec.DecodeError("it contains what no text may contain") from None


def decode_exact(text: str | bytes) -> Any:
    """The value in a JSON text that decides something: a text that names a member twice says two things.

    Raises:
        msgspec.DecodeError: it is not JSON as above, or an object in it names a member twice.
    """
    value = decode_untrusted(text)
    if isinstance(value, dict | list):
        _members_once.decode(text if isinstance(text, str) else text.decode())
    return value


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                # Nobody masks a part of a secret.
                shown = repr(name) if len(name) <= _SHOWN_CHARS else "a long member"
                raise msgspec.DecodeError(f"an object names {shown} twice")
            names.add(name)


def _nothing(_: str) -> None:
    """Numbers are not read: Python limits the digits of a whole one."""


_members_once = json.JSONDecoder(object_pairs_hook=_once, parse_int=_nothing, parse_float=_nothing)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        depth += (match[0] in "[{") - (match[0] in "]}")
        deepest = max(deepest, depth)
    return deepest
