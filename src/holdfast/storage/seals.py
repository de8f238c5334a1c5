"""Seals: they prove what no hash chain does (commands that wait, holders of leases, snapshots), and whose it is.

A seal stands before the content in its column. Where a row lies does not belong here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_SHA256_BYTES = 32


def sealed(content: bytes, *about: str | int) -> bytes:
    """The content behind its seal, which also proves what stands beside it in the row."""
    return _seal(content, about) + content


def unsealed(kept: object, *about: object) -> bytes | None:
    """The content; None where it, or what stands beside it, is not what was sealed."""
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
