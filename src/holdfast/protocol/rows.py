"""What a store keeps beside the records: derived rows, leases, inbox entries, and the commit that joins them.

Rows are derived from the journal and can be built again from it; the journal cannot be built from rows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.circuits import CallEnded
from holdfast.protocol.codec import StoredRecord
from holdfast.protocol.events import Resolution
from holdfast.protocol.grants import Grant
from holdfast.protocol.messages import Usage
from holdfast.protocol.spending import Line
from holdfast.protocol.tools import NO_REACH, Offer, Reach

SessionStatus = Literal[
    "new", "open", "running", "waiting", "paused", "parked", "done", "failed", "limit", "stuck", "interrupted"
]
"""`open`: a run has not ended. `running`: somebody drives it, which no row says (`runtime.driven`)."""
OPEN_STATUSES = frozenset[SessionStatus]({"open", "running", "waiting", "paused", "parked"})
"""Those of a session whose run has not ended."""


class GrantRow(msgspec.Struct, frozen=True, gc=False):
    """A grant of a session."""

    id: str
    tool: str
    rule: str
    until_ms: int


class SessionRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the list of sessions: a pure `core.summary` of the state."""

    session: str
    key: str = ""
    status: SessionStatus = "new"
    reason: str = ""
    due_ms: int = 0
    """When a parked session can continue; 0 if nothing is due."""
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
    parent: str = ""
    """The session that it branched off from. `cost_microusd` and `held_microusd` are its own."""
    parent_microusd: int | None = 0
    """What the records cost that it shares with its parent."""
    created_ms: int = 0
    updated_ms: int = 0
    seq: int = 0
    grants: tuple[GrantRow, ...] = ()
    """Those that nobody revoked and that are not used up. Some may have ended since."""


class Sought(msgspec.Struct, frozen=True):
    """Which sessions a list shows. An empty field restricts nothing."""

    status: str = ""
    grep: str = ""
    """A text in titles and messages, whatever its case."""
    before: str = ""
    """The id of a session: only those after it in the list."""
    since_ms: int = 0
    """Only those with a record since then."""
    workspace: str = ""
    """The folder, as their runs recorded it."""


EVERY = Sought()


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval or a question, open or decided, from its records."""

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
    decision: Resolution | Literal[""] = ""
    """Empty while it is open."""
    decided_by: str = ""
    decided_ms: int = 0
    note: str = ""
    source: str = ""
    """Who made the tool, as in its spec."""
    workspace: str = ""
    cwd: str = ""
    """The folder in which it will run; empty if that has no meaning."""
    binary: str = ""
    """The program of a command, with every link followed."""
    is_masked: bool = False
    """`arguments` is a masked copy: what looks like a secret in it is hidden, and runs as the model wrote it."""
    reach: Reach = NO_REACH
    offer: Offer | None = None
    """The grant that an approval may make."""
    no_offer: str = ""
    """Why it may make none, as a sentence."""
    lapsed: Grant | None = None
    """A grant that would have covered the call, and has ended."""


class ApprovalMark(msgspec.Struct, frozen=True):
    """The place of a record that requests or decides an approval. A store keeps no more of it beside the journal."""

    id: str
    seq: int
    is_decision: bool = False


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The holder of a lease, described so that another process can see whether it still lives."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: str
    """The start time of the process, from the kernel, so that a reused pid does not count as the holder."""
    nonce: str
    """Distinguishes two holders in one process."""
    doorbell: str = ""
    """The path of the unix datagram socket that wakes it."""


class Lease(msgspec.Struct, frozen=True):
    """The right to write one session, for a time or until its holder is gone."""

    session: str
    epoch: int
    holder: Holder
    left_ms: int
    """How much time was left when the store was read; 0 if it has lapsed."""


class Situation(msgspec.Struct, frozen=True):
    """Everything that decides whether a session is to be driven, read at once."""

    row: SessionRow
    lease: Lease | None
    """Lapsed or not; None if it was released."""
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
    """The result of putting a command into an inbox, and whom to tell about it."""

    outcome: Literal["accepted", "duplicate", "full"]
    """duplicate: its id was seen before. full: nothing was accepted."""
    lease: Lease | None
    """The session's current lease."""


