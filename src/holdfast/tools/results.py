"""Turns what a tool function returned or raised into what the model reads."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Any

import msgspec

from holdfast.errors import ToolError
from holdfast.protocol.ports import RawResult

_DETAIL_CHARS = 16_384
"""The runner redacts this much, and keeps its end. A text that was cut shorter could show a part of a secret."""


class Unwritable(ToolError):
    """A result cannot be written as JSON. The message says why."""


def text_of(value: object) -> str:
    """Return a function's value as the model reads it: text unchanged, nothing for None, otherwise JSON.

    Raises:
        Unwritable: it is neither text nor can it be written as JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        raise Unwritable("It ran, but it returned bytes. A tool must return text, or values that JSON has.")
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = f"It ran, but its result ({type(value).__name__}) cannot be written as JSON: {error}"
        raise Unwritable(why) from error


def failed(name: str, error: Exception) -> RawResult:
    """Return the result of a call that raised. Only the text of a `ToolError` is for the model."""
    detail = "".join(traceback.format_exception(error))[-_DETAIL_CHARS:]
    if isinstance(error, ToolError):
        return RawResult("error", str(error) or f"{name} failed, and did not say why.", detail=detail)
    text = f"{name} failed with {type(error).__name__}. This is a bug of the tool, not of the call."
    return RawResult("error", text, detail=detail)


def _plain(value: Any) -> object:
    """Return a value of another type in types that JSON has."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "__pydantic_serializer__"):
        return value.__pydantic_serializer__.to_python(value, mode="json")
    raise TypeError(f"there is no JSON for {type(value).__name__}")
