"""How much of each kind of text a request has. Models count the tokens of each kind at another rate.

`context.kinds` counts the bytes, and `core.measure` learns the rates.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import astuple


class Kinds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bytes of a request, by kind."""

    base: int = 0
    """All before the messages: the system prompt and the tools."""
    prose: int = 0
    code: int = 0
    json: int = 0
    """JSON inside a message, and the arguments of calls."""
    cjk: int = 0
    """Characters of three or four bytes: Chinese, Japanese, Korean and other scripts without short codes."""
    digits: int = 0
    """Wherever they are. Some models take each digit for a token, so a log has three times the tokens of prose."""
    media: int = 0
    """Images and documents, by their weight (`messages.Attachment`)."""


NO_KINDS = Kinds()


def total(each: Iterable[Kinds]) -> Kinds:
    """Return the sum."""
    return Kinds(*map(sum, zip(astuple(NO_KINDS), *map(astuple, each), strict=True)))
