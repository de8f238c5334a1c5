"""Which blobs an event refers to: they live as long as its record."""

from __future__ import annotations

from holdfast.protocol.events import Event, MessageReceived, ModelCallStarted, PromptBuilt, ToolCallFinished
from holdfast.protocol.request import Enclosed, quoted_in


def blobs_of(event: Event) -> tuple[str, ...]:
    """The SHA-256 of each blob that the event refers to."""
    if type(event) is ModelCallStarted and event.request.base:
        # What a request for work carries, other records name. A record of the work for another model, only this one.
        carried = quoted_in(event.request) if event.purpose != "work" else ()
        return (event.request.base, *[part.blob for part in carried if isinstance(part, Enclosed)])
    if type(event) is ToolCallFinished and (event.result.blob or event.result.attachments):
        named = tuple(each.blob for each in event.result.attachments)
        return (event.result.blob, *named) if event.result.blob else named
    if type(event) is MessageReceived and event.attachments:
        return tuple(each.blob for each in event.attachments)
    if type(event) is PromptBuilt:
        return (event.blob, event.tools) if event.tools else (event.blob,)
    return ()
