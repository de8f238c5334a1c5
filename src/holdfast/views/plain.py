"""Events as plain data for scripts: the same shape while they happen and when they are read later.

What stands beside an event on its line (seq, time, trace id) is the business of who prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.context.requests import fragment
from holdfast.protocol.codec import to_builtins
from holdfast.protocol.events import Event, Fresh, ModelCallStarted, Request, ToolCallFinished


def plain(event: Event, texts: Mapping[int, str], output: str | None) -> dict[str, Any]:
    """The event with text that is kept elsewhere filled in: the fresh messages of a request stand whole, a
    tool's clipped result has the whole output beside it as `full_text`.

    Args:
        texts: What a request quotes, by seq (see `quotes`).
        output: The whole output of a tool (see `output_of`); None where it is damaged.

    Raises:
        StorageCorrupt: a request quotes what is not there.
    """
    data = to_builtins(event)
    match event:
        case ModelCallStarted(request=Request(rest=rest)) if rest:
            for each, shown in zip(rest, data["request"]["rest"], strict=True):
                if isinstance(each, Fresh):
                    shown["piece"] = fragment(each.piece, texts).decode()
        case ToolCallFinished(result=result) if result.blob:
            data["result"]["full_text"] = output
    return data


def quotes(event: Event) -> list[int]:
    """The records that a request quotes, by seq; empty for every other event."""
    if not isinstance(event, ModelCallStarted):
        return []
    fresh = [each for each in event.request.rest if isinstance(each, Fresh)]
    return [part for each in fresh for part in each.piece if isinstance(part, int)]


def output_of(event: Event) -> str:
    """The blob with the whole output of a tool; empty where the event holds all of it."""
    return event.result.blob if isinstance(event, ToolCallFinished) else ""
