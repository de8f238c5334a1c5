"""Attachments inside requests: a record names them, a request carries their content.

Pure. The caller reads the blobs.
"""

from __future__ import annotations

import base64

from holdfast.protocol.messages import Attachment, Media, Part, Text
from holdfast.protocol.request import Enclosed


def enclosed(attachment: Attachment) -> Enclosed:
    """Return how a request quotes the content."""
    return Enclosed(attachment.blob, attachment.weight_bytes)


def content_of(quoted: Enclosed, blob: bytes) -> str:
    """Return the content of a blob as a request quotes it: a text as it is, media in base64."""
    return base64.b64encode(blob).decode() if quoted.weight_bytes else blob.decode("utf-8", "replace")


def parts_of(attachment: Attachment, content: str) -> tuple[Part, ...]:
    """Return the parts of a message that carry the attachment, under its head."""
    if attachment.media_type == "text/plain":
        return (Text(f"{attachment.head}\n{content}"),)
    return Text(attachment.head), Media(attachment.name, attachment.media_type, content)
