"""A session's fold as bytes, so that going on with a long one need not begin at its first record.

Derived, small (never the conversation), and void for any other code than the one that folded: a snapshot that is
missing, damaged or of another version costs time and nothing else. Who uses it and its proof are in `journal`.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import msgspec

from holdfast import core, protocol
from holdfast.core.state import State
from holdfast.protocol.rows import Recovered

EVERY_MODEL_CALLS = 25
"""So many turns are folded anew at the most."""
_SHA256_BYTES = 32


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The fold right after an intent of a model call."""

    state: State
    link: bytes
    """Of the hash chain, at `state.seq`."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def is_due(state: State) -> bool:
    """Whether a commit that ends with an intent of a model call is to leave a snapshot."""
    return state.models.started % EVERY_MODEL_CALLS == 0


def packed(snapshot: Snapshot) -> bytes:
    """The snapshot behind the hash of itself and of the code that made it."""
    body = _encoder.encode(snapshot)
    return _sealed(body) + body


def unpacked(found: Recovered, session: str) -> Snapshot | None:
    """The session's snapshot, which the records follow; None when there is none, it is damaged, or other code made
    it."""
    seal, body = found.snapshot[:_SHA256_BYTES], found.snapshot[_SHA256_BYTES:]
    if not found.after_seq or seal != _sealed(body):
        return None
    try:
        snapshot = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    state = snapshot.state
    return snapshot if (state.session, state.seq) == (session, found.after_seq) else None


def holds(found: Recovered, state: State, link: bytes) -> bool:
    """Whether a snapshot is void for this code, or the very state that its records fold to, at that link."""
    snapshot = unpacked(found, state.session)
    return snapshot is None or (snapshot.state, snapshot.link) == (state, link)


def _sealed(body: bytes) -> bytes:
    return hashlib.sha256(_folded_by() + body).digest()


@functools.cache
def _folded_by() -> bytes:
    """A hash of the code that makes a state of records; where no code can be read, of nobody else's."""
    modules = [
        file for package in (core, protocol) for file in sorted(Path(package.__path__[0]).glob("*.py"))
    ]
    if not modules:
        return os.urandom(_SHA256_BYTES)
    return hashlib.sha256(b"".join(module.read_bytes() for module in modules)).digest()
