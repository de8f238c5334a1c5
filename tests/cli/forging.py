"""Exported files taken apart, changed, and put together again with right links and a right last line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.protocol import archive as a
from holdfast.protocol.codec import FIRST_LINK, StoredRecord, decode, encode, link_after
from holdfast.protocol.events import Event


class Parts(NamedTuple):
    """What an exported file holds."""

    head: a.Head
    stored: list[StoredRecord]
    blobs: dict[str, bytes]


def parts_of(file: Path) -> Parts:
    head, *lines = (a.decode_line(line) for line in file.read_bytes().splitlines(keepends=True))
    assert isinstance(head, a.Head)
    stored = [a.record_of(head.session, line) for line in lines if isinstance(line, a.RecordLine)]
    return Parts(head, stored, {line.sha256: line.chunk for line in lines if isinstance(line, a.BlobLine)})


def forge(file: Path, parts: Parts) -> Path:
    """Write a file whose links and last line are right. Its first line counts what `parts_of` found."""
    link, lines = FIRST_LINK, [a.encode_line(parts.head)]
    for each in parts.stored:
        link = link_after(link, each.seq, each)
        lines.append(a.encode_line(a.line_of(replace(each, link=link))))
    lines += [a.encode_line(a.BlobLine(sha256, content)) for sha256, content in parts.blobs.items()]
    whole = b"".join(lines)
    file.write_bytes(whole + a.encode_line(a.End(hashlib.sha256(whole).hexdigest())))
    return file


def with_events(parts: Parts, change: Callable[[Event], Event]) -> Parts:
    records = [decode(each) for each in parts.stored]
    return parts._replace(
        stored=[encode(replace(record, event=change(record.event)), FIRST_LINK) for record in records]
    )


def with_fields(parts: Parts, fields: Mapping[str, Any]) -> Parts:
    return parts._replace(stored=[replace(each, **fields) for each in parts.stored])
