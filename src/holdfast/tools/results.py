"""Turns what a tool function returned or raised into what the model reads."""

from __future__ import annotations

import math
import traceback
from pathlib import PurePath
from typing import Any

import msgspec

from holdfast.errors import ToolError, ToolUnavailable
from holdfast.protocol.counts import counted
from holdfast.protocol.media import MEDIA_BYTES, is_whole, media_type
from holdfast.protocol.ports import Medium, RawResult

MAX_MEDIA = 20
"""The most images and files in the result of one call."""
_PLAIN = frozenset({str, int, float, bool, dict, list, tuple, type(None)})
"""Types of values that are not bytes. Most results have no others."""
_TOO_MUCH = (
    f"It ran, but its result cannot be shown: at most {MAX_MEDIA} images or PDFs of {MEDIA_BYTES:,} bytes."
)
_TYPES = "A tool may return PNG, JPEG, GIF or WebP images, PDFs, and UTF-8 text."

"""The runner redacts this much, and keeps its end. A text that was cut shorter could show a part of a secret."""


class Unwritable(ToolError):
    """A result cannot be written as JSON. The message says why."""


def result_of(value: object) -> RawResult:
    """Return a function's value as a result. Bytes are an image, a PDF or text. So is each item of a list that has
    bytes among its items.

    Raises:
        Unwritable: a part has no such type, and cannot be written as JSON.
    """
    if isinstance(value, str):
        return RawResult("ok", value)
    parts = [(each, _content(each)) for each in (value if isinstance(value, list | tuple) else (value,))]
    if all(content is None for _, content in parts):
        return RawResult("ok", text_of(value))
    texts: list[str] = []
    media: list[Medium] = []
    for part, content in parts:
        kind = media_type(content) if content is not None else None
        if content is None:
            texts.append(text_of(part))
        elif kind is None:
            raise Unwritable(
                f"It ran, but it returned {counted(len(content), 'byte')} of another type. {_TYPES}"
            )
        elif kind == "text/plain":
            texts.append(content.decode())
        else:
            texts.append(f"[{kind}, {counted(len(content), 'byte')}: attached]")
            media.append(Medium(kind, content))
    return RawResult("ok", "\n".join(texts), media=tuple(media))


def bounded(result: RawResult) -> RawResult:
    """Return the result, or an error if its media are too large, too many, not whole, or not of their type."""
    if not result.media:
        return result
    is_large = any(len(each.content) > MEDIA_BYTES for each in result.media)
    is_wrong = any(media_type(each.content) != each.media_type for each in result.media)
    if is_large or is_wrong or len(result.media) > MAX_MEDIA:
        return RawResult("error", _TOO_MUCH, trust=result.trust)
    broken = [each.media_type for each in result.media if not is_whole(each.media_type, each.content)]
    if not broken:
        return result
    # A provider would refuse it, and with it every later request of the session.
    why = f"It ran, but its result cannot be shown: a part ({broken[0]}) has no whole header, or no end."
    return RawResult("error", why, trust=result.trust)


def text_of(value: object) -> str:
    """Return a function's value as the model reads it: text unchanged, nothing for None, otherwise JSON.

    Raises:
        Unwritable: it is neither text nor can it be written as JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
        if "null" in text:  # what it writes for a number that JSON lacks
            _check_finite(value)
        return text
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = f"It ran, but its result ({type(value).__name__}) cannot be written as JSON: {error}"
        raise Unwritable(why) from error


def _check_finite(value: object) -> None:
    """Raise `ValueError` if a number in the value is not finite."""
    rest = [msgspec.to_builtins(value, enc_hook=_plain)]
    while rest:
        each = rest.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"JSON has no number {each}")
        rest += each.values() if isinstance(each, dict) else each if isinstance(each, list | tuple) else ()


def failed(name: str, error: Exception) -> RawResult:
    """Return the result of a call that raised. Only the text of a `ToolError` is for the model."""
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, ToolError):
        text = str(error) or f"{name} failed, and did not say why."
        is_unavailable = isinstance(error, ToolUnavailable)
        return RawResult("error", text, detail=detail, is_unavailable=is_unavailable)
    text = f"{name} failed with {type(error).__name__}. This is a bug of the tool, not of the call."
    return RawResult("error", text, detail=detail)


def _content(value: object) -> bytes | None:
    """Return the bytes of a value that is bytes, or that can show itself as a PNG image; None for others."""
    if type(value) in _PLAIN:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    show = getattr(value, "_repr_png_", None)
    shown = show() if callable(show) and not isinstance(value, type) else None
    return shown if isinstance(shown, bytes) else None


def _plain(value: Any) -> object:
    """Return a value of another type in types that JSON has."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "__pydantic_serializer__"):
        return value.__pydantic_serializer__.to_python(value, mode="json")
    raise TypeError(f"there is no JSON for {type(value).__name__}")
