"""Seals prove content outside the hash chain (waiting commands, holders of leases, snapshots), and its owner.

A column has the seal, followed by the content. This module does not know where a row is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_SHA256_BYTES = 32


def sealed(content: bytes, *about: str | int) -> bytes:
    """Return the content with its seal before it. The seal also proves the other columns of the row (`about`)."""
    return _seal(content, about) + content


def unsealed(kept: object, *about: object) -> bytes | None:
    """Return the content; None if it, or another column that its seal proves, has changed."""
    if not isinstance(kept, bytes):
        return None
    content = kept[_SHA256_BYTES:]
    return content if kept[:_SHA256_BYTES] == _seal(content, about) else None


def seal_of_term(from_ms: int, until_ms: int) -> bytes:
    """The seal of a lease's term: the same for all that are renewed together, whose holders stay as they are."""
    return sealed(b"", "term", from_ms, until_ms)


def holder_in(
    kept: object, seal: object, session: str, epoch: object, term: Sequence[object]
) -> bytes | None:
    """The holder of a lease; None where it, or its term, is not what was sealed."""
    holder = unsealed(kept, "lease", session, epoch)
    return holder if unsealed(seal, "term", *term) is not None else None


def _seal(content: bytes, about: tuple[object, ...]) -> bytes:
    head = "".join(f"{each}\0" for each in about).encode(errors="replace")
    return hashlib.sha256(head + content).digest()
