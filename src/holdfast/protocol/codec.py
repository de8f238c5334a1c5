"""Encodes events to bytes, and decodes them. The only module that knows the format of a journal (JSON without
defaults).
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, get_args

import msgspec

from holdfast.protocol.commands import Command
from holdfast.protocol.events import EVENT_TYPES, VERSIONS, Event, Record, Trigger, TriggerKind
from holdfast.protocol.upcast import upcast

_encoder = msgspec.json.Encoder()
_TYPES = {cls.__name__: cls for cls in EVENT_TYPES}
_decoders = {name: msgspec.json.Decoder(cls) for name, cls in _TYPES.items()}

_TRIGGERS = frozenset(get_args(TriggerKind))

_command_decoder = msgspec.json.Decoder(Command)

FIRST_LINK = bytes(32)
"""The link before the first record of a journal."""

LOST = "Lost"
"""The type of a record without a body, which a repair writes where it could read none."""


Unreadable = Literal["newer", "damaged", "erased"]
"""Why a stored event cannot be read. newer: of an unknown type or a newer version. erased: only its digest was kept.
"""


class UnreadableEvent(Exception):
    """This version cannot read a stored event."""

    def __init__(self, message: str, why: Unreadable) -> None:
        super().__init__(message)
        self.why = why


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as it is stored: its event is encoded, and its link of the hash chain is beside it."""

    session: str
    seq: int
    at_ms: int
    awake_ms: int
    epoch: int
    cause: str
    """The kind of the trigger and its name, separated by a space."""
    type: str
    v: int
    body: bytes
    """Empty if it was erased. An encoded event is never empty."""
    link: bytes
    digest: bytes = b""
    """The SHA-256 of an erased body; empty while the body exists."""

    @property
    def is_erased(self) -> bool:
        """Return whether the body was erased. The record still proves its place."""
        return not self.body

    @property
    def body_digest(self) -> bytes:
        """Return the digest of the body for the hash chain."""
        return digest_of(self.body) if self.body else self.digest


Selected = tuple[int, str, int, bytes]
"""What `decode_event` needs of a stored record, after its seq: (seq, type, v, body)."""


def encode(record: Record, previous_link: bytes) -> StoredRecord:
    """Return the stored form of a record that follows the record with `previous_link`."""
    event, kind, of = record.event, record.cause.kind, record.cause.name
    cause = f"{kind} {of}" if of else kind
    name, version, body = type(event).__name__, VERSIONS[type(event)], _encoder.encode(event)
    link = chain_link(
        previous_link,
        record.seq,
        record.at_ms,
        record.awake_ms,
        record.epoch,
        cause,
        name,
        version,
        hashlib.sha256(body).digest(),
    )
    return StoredRecord(
        record.session,
        record.seq,
        record.at_ms,
        record.awake_ms,
        record.epoch,
        cause,
        name,
        version,
        body,
        link,
    )


def chain_link(
    previous_link: bytes,
    seq: int,
    at_ms: int,
    awake_ms: int,
    epoch: int,
    cause: str,
    type_: str,
    v: int,
    digest: bytes,
) -> bytes:
    """Return the SHA-256 over the previous link and the whole record. It reveals a flipped bit, a cut and a
    reordering.

    The body counts by its digest, so that a record with an erased body still links the chain. The
    session's id does not count, because a branch shares its parent's records.
    """
    head = f"{seq}\0{at_ms}\0{awake_ms}\0{epoch}\0{cause}\0{type_}\0{v}\0".encode()
    return hashlib.sha256(previous_link + head + digest).digest()  # one call: faster than three updates


def digest_of(body: bytes) -> bytes:
    """Return the SHA-256 of a body."""
    return hashlib.sha256(body).digest()


def link_after(previous_link: bytes, seq: int, stored: StoredRecord) -> bytes:
    """Return the link of the stored record, erased or not, as the record with that seq after `previous_link`."""
    return chain_link(
        previous_link,
        seq,
        stored.at_ms,
        stored.awake_ms,
        stored.epoch,
        stored.cause,
        stored.type,
        stored.v,
        stored.body_digest,
    )


def is_linked(previous_link: bytes, stored: StoredRecord) -> bool:
    """Return whether the stored record is unchanged, erased or not, and follows the record with `previous_link`."""
    return stored.link == link_after(previous_link, stored.seq, stored)


def decode(stored: StoredRecord) -> Record:
    """Decode a record to the current version of its event.

    Raises:
        UnreadableEvent: the type is unknown, the version newer than this code, or the body damaged or erased.
    """
    kind, _, name = stored.cause.partition(" ")
    if kind not in _TRIGGERS:
        raise UnreadableEvent(f"a {stored.type} record is damaged: its cause is {kind!r}", "damaged")
    return Record(
        stored.session, stored.seq, stored.at_ms, stored.epoch, Trigger(kind, name),  # type: ignore[arg-type]
        decode_event(stored.type, stored.v, stored.body), stored.awake_ms,
    )  # fmt: skip


def decode_event(type_: str, v: int, body: bytes) -> Event:
    """Return the event in a body of that type and version. Raises what `decode` raises."""
    cls = _TYPES.get(type_)
    try:
        if cls is not None and v == VERSIONS[cls] and body:
            return _decoders[type_].decode(body)
        return _upcast(type_, v, body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(f"a {type_} record is damaged: {error}", "damaged") from None


def _upcast(type_: str, v: int, body: bytes) -> Event:
    if type_ == LOST:
        raise UnreadableEvent("this record was damaged, and a repair could not save it", "erased")
    if not body:
        raise UnreadableEvent(f"the body of this {type_} record was erased", "erased")
    cls = _TYPES.get(type_)
    if v < 1:
        raise UnreadableEvent(f"a {type_} record is damaged: its version is {v}", "damaged")
    if cls is None or v > VERSIONS[cls]:
        raise UnreadableEvent(
            f"this version of Holdfast does not know {type_} version {v}: upgrade to continue", "newer"
        )
    return msgspec.convert(upcast(type_, v, VERSIONS[cls], msgspec.json.decode(body)), cls)


def encode_json(value: object) -> bytes:
    """Encode any value of the vocabulary as JSON: inbox bodies, rows, output for scripts."""
    return _encoder.encode(value)


def decode_command(body: bytes) -> Command:
    """Return the command in an inbox entry.

    Raises:
        UnreadableEvent: a newer version wrote it. The store proves that it is what was accepted.
    """
    try:
        return _command_decoder.decode(body)
    except msgspec.DecodeError:
        raise UnreadableEvent("a newer version of Holdfast wrote it", "newer") from None


def to_builtins(event: Event) -> dict[str, Any]:
    """Return the event as plain data, for people and scripts."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain


def json_text(text: str) -> bytes:
    """Return a text as it is inside a JSON string, without the quotes: `request.Piece` quotes a record so."""
    return _encoder.encode(text)[1:-1]
