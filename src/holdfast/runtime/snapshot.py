"""Snapshots: the fold of a session as bytes, so that a long one does not start at its first record.

A snapshot is derived, small (never the conversation), and void for any code other than the one that made it. If it
is missing, damaged or of another version, that only costs time. `fold` uses and proves it.
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
"""The most turns that are folded again."""
_SHA256_BYTES = 32


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The fold right after the intent of a model call."""

    state: State
    link: bytes
    """The link of the hash chain at `state.seq`."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def is_due(state: State) -> bool:
    """Return whether a commit that ends with the intent of a model call leaves a snapshot."""
    return state.models.started % EVERY_MODEL_CALLS == 0


def packed(snapshot: Snapshot) -> bytes:
    """Return the snapshot behind a hash of the code that made it. The store proves that it is what was written."""
    return _folded_by() + _encoder.encode(snapshot)


def unpacked(found: Recovered, session: str) -> Snapshot | None:
    """Return the snapshot that the records follow; None without one, or if other code made it."""
    code, body = found.snapshot[:_SHA256_BYTES], found.snapshot[_SHA256_BYTES:]
    if not found.after_seq or code != _folded_by():
        return None
    try:
        snapshot = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    state = snapshot.state
    return snapshot if (state.session, state.seq) == (session, found.after_seq) else None


def is_sound(found: Recovered, state: State, link: bytes) -> bool:
    """Return whether a snapshot is void for this code, or is exactly the fold of its records at that link."""
    snapshot = unpacked(found, state.session)
    return snapshot is None or (snapshot.state, snapshot.link) == (state, link)


@functools.cache
def _folded_by() -> bytes:
    """Return a hash of the code that folds records. If no code can be read, it matches no other."""
    modules = [
        file for package in (core, protocol) for file in sorted(Path(package.__path__[0]).glob("*.py"))
    ]
    if not modules:
        return os.urandom(_SHA256_BYTES)
    return hashlib.sha256(b"".join(module.read_bytes() for module in modules)).digest()
