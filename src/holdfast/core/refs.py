"""The ids that providers give to calls, as far as requests may send them back.

A server may count anew in each response, and a model may repeat an id that it has read. Then a request would name two
calls alike. So a call whose id came before goes without it, and requests name it by our own id.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence

from holdfast.protocol.messages import ToolCall

KEPT = 4_096
"""How many of the last ids are known. A request has room for fewer calls."""
_OURS = re.compile(r"t\d+_c\d+")
_REPLACED = re.compile(r"[^a-zA-Z0-9_-]")
"""What servers refuse in an id, so that requests write something else."""


def own_refs(calls: Iterable[ToolCall], known: Sequence[int]) -> list[str]:
    """Return the id of each call that no call had before it; empty for all other calls."""
    refs, seen = [], set[int]()
    for call in calls:
        mark = _mark(call.ref)
        is_own = bool(mark) and mark not in seen and mark not in known
        refs.append(call.ref if is_own else "")
        seen.add(mark)
    return refs


def known_after(known: tuple[int, ...], calls: Iterable[ToolCall]) -> tuple[int, ...]:
    """Return the marks of the known ids, after a response with these calls."""
    return (*known, *[_mark(call.ref) for call in calls if call.ref])[-KEPT:]


def _mark(ref: str) -> int:
    """Return a number for the id as requests write it; 0 if it cannot be sent back. Two ids that share one by chance
    only lose the later one.
    """
    written = _REPLACED.sub("_", ref)
    return 0 if not ref or _OURS.fullmatch(written) else zlib.crc32(written.encode())
