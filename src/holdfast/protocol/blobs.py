"""Which blobs an event refers to: they live as long as its record."""

from __future__ import annotations

from holdfast.protocol.events import Event, MessageReceived, ModelCallStarted, PromptBuilt, ToolCallFinished
from holdfast.protocol.request import Enclosed, quoted_in
from holdfast.protocol.tools import CallResult


def blobs_of(event: Event) -> tuple[str, ...]:
    """The SHA-256 of each blob that the event refers to."""
    if type(event) is ModelCallStarted and event.request.base:
        # What a request for work carries, other records name. A record of the work for another model, only this one.
        carried = quoted_in(event.request) if event.purpose != "work" else ()
        return (event.request.base, *[part.blob for part in carried if isinstance(part, Enclosed)])
    if type(event) is ToolCallFinished:
        result = event.result
        if result.traffic is not None and result.traffic.blob:
            return (*_of_result(result), result.traffic.blob)
        return _of_result(result) if result.blob or result.attachments else ()
    if type(event) is MessageReceived and event.attachments:
        return tuple(each.blob for each in event.attachments)
    if type(event) is PromptBuilt:
        return (event.blob, event.tools) if event.tools else (event.blob,)
    return ()


def _of_result(result: CallResult) -> tuple[str, ...]:
    named = tuple(each.blob for each in result.attachments)
    return (result.blob, *named) if result.blob else named
