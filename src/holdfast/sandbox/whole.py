"""Asks a server that knows a secret for plain and whole responses, and refuses others: functions of heads, and
nothing else.

Compressed or in pieces, a response could bring a secret back where nobody finds it.
"""

from __future__ import annotations

from collections.abc import Iterable

Headers = tuple[tuple[str, str], ...]

_DROPPED = frozenset({"accept-encoding", "te", "a-im", "range", "if-range", "request-range", "x-ms-range"})
_PARTIAL = (206, 226)
_PLAIN = ("", "identity")
A_PIECE = "The server sent a piece of its response. A secret may be cut by it."
COMPRESSED = "The server compressed its response, in which a secret may be."


def same(name: str) -> str:
    """Return a header's name in the form in which servers compare it: many take `_` for `-`."""
    return name.lower().replace("_", "-")


def asking_for_all(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a request without those that ask for less than a plain and whole response."""
    kept = tuple((name, value) for name, value in headers if same(name) not in _DROPPED)
    return (*kept, ("Accept-Encoding", "identity"))


def why_not_whole(status: int, headers: Iterable[tuple[str, str]], *, has_body: bool = True) -> str:
    """Return why nobody should read a response, as a sentence; empty if it is plain and whole."""
    named = [(name.lower(), value.strip().lower()) for name, value in headers]
    kinds = [value for name, value in named if name == "content-type"]
    is_piece = status in _PARTIAL or any(name == "content-range" for name, _ in named)
    if is_piece or any(kind.startswith("multipart/byteranges") for kind in kinds):
        return A_PIECE
    codings = [value for name, value in named if name == "transfer-encoding"]
    forms = [value for name, value in named if name == "content-encoding"]
    forms += [] if codings == ["chunked"] else codings
    return COMPRESSED if has_body and any(form not in _PLAIN for form in forms) else ""
