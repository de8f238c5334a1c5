"""What a person must look at although a sandbox without network is around a command.

Such a sandbox bounds what an unknown program may do: it reads no secret and no other project, sends nothing, and
changes nothing but the workspace. It does not keep the workspace itself. So what the text of a command says it would
lose, change or send still asks.
"""

from __future__ import annotations

import re

from holdfast.policy.commands import Command, pieces_of, texts_of
from holdfast.policy.programs_files import FILE_READERS, WRITERS
from holdfast.policy.programs_git import GIT_READERS
from holdfast.policy.programs_net import NET_READERS
from holdfast.policy.programs_options import HARMLESS_DEVICES, shown
from holdfast.policy.programs_risks import MEDIUM_RISK
from holdfast.protocol.launchers import PRIVILEGED
from holdfast.redact import begin_of

_RISKY = (
    frozenset({*MEDIUM_RISK, *WRITERS, *FILE_READERS, *GIT_READERS, *NET_READERS, "find", "fd", "sed"})
    | PRIVILEGED
)
"""Programs that may lose, change or send something. In a text that is not understood, each of them asks."""
_LEADS_OUT = re.compile(r"[/~]|(?:[^/]*/)*\.\.(?:/|\Z)")


def risk_of(command: Command) -> str:
    """Return why a person must look at a command that runs in a sandbox without network, as a sentence; empty if all
    that is unknown about it stays inside.
    """
    for step in command.simple:
        uses = step.uses
        if uses.denies or (uses.asks and not uses.is_unknown):
            return uses.denies or uses.asks
        if uses.sends:
            return f"It talks to {begin_of(uses.sends[0].text, 80)}."
    return _risk_unread(command) if command.unread else ""


def _risk_unread(command: Command) -> str:
    """Return the first risky program, or path that may lie outside, that a text names which is not understood, as a
    sentence.
    """
    texts = (text for step in command.simple for text in texts_of(step.command))
    named = next((text for text in texts if _is_risky(text)), "")
    return f"It is not understood completely, and names `{shown(named)}`." if named else ""


def _is_risky(text: str) -> bool:
    if text.rpartition("/")[2] in _RISKY:
        return True
    return text not in HARMLESS_DEVICES and any(map(_LEADS_OUT.match, pieces_of(text)))
