"""The borders: what an upper room promises to a lower one, or an edge to the engine, as Protocols.

A Protocol stands here only when a second implementation exists. No behaviour, no defaults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, Protocol

import msgspec

from holdfast.protocol.codec import Selected, StoredRecord
from holdfast.protocol.commands import NOBODY, Principal
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Message, ModelReply, ToolCall
from holdfast.protocol.outcomes import ModelCut, ModelFailure, Probed
from holdfast.protocol.rows import (
    ApprovalRow,
    Commit,
    Holder,
    InboxEntry,
    Lease,
    Mark,
    News,
    Posted,
    Recovered,
    SessionRow,
    Standing,
    Verified,
)
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import Admission, Expectation, ToolSpec
from holdfast.protocol.trust import Label, Trust


class Clock(Protocol):
    """The only source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. Whoever sets this machine's clock makes it jump, forwards or back."""
        ...

    def uptime_ms(self) -> int:
        """Milliseconds since some moment, the same for all processes of this machine until it is started again.
        It counts while the machine sleeps, and never jumps."""
        ...

    def awake_ms(self) -> int:
        """Milliseconds since some moment, for this process only. It does not count while the machine sleeps, and
        never jumps: as the event loop counts."""
        ...


Check = Callable[[], int]
"""Raises `Lapsed` when the lease under which an attempt began is over; else tells until when it lasts, as
`Clock.uptime_ms` counts. To be called right before each effect: a process may be stopped at any moment, and when it
wakes another driver may have the session."""


# --- storage ------------------------------------------------------------------------------------


class Blobs(Protocol):
    """Bytes by their SHA-256. What a record refers to is put before the record is committed."""

    async def put(self, content: bytes) -> str:
        """Keep the bytes, durably; returns their SHA-256 in hex. Putting twice keeps one."""
        ...

    async def get(self, sha256: str) -> bytes:
        """The bytes.

        Raises:
            StorageCorrupt: they are missing, or do not have that hash any more.
        """
        ...


class Journals(Protocol):
    """Records: written by who holds the lease, read by everybody. Every method may raise a `StorageError`."""

    blobs: Blobs
    """What records refer to."""

    async def commit(self, commit: Commit) -> bool:
        """Write all of it or nothing. Returns whether the lease was given back with it: asked for, and no command
        waits.

        Raises:
            Fenced: the epoch is not the lease's, or `expected_seq` is not the last seq.
        """
        ...

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        """Records in order, the parent's shared ones included, with their hash chain checked.

        Raises:
            StorageCorrupt: a record was changed, cut out or reordered; says which.
        """
        ...

    async def recover(self, session: str) -> Recovered:
        """All that a driver goes on from; raises as `read` does. A branch has no snapshot until its own first."""
        ...

    async def select(self, session: str, types: Sequence[str], upto_seq: int) -> list[Selected]:
        """The records of these types, in order, the parent's shared ones included. Their hash chain is not
        checked: the caller has another proof of them."""
        ...

    async def last_seq(self, session: str) -> int:
        """The seq of the newest record; 0 for none."""
        ...


class Leases(Protocol):
    """Who may write a session. Every method may raise a `StorageError`."""

    async def lease(self, session: str, holder: Holder, duration_ms: int, over: Lease | None = None) -> Lease:
        """Take the session's lease with a new epoch when it is free or lapsed, or take it `over` from exactly
        that lease, whose holder was found dead. Returns the lease in force: ours exactly when its holder is
        ours. Its time runs by the store's own clock, from some moment between question and answer.
        """
        ...

    async def standing(self, session: str) -> Standing | None:
        """How exactly that session stands now; None: there is none."""
        ...

    async def held(self) -> Collection[str]:
        """The sessions of all leases that hold now."""
        ...

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        """Begin anew the time of those leases that are still ours, lapsed or not; returns the others, of which
        another epoch has begun, or which were given back."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens when another epoch has begun."""
        ...