class Mark(msgspec.Struct, frozen=True):
    """A moment in the history of a home."""

    records: int
    commands: int
    waiting: int
    """Commands that no commit has acknowledged."""


class News(msgspec.Struct, frozen=True):
    """What came between two moments."""

    mark: Mark
    """The later moment."""
    written: tuple[str, ...] = ()
    """The sessions with new records."""
    asked: tuple[str, ...] = ()
    """The sessions with new commands."""
    is_handled: bool = False
    """Whether commands were acknowledged, maybe without a record."""


class Recovered(msgspec.Struct, frozen=True):
    """What a driver needs to begin with a session, read at once."""

    after_seq: int
    """The last seq that the snapshot covers; 0 without a snapshot."""
    snapshot: bytes
    """What the last commit with a snapshot stored."""
    records: tuple[StoredRecord, ...]
    """The records after the snapshot, in order, with their hash chain checked."""
    waiting: tuple[InboxEntry, ...]
    """The commands that no commit has acknowledged, oldest first."""


class Commit(msgspec.Struct, frozen=True):
    """Everything that changes with one cause, in one transaction."""

    session: str
    epoch: int
    expected_seq: int
    """The seq of the last record before these."""
    records: tuple[StoredRecord, ...]
    row: SessionRow
    now_ms: int
    acknowledged: tuple[str, ...] = ()
    """The ids of the commands that these handle."""
    approvals: tuple[ApprovalMark, ...] = ()
    blobs: tuple[str, ...] = ()
    """The blobs that the records refer to. One that an earlier commit named need not be named again."""
    releases_lease: bool = False
    """Unless a command waits."""
    snapshot: bytes = b""
    """Derived from all records up to these. It replaces the session's last one, unless it is empty."""
    key: str | None = None
    """The session's new name, if the records change it."""
    others: tuple[Commit, ...] = ()
    """Commits to other sessions, before this one, in the same transaction."""
    lines: tuple[Line, ...] = ()
    """What the records add to the books."""
    reserves: tuple[str, ...] | None = None
    """The keys under which the session still has money reserved after it (`budgets.Reservation`). What it reserved
    under others is free then. None: nothing changes."""
    ended: tuple[CallEnded, ...] = ()
    """What attempts that end with it say about the services that they called."""
    forked_from: str = ""
    """The session whose records a branch shares up to `expected_seq`. Only the first commit of a branch has it."""


class Stretch(msgspec.Struct, frozen=True):
    """Consecutive records of a session."""

    session: str
    first_seq: int
    last_seq: int


class Damage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem that `fsck` found."""

    kind: Literal["file", "changed", "missing", "reordered", "unreadable", "row", "blob"]
    message: str
    session: str = ""
    seq: int = 0


class Verified(msgspec.Struct, frozen=True):
    """The result of `fsck`."""

    damages: tuple[Damage, ...] = ()
    """Empty if there is no damage."""
    erased: tuple[Stretch, ...] = ()
    """Records whose body was erased. They still prove their place and are not damage."""
    lost: tuple[Stretch, ...] = ()
    """Records that were lost before a repair. The repair reported them, and they are not new damage."""
    notices: tuple[str, ...] = ()
    """What is no damage, and worth knowing, as sentences."""


class Salvaged(msgspec.Struct, frozen=True):
    """The result of saving a damaged home's database in a new file."""

    sessions: int
    records: int
    lost: tuple[Stretch, ...] = ()
    """Records that could not be read, or are not what was written."""
    notes: tuple[str, ...] = ()
    """What else is lost or changed, as sentences."""
