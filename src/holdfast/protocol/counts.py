"""A count with its noun, for every message that tells one."""

from __future__ import annotations


def counted(count: int, name: str) -> str:
    """Return a count with its noun: `1 turn`, `12 turns`, `5,000 tokens`."""
    return f"{count:,} {name}" + ("" if count == 1 else "s")