class Inbox(Protocol):
    """Where senders put sessions and commands. Every method may raise a `StorageError`."""

    async def claim(self, session: str, key: str, now_ms: int, first: InboxEntry | None = None) -> str:
        """The session of `key`: the one that exists, else a new row with the id `session`.

        An empty key always makes the new row. The `first` command lies in the inbox of a new one from the
        beginning; nothing becomes of it where the session exists. Returns the session's id.

        Raises:
            UsageError: `session`, `key` or the command's id is not valid.
        """
        ...

    async def post(self, entry: InboxEntry, capacity: int) -> Posted:
        """Put a command into its session's inbox, durably, unless the session ever saw its id or it is full.

        Raises:
            UsageError: the command's id is not valid.
            NoSuchSession: there is no such session.
        """
        ...

    async def inbox(self, session: str) -> Sequence[InboxEntry]:
        """The commands that no commit has acknowledged, oldest first."""
        ...


class Index(Protocol):
    """What there is in a home, as rows that derive from journals. Every method may raise a `StorageError`."""

    async def news(self, since: Mark | None = None) -> News:
        """In which sessions something was written or put into the inbox since the mark, by anybody. Without a mark
        none: only the mark of now."""
        ...

    async def session(self, session: str) -> SessionRow | None:
        """The row of exactly that session."""
        ...

    async def find(self, name: str) -> list[str]:
        """Session ids for a whole id, a unique prefix, `channel:chat` or `last`: none, one, or several."""
        ...

    async def sessions(self, status: str = "", grep: str = "", limit: int = 20) -> list[SessionRow]:
        """The newest sessions first, by the position of their last record in the home; `grep` is looked for in
        titles and messages, ignoring case."""
        ...

    async def due(self, upto_ms: int, limit: int = 20) -> list[SessionRow]:
        """The sessions that want to go on by themselves until then, those first that have waited longest."""
        ...

    async def approvals(self, session: str = "", is_open: bool = True) -> list[ApprovalRow]:
        """Approvals by age, of one session or of all."""
        ...

    async def approval(self, approval_id: str) -> ApprovalRow | None:
        """One approval, open or decided."""
        ...


class Store(Journals, Leases, Inbox, Index, Protocol):
    """All parts of a home's store, and its care. What needs only a part takes that."""

    async def verify(self) -> Verified:
        """Read everything and tell all that is wrong, and apart from that what was erased."""
        ...

    async def aclose(self) -> None:
        """Write what is pending and let go of every file and thread."""
        ...


# --- providers ----------------------------------------------------------------------------------


