"""Counts with their nouns, and lengths of time, for every message that tells one."""

from __future__ import annotations


def counted(count: int, name: str) -> str:
    """Return a count with its noun: `1 turn`, `12 turns`, `5,000 tokens`."""
    return f"{count:,} {name}" + ("" if count == 1 else "s")


def lasting(duration_ms: int) -> str:
    """Return a length of time in its two largest units: `45 s`, `30 h`, `2 h 5 min`, `3 d 4 h`. It is never too
    short.
    """
    seconds = -(-duration_ms // 1000)
    for unit_s, unit, part_s, part in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit_s:
            whole, rest = divmod(-(-seconds // part_s), unit_s // part_s)
            return f"{whole} {unit} {rest} {part}" if rest else f"{whole} {unit}"
    return f"{seconds} s"
