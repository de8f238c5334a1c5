"""What a store keeps beside the records: derived rows, leases, inbox entries, and the commit that joins them.

Rows are derived from the journal and can be deleted and built again; the journal never from them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.codec import StoredRecord
from holdfast.protocol.messages import Usage

SessionStatus = Literal[
    "new", "open", "running", "waiting", "paused", "parked", "done", "failed", "limit", "stuck", "interrupted"
]
"""`open`: a run wants to be driven. `running`: somebody drives it, which no row holds (`runtime.driven`)."""


class SessionRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the list of sessions: a pure `core.summary` of the state."""

    session: str
    key: str = ""
    status: SessionStatus = "new"
    reason: str = ""
    due_ms: int = 0
    """When a parked session wants to go on; 0: nothing is due."""
    title: str = ""
    model: str = ""
    workspace: str = ""
    runs: int = 0
    turns: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    usage: Usage = Usage()
    cost_microusd: int | None = 0
    """None: a model without a known price took part."""
    held_microusd: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    seq: int = 0


class ApprovalRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval or a question, open or decided, as its records tell."""

    id: str
    session: str
    call_id: str
    tool: str
    arguments: str
    asked_ms: int
    deadline_ms: int
    reason: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    decision: str = ""
    """Empty while it is open; then approve, deny, answer, expired or withdrawn."""
    decided_by: str = ""
    decided_ms: int = 0
    note: str = ""
    source: str = ""
    """Who made the tool, as in its spec."""
    workspace: str = ""
    cwd: str = ""
    """The folder in which it will run; empty where that means nothing."""
    binary: str = ""
    """The program that a command begins with, every link followed."""
    is_masked: bool = False
    """`arguments` is a copy: what looks like a secret in it is hidden, and runs as the model wrote it."""


class ApprovalMark(msgspec.Struct, frozen=True):
    """Where a record asks for an approval, or decides one: all that a store keeps of it beside the journal."""

    id: str
    seq: int
    is_decision: bool = False


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a lease, told so that another process can see whether it still lives."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: str
    """The start time of the process as the kernel tells it: a reused pid is not taken for the holder."""
    nonce: str
    """Tells two holders in one process apart."""
    doorbell: str = ""
    """Path of the unix datagram socket that wakes it."""


class Lease(msgspec.Struct, frozen=True):
    """The right to write one session, for a time or until its holder is gone."""

    session: str
    epoch: int
    holder: Holder
    left_ms: int
    """How much of its time was left when the store answered; 0: it has lapsed."""


class Standing(msgspec.Struct, frozen=True):
    """All that decides whether a session is to be driven, as one question answers it."""

    row: SessionRow
    lease: Lease | None
    """As it stands, lapsed or not; None when it was released."""
    waiting: int
    """Commands in the inbox that no commit has acknowledged."""


class InboxEntry(msgspec.Struct, frozen=True):
    """An accepted command that no commit has acknowledged yet."""

    command_id: str
    session: str
    posted_ms: int
    body: bytes
    """The encoded `commands.Command`."""


class Posted(msgspec.Struct, frozen=True):
    """What became of a command that was put into an inbox, and who is to be told of it."""

    outcome: Literal["accepted", "duplicate", "full"]
    """duplicate: its id was seen before. full: nothing was accepted."""
    lease: Lease | None
    """The session's, as it stands."""


class Mark(msgspec.Struct, frozen=True):
    """A moment in the history of a home."""

    records: int
    commands: int
    waiting: int
    """Commands that no commit has acknowledged."""


class News(msgspec.Struct, frozen=True):
    """What came between two moments."""

    mark: Mark
    """The later one."""
    written: tuple[str, ...] = ()
    """The sessions with new records."""
    asked: tuple[str, ...] = ()
    """The sessions with new commands."""
    is_settled: bool = False
    """Whether commands were acknowledged; maybe without a record."""


class Recovered(msgspec.Struct, frozen=True):
    """What a driver finds of a session, as one question answers it."""

    after_seq: int
    """Up to where the snapshot goes; 0: there is none."""
    snapshot: bytes
    """What the last commit with a snapshot left."""
    records: tuple[StoredRecord, ...]
    """Those after the snapshot, in order, with their hash chain checked."""
    waiting: tuple[InboxEntry, ...]
    """The commands that no commit has acknowledged, oldest first."""


class Commit(msgspec.Struct, frozen=True):
    """All that changes with one cause, in one transaction."""

    session: str
    epoch: int
    expected_seq: int
    """The seq of the last record before these."""
    records: tuple[StoredRecord, ...]
    row: SessionRow
    now_ms: int
    acknowledged: tuple[str, ...] = ()
    """Command ids whose consequences these are."""
    approvals: tuple[ApprovalMark, ...] = ()
    blobs: tuple[str, ...] = ()
    """Those that the records refer to; one that an earlier commit named need not be named again."""
    releases_lease: bool = False
    """Unless a command waits."""
    snapshot: bytes = b""
    """Derived from all records up to these; takes the place of the session's last one, unless it is empty."""
    forked_from: str = ""
    """With the first commit of a branch: the session whose records it shares up to `expected_seq`."""


class Stretch(msgspec.Struct, frozen=True):
    """Some records of a session in a row."""

    session: str
    first_seq: int
    last_seq: int


class Damage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that `fsck` found wrong."""

    kind: Literal["file", "changed", "missing", "reordered", "unreadable", "row", "blob"]
    message: str
    session: str = ""
    seq: int = 0


class Verified(msgspec.Struct, frozen=True):
    """What `fsck` came to."""

    damages: tuple[Damage, ...] = ()
    """Empty when all is well."""
    erased: tuple[Stretch, ...] = ()
    """Records that have no body any more, and still prove their place: no damage."""
    lost: tuple[Stretch, ...] = ()
    """Records that were lost before a repair: it told them, and no damage of today."""


class Salvaged(msgspec.Struct, frozen=True):
    """What came of a damaged home's database in a new file."""

    sessions: int
    records: int
    lost: tuple[Stretch, ...] = ()
    """Records that could not be read, or are not what was written."""
    notes: tuple[str, ...] = ()
    """What else is lost or not as it was, as sentences."""
