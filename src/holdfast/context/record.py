"""A record of the work, for the request of a side call to a model that did not do the work."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.context.conversation import Edit
from holdfast.context.kinds import kinds_in
from holdfast.context.pieces import Unsent, as_fresh, found_in
from holdfast.protocol.kinds import NO_KINDS
from holdfast.protocol.messages import Message, Text
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import Enclosed

LEFT_OUT = "[earlier messages are left out]"


def record_of(sent: Sequence[bytes], most_bytes: int) -> str:
    """Return messages as text, one a line: the first one, which is the task, and as many of the last ones as fit."""
    lines = [each.decode(errors="replace").strip() for each in sent]
    head = lines[0].encode()[:most_bytes].decode(errors="ignore")
    room, first = most_bytes - len(head.encode()), len(lines)
    while first > 1 and (room := room - len(lines[first - 1].encode()) - 1) >= 0:
        first -= 1
    return "\n".join([head, *([LEFT_OUT] if first > 1 else []), *lines[first:]])


def request_of(wire: Wire, base: bytes, record: tuple[Enclosed, str], words: str) -> Edit:
    """Return the request with the record and these words. It begins anew."""
    message = Message("user", (Text(record[1]), Text(words)), "data")
    elements = [bytes(each) for each in wire.message(message)]
    rest = [as_fresh(Unsent("s", 0, each, found_in(each, [record]))) for each in elements]
    chunks = (base, b",".join(elements))
    size_bytes = sum(map(len, chunks))
    return Edit(
        keep=0,
        rest=tuple(rest),
        chunks=chunks,
        size_bytes=size_bytes,
        fresh_bytes=size_bytes,
        kinds=kinds_in([(each, 0) for each in elements], replace(NO_KINDS, base=len(base))),
        hasher=hashlib.sha256(b"".join(chunks)),
    )
