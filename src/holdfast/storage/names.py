"""What names must look like before anything is stored under them; the same for every store."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.protocol.ids import COMMAND_ID_CHARS, is_command_id, is_session_id, is_session_key


def check_session(session: str, key: str) -> None:
    """Refuse names of a new session that are none; an empty key is none that is given.

    Raises:
        UsageError: says which name, and the rule.
    """
    if not is_session_id(session):
        raise UsageError(f"{session!r} is no id of a session.")
    if key and not is_session_key(key):
        raise UsageError(
            f"{key!r} is no name of a session.",
            hint="It is CHANNEL:CHAT, each of 1 to 64 letters, digits, dots, underscores and hyphens.",
        )


def check_command_id(text: str) -> None:
    """Refuse an id of a command that is none.

    Raises:
        UsageError: says the rule.
    """
    if not is_command_id(text):
        raise UsageError(
            f"{text[:COMMAND_ID_CHARS]!r} is no id of a command.",
            hint=f"It has 1 to {COMMAND_ID_CHARS} printable characters.",
        )
