"""Reads the content of attachments for requests."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.context.attachments import content_of
from holdfast.context.conversation import Conversation
from holdfast.protocol.ports import Blobs
from holdfast.protocol.request import Enclosed


async def contents_of(blobs: Blobs, needed: Iterable[Enclosed]) -> dict[Enclosed, str]:
    """Return the content of each.

    Raises:
        StorageCorrupt: a blob is missing or was changed.
    """
    return {each: content_of(each, await blobs.get(each.blob)) for each in needed}


async def fill(conversation: Conversation, blobs: Blobs) -> None:
    """Give a conversation the content that it does not have. Raises what `contents_of` raises."""
    if missing := conversation.missing():
        conversation.fill(await contents_of(blobs, missing))
