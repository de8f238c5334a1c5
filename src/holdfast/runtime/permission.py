"""Permissions: every command needs a scope of the principal that sends it.

| command | needs |
|---|---|
| Send | speak; or answer, while a question of the agent is open |
| Send or Continue with settings | configure too |
| Continue, Pause, Stop, Compact | speak: a sender who may start an agent may also stop it |
| Resolve | approve; for a question: answer |
| Revoke | approve |
| Restore, Restored | configure |

If a sender without `answer` speaks while a question is open, the core takes the words as a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import Forbidden, UsageError
from holdfast.protocol.commands import (
    Command,
    Compact,
    Continue,
    Pause,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Scope,
    Send,
    Stop,
)
from holdfast.protocol.ports import Store

NAME_MAX_CHARS = 128
_ACTS: Mapping[Scope, str] = {
    "speak": "speak to",
    "answer": "answer questions of",
    "approve": "decide what waits in",
    "configure": "change the settings of",
    "administer": "administer",
}


async def check(store: Store, command: Command) -> None:
    """Refuse a command that its principal may not send.

    Raises:
        Forbidden: a scope is missing.
        UsageError: a name is too long.
    """
    principal = command.principal
    if max(len(principal.name), len(principal.channel)) > NAME_MAX_CHARS:
        raise UsageError(f"The name of a sender has at most {NAME_MAX_CHARS} characters.")
    for scope in await _needed(store, command):
        if scope not in principal.scopes:
            raise Forbidden(
                f"{principal.label} may not {_ACTS[scope]} this session.",
                hint=f"That needs the scope {scope!r}. Nothing was accepted.",
            )


async def _needed(store: Store, command: Command) -> list[Scope]:
    match command.body:
        case Send(settings=settings):
            is_answer = "speak" not in command.principal.scopes and await _is_asked(store, command.session)
            speaking: Scope = "answer" if is_answer else "speak"
            return [speaking] if settings is None else [speaking, "configure"]
        case Continue(settings=settings):
            return ["speak"] if settings is None else ["speak", "configure"]
        case Resolve(approval_id=name):
            row = await store.approval(name)
            return ["answer" if row is not None and row.question else "approve"]
        case Revoke():
            return ["approve"]
        case Pause() | Stop() | Compact():
            return ["speak"]
        case Restore() | Restored():
            return ["configure"]


async def _is_asked(store: Store, session: str) -> bool:
    """Return whether a question of the agent is open."""
    return any(row.question for row in await store.approvals(session))
