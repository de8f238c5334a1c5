"""Checks names before anything is stored under them. The same for every store."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.protocol.ids import COMMAND_ID_CHARS, is_command_id, is_session_id, is_session_key


def check_session(session: str, key: str) -> None:
    """Refuse invalid names of a new session. An empty key means no key.

    Raises:
        UsageError: says which name, and the rule.
    """
    if not is_session_id(session):
        raise UsageError(f"{session!r} is not a valid id for a session.")
    if key and not is_session_key(key):
        raise UsageError(
            f"{key!r} is not a valid name for a session.",
            hint="Use CHANNEL:CHAT, each with 1 to 64 letters, digits, dots, underscores and hyphens.",
        )


def check_command_id(text: str) -> None:
    """Refuse an invalid id of a command.

    Raises:
        UsageError: says the rule.
    """
    if not is_command_id(text):
        raise UsageError(
            f"{text[:COMMAND_ID_CHARS]!r} is not a valid id for a command.",
            hint=f"Use 1 to {COMMAND_ID_CHARS} printable characters.",
        )