class Wire(Protocol):
    """How one family of providers writes a conversation: pure, and the same bytes for ever."""

    name: str
    keeps_tools: bool
    """Whether the final pass still lists the tools, and its tail forbids calls; else `base` is given none for
    it. A wire that keeps them is told `is_last_pass` only where `base` was given some."""

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """All of the body before the first message: up to and with the opening bracket of the list, or with
        the comma after a system message that stands in the list. At least one message must follow."""
        ...

    def message(self, message: Message) -> Sequence[bytes]:
        """The message as elements of the list: one or more JSON objects, each encoded."""
        ...

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """All of the body after the last message: closing bracket, output cap, streaming, the rest."""
        ...


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A crumb of what is arriving; shown, never stored."""

    kind: Literal["text", "reasoning", "tool_output"]
    text: str
    session: str = ""
    key: str = ""


OnDelta = Callable[[Delta], None]
OnCut = Callable[[ModelCut], None]
"""Takes what had come of a response when it was cut; the words went to `on_delta`."""


class ModelAttempt(msgspec.Struct, frozen=True):
    """What a provider is handed."""

    facts: ModelFacts
    body: bytes
    """To be sent exactly so."""
    is_streaming: bool
    idle_s: float
    """The longest silence before the attempt counts as failed."""
    outcomes: int
    """How many attempts of model calls the session's journal holds as answered: responses and recorded failures.
    A scripted model picks its line by it."""
    on_delta: OnDelta
    """Shows what arrives while it arrives."""
    on_cut: OnCut
    """Told when the attempt is cancelled."""
    check: Check
    """Called right before the request is written."""


class Provider(Protocol):
    """A model's server, or something that answers like one. Attempts are retried by the core, never here."""

    wire: Wire

    async def call(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        """Send the request and read the response.

        On cancellation the connection is closed; the words so far have gone to `on_delta`. Never raises for
        what a server does.

        Raises:
            Fenced: the attempt's check did, and nothing was sent.
        """
        ...

    async def aclose(self) -> None:
        """Close the pooled connections."""
        ...


# --- tools --------------------------------------------------------------------------------------


class CallContext(msgspec.Struct, frozen=True):
    """What a tool is handed: typed capabilities, no globals."""

    session: str
    call_id: str
    key: str
    """The same for every attempt of the call: an idempotency key for the outside."""
    workspace: str
    timeout_s: float
    idle_s: float
    on_output: Callable[[str], None]
    """Shows output while it is made."""
    check: Check
    """Called right before each effect."""


class RawResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool gives back, before it is redacted, clipped and labelled for the record."""

    status: Literal["ok", "error", "timeout", "unknown"]
    text: str
    detail: str = ""
    """For the journal only: the end of a traceback, a killed process's pid."""
    trust: Trust | None = None
    """How far this very text may be trusted, where that is less than the tool declares."""


class Tool(Protocol):
    """A capability."""

    spec: ToolSpec

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Do it. Arguments have passed the schema. An exception becomes a tool_execution failure."""
        ...

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """What will be there when it has happened, for tools with `on_interrupt="probe"`; None for all others."""
        ...

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Look whether what it planned is there, and clear away what an interrupted call may have left half done.
        Only asked of tools with `on_interrupt="probe"`."""
        ...


class Proposal(msgspec.Struct, frozen=True):
    """What is asked of the gates: a call that a model proposes, and all that it is judged by."""

    call: ToolCall
    session: str
    settings: Settings
    principal: Principal = NOBODY
    """On whose behalf."""
    labels: tuple[Label, ...] = ()
    """What the session holds by now: what the model may have been told to do this by."""
    grants: tuple[str, ...] = ()
    """Standing permissions; nothing gives one yet."""
    is_approved: bool = False
    """A person said yes to it, so that `ask` counts as allowed while `deny` still rules. Whether it is what they said
    yes to is the asker's to compare."""


class Tools(Protocol):
    """The tools of a runtime behind their gates: what the engine knows of them."""

    def add(self, tool: Tool) -> None:
        """Take in one more tool; the same one again changes nothing. Runs choose by `Settings.allow_tools`.

        Raises:
            UsageError: the name is taken, or not every provider accepts it.
        """
        ...

    def specs(self, settings: Settings) -> Sequence[ToolSpec]:
        """What the model is offered, in a stable order."""
        ...

    def is_quick(self, name: str) -> bool:
        """Whether judging a call of that tool waits for nothing: no plan, no slow gate."""
        ...

    async def admit(self, proposal: Proposal) -> Admission:
        """Ask all gates about a proposed call; nothing has happened yet."""
        ...

    async def run(self, name: str, arguments: str, context: CallContext) -> RawResult:
        """Run an admitted call with its canonical arguments; exceptions come out as results.

        Raises:
            Fenced: the context's check did; what followed it did not happen.
        """
        ...

    async def probe(self, proposal: Proposal, expectation: Expectation) -> Probed:
        """Have the tool look whether an interrupted call happened."""
        ...

    async def end_orphans(self, keys: Sequence[str]) -> None:
        """End every process that still carries one of the call keys in its environment."""
        ...

    async def aclose(self) -> None:
        """End what still runs."""
        ...


Resolver = Callable[[str], Awaitable[Provider]]
"""The provider for a PROVIDER:MODEL, made once; raises `UsageError` or `ProviderUnavailable`."""
