"""Ids and names: session ids, session keys, call and action keys.

Nothing here uses randomness or a clock: the caller supplies both. Ids inside a session derive from counters, so
that a fold of the journal always finds the same ones.
"""

from __future__ import annotations

import re
from typing import NewType

SessionId = NewType("SessionId", str)
"""A ULID: 26 characters of Crockford's base 32, sortable by the time of creation."""

COMMAND_ID_CHARS = 200
"""The longest id of a command."""
SECRET_NAME = r"[A-Za-z0-9_.-]{1,64}"
"""The pattern of the name of a stored secret."""
SECRET_NAME_IS = "made of letters, digits, `.`, `_` and `-`, at most 64"

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SESSION_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX = re.compile(r"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{4,26}")


def session_id(at_ms: int, entropy: bytes) -> SessionId:
    """Return a new session id from a time in milliseconds and ten random bytes (github.com/ulid/spec)."""
    number = (at_ms & (1 << 48) - 1) << 80 | int.from_bytes(entropy[:10], "big")
    return SessionId("".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5)))


def is_session_id(text: str) -> bool:
    """Return whether the text is a whole session id."""
    return _SESSION_ID.fullmatch(text) is not None


def is_session_prefix(text: str) -> bool:
    """Return whether the text may be the beginning of a session id (four characters or more)."""
    return _PREFIX.fullmatch(text) is not None


def is_session_key(text: str) -> bool:
    """Return whether the text is CHANNEL:CHAT, two labels of [A-Za-z0-9._-] with at most 64 characters each."""
    channel, colon, chat = text.partition(":")
    return bool(colon) and all(_LABEL.fullmatch(label) for label in (channel, chat))


def is_command_id(text: str) -> bool:
    """Return whether the text can be the id of a command: chosen by the sender, short and printable."""
    return 0 < len(text) <= COMMAND_ID_CHARS and text.isprintable() and text.strip() == text


def trace_id(session: str, run: int) -> str:
    """Return the correlation id of a run, in the 32 hex digits of W3C trace context.

    The first 26 digits are the random and time bits of the session id, the last six the run's number.
    """
    number = 0
    for character in session:
        number = number * 32 + max(_CROCKFORD.find(character), 0)
    return f"{number & (1 << 104) - 1:026x}{run & 0xFFFFFF:06x}"


def call_id(turn: int, index: int) -> str:
    """Return the id of a tool call: `t12.c3` is the third call of turn 12."""
    return f"t{turn}.c{index}"


def grant_id(session: str, number: int) -> str:
    """Return the id of a grant, unique in a home: the session's id and the grant's number in it."""
    return f"{session}-g{number}"


def session_of_grant(name: str) -> str:
    """Return the session of a grant."""
    return name.rpartition("-g")[0]


def approval_id(session: str, number: int) -> str:
    """Return the id of an approval, unique in a home: the session's id and the approval's number in it."""
    return f"{session}-{number}"
