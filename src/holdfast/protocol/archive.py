"""The format of an exported session: one JSON object a line, with everything that its journal has.

The first line is a `Head`. Then follow the records, each with its link of the hash chain, then the blobs that they
refer to, each in one or more chunks, and at last an `End`, which proves that the file is whole. Content of files from
before an edit is never in it.
"""

from __future__ import annotations

import msgspec

from holdfast.protocol.codec import StoredRecord

VERSION = 1
LINE_BYTES = 64 << 20
"""No line is longer."""
CHUNK_BYTES = 1 << 20
"""How much of a blob is in one line."""
BLOB_BYTES = 64 << 20
"""No blob is larger."""


class Head(msgspec.Struct, frozen=True, tag_field="kind", tag="holdfast-session"):
    """What the file contains."""

    v: int
    session: str
    key: str
    records: int


class RecordLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="record"):
    """A record, exactly as it is stored."""

    seq: int
    at_ms: int
    awake_ms: int
    epoch: int
    cause: str
    type: str
    v: int
    body: str
    """The encoded event; empty if it was erased."""
    link: str
    """The link of the hash chain at this record, in hex."""
    digest: str = ""
    """The SHA-256 of an erased body, in hex."""


class BlobLine(msgspec.Struct, frozen=True, tag_field="kind", tag="blob"):
    """A chunk of a blob. Chunks of one blob follow each other."""

    sha256: str
    """The hash of the whole blob, in hex."""
    chunk: bytes


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    """The last line."""

    sha256: str
    """The hash of all lines before this one, in hex."""


ArchiveLine = Head | RecordLine | BlobLine | End

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ArchiveLine] = msgspec.json.Decoder(ArchiveLine)


def encode_line(line: ArchiveLine) -> bytes:
    """Return the line with its line break."""
    return _encoder.encode(line) + b"\n"


def decode_line(line: bytes) -> ArchiveLine:
    """Return what a line says.

    Raises:
        ValueError: the line does not have this format.
    """
    try:
        return _decoder.decode(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def line_of(stored: StoredRecord) -> RecordLine:
    """Return the line of a record."""
    return RecordLine(
        stored.seq,
        stored.at_ms,
        stored.awake_ms,
        stored.epoch,
        stored.cause,
        stored.type,
        stored.v,
        stored.body.decode(),
        stored.link.hex(),
        stored.digest.hex(),
    )


def record_of(session: str, line: RecordLine) -> StoredRecord:
    """Return the record of a line.

    Raises:
        ValueError: a hash in it is not hex.
    """
    return StoredRecord(
        session,
        line.seq,
        line.at_ms,
        line.awake_ms,
        line.epoch,
        line.cause,
        line.type,
        line.v,
        line.body.encode(),
        bytes.fromhex(line.link),
        bytes.fromhex(line.digest),
    )
