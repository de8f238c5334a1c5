"""What may be asked of a session, and by whom.

A command's words, and the names of who asks, are redacted before it is made; its id makes repeats vanish. Who may
ask what is checked at the one door (`runtime.permission`), before anything is stored.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from holdfast.protocol.compaction import ContextCompacted
from holdfast.protocol.messages import Attachment
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import FileRestore, KeptFile

Scope = Literal["speak", "answer", "approve", "configure", "administer"]
"""speak: give words, stop, pause and go on. answer: questions of the agent. approve: calls that wait for a decision.
configure: how a run is done. administer: the home itself, its users and their rights."""
SCOPES: tuple[Scope, ...] = get_args(Scope)


Decided = Literal["approve", "deny", "answer"]
"""What a person may decide."""


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who asks, and what they may ask."""

    name: str
    channel: str = ""
    """The channel of the sender: `cli`, `library`, `telegram` ..."""
    scopes: tuple[Scope, ...] = ()

    @property
    def label(self) -> str:
        """The name of the sender in records: `cli:ann`."""
        return f"{self.channel}:{self.name}" if self.channel else self.name


NOBODY = Principal("")
"""Somebody who may ask for nothing."""


def owner(name: str, channel: str = "") -> Principal:
    """Somebody with the rights of the user whose home it is: they may ask for everything."""
    return Principal(name, channel, SCOPES)


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """Words for the agent. Opens a run when none is open."""

    text: str
    settings: Settings | None = None
    """What changes, or what a new run starts with; None: everything as it was recorded."""
    attachments: tuple[Attachment, ...] = ()
    """Parts of the message beside the words. Their blobs are stored already."""


class Continue(msgspec.Struct, frozen=True, omit_defaults=True, tag="continue"):
    """Go on: ends a pause, opens a new run after one that was not done."""

    settings: Settings | None = None
    """What changes; None: everything as it was recorded."""


class Resolve(msgspec.Struct, frozen=True, omit_defaults=True, tag="resolve"):
    """Decide an approval, or answer a question."""

    approval_id: str
    decision: Decided
    note: str = ""
    makes_grant: bool = False
    """An approval also makes the grant that its request offered. Without such an offer, nothing is decided."""


class Revoke(msgspec.Struct, frozen=True, tag="revoke"):
    """Take a grant back."""

    grant_id: str


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """Start nothing new until Continue; what runs may finish."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True, tag="stop"):
    """End the open run; what runs is cancelled."""

    reason: str = "stopped"


Restoring = Literal["undo", "redo", "rewind", "accept", "discard"]
"""Why files are put back. redo: an undo is taken back. rewind: a branch begins at an earlier record. accept: what
changed in a copy of the workspace goes to the workspace. discard: the copy was removed, and no file is put back."""


class Restore(msgspec.Struct, frozen=True, omit_defaults=True, tag="restore"):
    """The sender is about to put files back."""

    why: Restoring
    messages: tuple[int, ...]
    """The records of the messages whose edits are taken back."""
    files: tuple[FileRestore, ...]
    kept: tuple[KeptFile, ...] = ()
    """The files that stay as they are."""


class Restored(msgspec.Struct, frozen=True, omit_defaults=True, tag="restored"):
    """What became of the files of the last `Restore`."""

    why: Restoring
    restored: tuple[str, ...]
    kept: tuple[KeptFile, ...] = ()


class Compact(msgspec.Struct, frozen=True, omit_defaults=True, tag="compact"):
    """Compact the view before the next request; or bring back what compactions left out."""

    is_undo: bool = False
    view: ContextCompacted | None = None
    """The view of a session at rest, which its sender has made: it counts at once."""
    at_seq: int = 0
    """The last record when it was made. Otherwise it does not count."""


CommandBody = Send | Continue | Resolve | Revoke | Pause | Stop | Restore | Restored | Compact


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a session from one of the senders; its id makes repeats vanish."""

    id: str
    session: str
    principal: Principal
    body: CommandBody
