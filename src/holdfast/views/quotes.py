"""What a record says in words, who said it, and how far that is to be trusted: what can be quoted from a journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.context.handles import LOOKING_BACK
from holdfast.protocol import events as e
from holdfast.protocol.messages import Attachment, calls_of, text_of
from holdfast.protocol.trust import Trust


class Enclosure(msgspec.Struct, frozen=True):
    """A content that a record names and does not have: a whole output, an attachment."""

    blob: str
    trust: Trust
    name: str
    is_text: bool


class Words(msgspec.Struct, frozen=True):
    """What a record says."""

    origin: str
    """Who said it. Of a tool only the call is known; `tool_of` has its name."""
    trust: Trust
    text: str
    enclosures: tuple[Enclosure, ...] = ()
    call_id: str = ""


def words_of(event: e.Event) -> Words | None:
    """Return what an event says; None for those without words."""
    read = _READ.get(type(event))
    return read(event) if read is not None else None


def tool_of(responded: e.Responded, call_id: str) -> str:
    """Return the tool that a response calls by that id; empty if it does not."""
    return next((call.name for call in calls_of(responded.parts) if call.call_id == call_id), "")


def _message(event: e.MessageReceived) -> Words:
    return Words(event.sender or "user", "user", event.text, _attached(event.attachments))


def _response(event: e.Responded) -> Words:
    calls = [
        f"{each.name} {each.arguments}" for each in calls_of(event.parts) if each.name not in LOOKING_BACK
    ]
    return Words(
        "assistant", "assistant", "\n".join([text for text in (text_of(event.parts), *calls) if text])
    )


def _result(event: e.ToolCallFinished) -> Words:
    result = event.result
    whole = (Enclosure(result.blob, result.trust, "output", True),) if result.blob else ()
    return Words("tool", result.trust, result.text, (*whole, *_attached(result.attachments)), event.call_id)


def _attached(attachments: tuple[Attachment, ...]) -> tuple[Enclosure, ...]:
    return tuple(
        Enclosure(each.blob, each.trust, each.name or each.origin, each.media_type == "text/plain")
        for each in attachments
    )


_READ: dict[type[e.Event], Callable[[Any], Words]] = {
    e.MessageReceived: _message,
    e.Responded: _response,
    e.ModelCallCut: lambda event: Words("assistant", "assistant", event.text),
    e.ToolCallFinished: _result,
    e.ToolCallRefused: lambda event: Words("holdfast", "data", event.failure.message),
    e.ToolCallAbandoned: lambda event: Words("holdfast", "data", event.text),
    e.NoteAdded: lambda event: Words("holdfast", "data", event.text),
    e.ApprovalResolved: lambda event: Words(event.by or "user", "user", event.note),
}

WORDED = tuple(sorted(event.__name__ for event in _READ))
"""The types of records with words."""
