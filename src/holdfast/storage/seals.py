"""Seals: they prove what no hash chain does (commands that wait, holders of leases, snapshots), and whose it is.

A seal stands before the content in its column. Where a row lies does not belong here.
"""

from __future__ import annotations

import hashlib

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


def _seal(content: bytes, about: tuple[object, ...]) -> bytes:
    head = "".join(f"{each}\0" for each in about).encode(errors="replace")
    return hashlib.sha256(head + content).digest()
