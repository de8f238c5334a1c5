"""No progress, first cut: the same call with the same arguments and the same result, turn after turn."""

from __future__ import annotations

import hashlib

from holdfast.core.state import Call

Repeats = tuple[tuple[str, int], ...]


def signature(call: Call, result: str) -> str:
    """What makes two calls the same: name, arguments, and the whole of what they came to."""
    told = f"{call.name}\0{call.arguments}\0{result}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(told).hexdigest()[:32]


def counted(repeats: Repeats, calls: tuple[Call, ...]) -> Repeats:
    """The repeats after a turn with these calls: a call that did not come again is forgotten."""
    before = dict(repeats)
    return tuple((sign, before.get(sign, 0) + 1) for sign in dict.fromkeys(call.signature for call in calls))


def longest(repeats: Repeats) -> int:
    """For how many turns in a row some call has come."""
    return max((count for _, count in repeats), default=0)
