"""What may be asked of a session.

A command's words are redacted before it is made; its id makes repeats vanish.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.limits import Settings


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """Words for the agent. Opens a run when none is open."""

    text: str
    settings: Settings


class Continue(msgspec.Struct, frozen=True, omit_defaults=True, tag="continue"):
    """Go on: ends a pause, opens a new run after one that was not done."""

    settings: Settings | None = None
    """What changes; None: everything as it was recorded."""


class Resolve(msgspec.Struct, frozen=True, omit_defaults=True, tag="resolve"):
    """Decide an approval, or answer a question."""

    approval_id: str
    decision: Literal["approve", "deny", "answer"]
    note: str = ""


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Start nothing new until Continue; what runs may finish."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True, tag="stop"):
    """End the open run; what runs is cancelled."""

    reason: str = "stopped"


CommandBody = Send | Continue | Resolve | Pause | Stop


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a session from one of the senders; its id makes repeats vanish."""

    id: str
    session: str
    sender: str
    """Who asks, for the record: `cli:root`, `agent`, `deadline`."""
    body: CommandBody
