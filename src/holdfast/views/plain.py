"""Events as plain data for scripts, in the same shape while they happen and when they are read later.

The caller adds the seq, time and trace id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.context.requests import fragment
from holdfast.protocol.codec import to_builtins
from holdfast.protocol.events import Event, Fresh, ModelCallStarted, Request, ToolCallFinished


def plain(event: Event, texts: Mapping[int, str], output: str | None) -> dict[str, Any]:
    """Return an event with the text that is stored elsewhere: whole new messages of a request, and the whole output
    of a tool as `full_text`.

    Args:
        texts: The texts that a request quotes, by seq (see `quotes`).
        output: The whole output of the tool (see `output_of`); None if it is damaged.

    Raises:
        StorageCorrupt: A quoted record is missing.
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
    """Return the seqs of the records that a request quotes; empty for other events."""
    if not isinstance(event, ModelCallStarted):
        return []
    fresh = [each for each in event.request.rest if isinstance(each, Fresh)]
    return [part for each in fresh for part in each.piece if isinstance(part, int)]


def output_of(event: Event) -> str:
    """Return the blob with the whole output of a tool; empty if the event holds all of it."""
    return event.result.blob if isinstance(event, ToolCallFinished) else ""
