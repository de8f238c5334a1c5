"""The borders between rooms, as Protocols: what an upper room promises to a lower one.

A Protocol is here only if a second implementation exists. It has no behaviour and no defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.protocol.codec import Selected, StoredRecord
from holdfast.protocol.commands import NOBODY, Principal
from holdfast.protocol.fence import Sandbox, Walled
from holdfast.protocol.grants import Grant
from holdfast.protocol.hooks import Hook, HookAnswer, Occasion
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import MediaType, Message, ModelReply, ToolCall, Verdict
from holdfast.protocol.notify import NotificationDue, Notified
from holdfast.protocol.outcomes import ModelCut, ModelFailure, Probed
from holdfast.protocol.request import Purpose
from holdfast.protocol.rows import (
    EVERY,
    Approval,
    Commit,
    Holder,
    InboxEntry,
    Lease,
    Mark,
    News,
    Posted,
    Recovered,
    SessionRow,
    Situation,
    Sought,
    Verified,
)
from holdfast.protocol.services import Services
from holdfast.protocol.settings import Output, Policy, Settings
from holdfast.protocol.spending import Ledger
from holdfast.protocol.tools import (
    Admission,
    BackgroundProcess,
    Expectation,
    Reach,
    Resource,
    ToolSpec,
    Written,
)
from holdfast.protocol.traffic import NO_REQUESTS, Requests
from holdfast.protocol.trust import CLEAN, Label, Taint, Trust

T = TypeVar("T")


class Clock(Protocol):
    """The only source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. It jumps, forwards or back, if somebody sets this machine's clock."""
        ...

    def uptime_ms(self) -> int:
        """Milliseconds since some moment, the same for all processes of this machine until it boots again. It counts
        while the machine sleeps, and never jumps."""
        ...

    def awake_ms(self) -> int:
        """Milliseconds since some moment, for this process only. It does not count while the machine sleeps, and
        never jumps, like the event loop's clock."""
        ...


Check = Callable[[], int]
"""Raises `Lapsed` if the lease of an attempt is over; otherwise returns its end, as `Clock.uptime_ms` counts. Call it
right before each effect: a process may be suspended at any moment, and another driver may have the session when it
wakes."""


# --- storage ------------------------------------------------------------------------------------


class Blobs(Protocol):
    """Bytes by their SHA-256. A blob is stored before the record that refers to it is committed."""

    async def put(self, content: bytes) -> str:
        """Keep the bytes durably, and return their SHA-256 in hex. Storing them twice keeps one copy."""
        ...

    async def get(self, sha256: str) -> bytes:
        """Return the bytes.

        Raises:
            StorageCorrupt: they are missing, or do not match the hash.
        """
        ...


class Journals(Protocol):
    """Records. The holder of the lease writes them, everybody reads them. All methods may raise a `StorageError`."""

    blobs: Blobs
    """What records refer to."""

    async def commit(self, commit: Commit) -> bool:
        """Write everything or nothing. Return whether the lease was given back: this was asked for, and no command
        waits.

        Raises:
            Fenced: the epoch is not the lease's, or `expected_seq` is not the last seq.
        """
        ...

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        """Do `commit` for a session that does not exist yet. The same transaction makes it, with the id and key of
        the commit's row, and takes its lease with the commit's epoch.

        Raises:
            Fenced: there is such a session, or another one has the key.
            UsageError: the id or the key is not valid.
        """
        ...

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        """Return records in order, including those shared with the parent, with their hash chain checked.

        Raises:
            StorageCorrupt: a record was changed, removed or reordered. The message says which.
        """
        ...

    async def recover(self, session: str) -> Recovered:
        """Return everything that a driver continues from. Raises what `read` raises. A branch has no snapshot until
        its own first."""
        ...

    async def select(
        self,
        session: str,
        types: Sequence[str],
        upto_seq: int,
        read: Callable[[Iterator[Selected]], T],
        *,
        from_seq: int = 1,
        also: Sequence[int] = (),
    ) -> T:
        """Return what `read` makes of the records of these types between the two, in order, including those shared
        with the parent; `also` names earlier ones that it reads first, of whatever type.
        Their hash chain is not checked: the caller has another proof. `read` runs beside the event loop where records
        come from a disk; they are not all in memory at once.
        """
        ...

    async def last_seq(self, session: str) -> int:
        """Return the seq of the newest record; 0 for an empty journal."""
        ...


class Leases(Protocol):
    """Leases: who may write a session. Every method may raise a `StorageError`."""

    async def lease(self, session: str, holder: Holder, duration_ms: int, over: Lease | None = None) -> Lease:
        """Take the session's lease with a new epoch if it is free or lapsed, or take it `over` from exactly that
        lease, whose holder is dead. Return the lease in force, which is ours if its holder is ours. The store's
        clock measures its time, from some moment during this request.
        """
        ...

    async def situation(self, session: str) -> Situation | None:
        """Return what decides whether exactly that session is to be driven; None if it does not exist."""
        ...

    async def leased(self) -> Collection[str]:
        """Return the sessions of all leases in force."""
        ...

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        """Restart the time of those leases that are still ours, lapsed or not. Return the others, which have a newer
        epoch or were given back.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Nothing happens if another epoch has begun."""
        ...


class Inbox(Protocol):
    """Takes sessions and commands from senders. Every method may raise a `StorageError`."""

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
        """Return the commands that no commit has acknowledged, oldest first."""
        ...


class Index(Protocol):
    """The content of a home, as rows that derive from journals. Every method may raise a `StorageError`."""

    async def news(self, since: Mark | None = None) -> News:
        """Return the sessions with new records or commands since the mark, from any process. Without a mark: none."""
        ...

    async def session(self, session: str) -> SessionRow | None:
        """Return the row of exactly that session."""
        ...

    async def find(self, name: str) -> list[str]:
        """Return session ids for a whole id, a unique prefix, `channel:chat` or `last`: none, one, or several."""
        ...

    async def sessions(self, sought: Sought = EVERY, limit: int = 20) -> list[SessionRow]:
        """Return the newest of these sessions first, by the position of their last record."""
        ...

    async def branches(self, session: str) -> list[str]:
        """Return the ids of the sessions that branched off from this one, oldest first."""
        ...

    async def due(self, upto_ms: int, limit: int = 20) -> list[SessionRow]:
        """Return the sessions that are due by then, longest waiting first."""
        ...

    async def granting(self) -> list[SessionRow]:
        """Return the sessions with grants, in the order in which they were made."""
        ...

    async def approvals(self, session: str = "", is_open: bool = True) -> list[Approval]:
        """Return approvals by age, of one session or of all."""
        ...

    async def approval(self, approval_id: str) -> Approval | None:
        """Return one approval, open or decided."""
        ...


class Store(Journals, Leases, Inbox, Index, Ledger, Services, Protocol):
    """Everything of a home's store, with its check. Callers that need less take a smaller protocol."""

    async def delete(self, lease: Lease) -> None:
        """Remove the session with everything that only it has: records, rows, commands, blobs. No byte of them stays.
        If it is interrupted, the session still exists, and may be empty: delete it again.

        Raises:
            Fenced: the lease is over, or another session branched off from this one.
        """
        ...

    async def verify(self) -> Verified:
        """Read everything, and return all damage, and separately what was erased."""
        ...

    async def aclose(self) -> None:
        """Write what is pending, and close every file and thread."""
        ...


# --- providers ----------------------------------------------------------------------------------


class Wire(Protocol):
    """How one family of providers encodes a conversation. Pure; the same input always has the same bytes."""

    name: str
    keeps_tools: bool
    """Whether the last pass still lists the tools, and its tail forbids calls. Otherwise `base` gets no tools for it.
    Such a wire gets `is_last_pass` only if `base` had tools."""

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Return the body before the first message: up to the opening bracket of the list, or up to the comma after a
        system message in the list. At least one message must follow.
        """
        ...

    def message(self, message: Message) -> Sequence[bytes]:
        """Return the message as elements of the list: one or more encoded JSON objects."""
        ...

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """Return the body after the last message: closing bracket, output cap, streaming, the rest."""
        ...


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of what is arriving. It is shown and never stored."""

    kind: Literal["text", "reasoning", "tool_output"]
    text: str
    session: str = ""
    key: str = ""


OnDelta = Callable[[Delta], None]
OnCut = Callable[[ModelCut], None]
"""Takes what had come of a response when it was cut. The words went to `on_delta`."""


class ModelAttempt(msgspec.Struct, frozen=True):
    """What a provider receives."""

    facts: ModelFacts
    body: bytes
    """The exact bytes to send."""
    is_streaming: bool
    idle_s: float
    """The longest silence before the attempt fails."""
    outcomes: int
    """How many model calls for the same purpose have an outcome in the session's journal, by which a scripted model
    selects its line."""
    on_delta: OnDelta
    """Shows what arrives, as it arrives."""
    on_cut: OnCut
    """Called when the attempt is cancelled."""
    check: Check
    """Called right before the request is written."""
    purpose: Purpose = "work"


class Provider(Protocol):
    """A model's server, or something that answers like one. The core retries attempts; a provider never does."""

    wire: Wire

    async def respond(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        """Send the request and read the response.

        Cancellation closes the connection; the words so far went to `on_delta`. Never raises for what a server does.

        Raises:
            Fenced: the attempt's check failed, and nothing was sent.
        """
        ...

    async def aclose(self) -> None:
        """Close the pooled connections."""
        ...


# --- tools --------------------------------------------------------------------------------------


class CallContext(msgspec.Struct, frozen=True):
    """What a tool receives: typed capabilities, no globals."""

    session: str
    call_id: str
    key: str
    """The same for every attempt of the call: an idempotency key for other systems."""
    workspace: str
    timeout_s: float
    idle_s: float
    on_output: Callable[[str], None]
    """Shows output as it is made."""
    check: Check
    """Called right before each effect."""
    deps: Any = None
    """What the program gave to the run for its own functions. It is in memory only."""
    expects: Expectation | None = None
    """What the tool planned, as the intent recorded it."""
    walled: Walled | None = None
    """The sandbox of its programs, as the intent recorded it."""
    offers: Callable[[str], bool] = lambda _: False
    """Whether the run has a tool of this name."""
    capabilities: tuple[object, ...] = ()
    """What `get` finds by its type."""
    policy: Policy = Policy()
    """The rules of the run: a tool that connects compares each address with them."""
    reads_images: bool = False

    def get(self, kind: type[T]) -> T:
        """Return the capability of a type: what the program gave to the run, or what the runtime offers to tools.

        Raises:
            LookupError: nothing has this type.
        """
        for each in (self.deps, *self.capabilities):
            if isinstance(each, kind):
                return each
        raise LookupError(f"This runtime offers no {kind.__name__} to its tools.")


class Medium(msgspec.Struct, frozen=True):
    """An image or a PDF that a tool returns."""

    media_type: MediaType
    content: bytes


class RawResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool returns, before it is redacted, clipped and labelled for the record."""

    status: Literal["ok", "error", "timeout", "unknown"]
    text: str
    detail: str = ""
    """Details for the journal only: the end of a traceback, a killed process's pid."""
    trust: Trust | None = None
    """The trust of this text, if it is less than the tool declares."""
    origin: str = ""
    """What the tool read, as a name: a host, a server. Empty: the tool's own name says all."""
    is_private: bool | None = None
    """Whether the text shows what is not meant for others; None: as the tool's spec says."""
    media: tuple[Medium, ...] = ()
    """What belongs to the result beside the text. The text says where."""
    is_negative: bool = False
    """The error status is an answer, as `evidence.Evidence.is_negative`."""
    is_known: bool = False
    """It was answered from what is known: a note says so."""
    is_unavailable: bool = False
    """The tool could not work, whatever its arguments are: a service is down, a program is missing."""
    background: BackgroundProcess | None = None
    requests: Requests = NO_REQUESTS
    """What its programs asked of the network. `background` is as in `CallResult`."""


class Tool(Protocol):
    """A tool."""

    spec: ToolSpec

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Run the call. The arguments have passed the schema. An exception becomes a tool_execution failure."""
        ...

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Return what will be there when the call has happened; None unless `on_interrupt` is `probe`."""
        ...

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Return whether the plan's result is there, and remove what an interrupted call left half done."""
        ...


class Proposal(msgspec.Struct, frozen=True):
    """What the gates judge: a call that a model proposes, with everything that matters for it."""

    call: ToolCall
    session: str
    settings: Settings
    principal: Principal = NOBODY
    """The sender for whom the call happens."""
    labels: tuple[Label, ...] = ()
    """Everything that the session contains by now, which the model may follow."""
    taint: Taint = CLEAN
    """The flags of the session."""
    covered: tuple[str, ...] = ()
    """What approvals of this run cover (`tools.Decision.covers`)."""
    grants: tuple[Grant, ...] = ()
    """The session's grants. Some may have ended."""
    now_ms: int = 0
    started: int = 0
    """How many other calls of the session started within the last hour; 0 if nothing limits them."""
    has_plan: bool = False
    """The run has a plan."""
    written: tuple[Written, ...] = ()
    """The files that file tools wrote in the session, as far as they are remembered."""
    is_approved: bool = False
    """Somebody approved it: `ask` is allowed, and `deny` still rules. The caller compares what was approved."""
    check: Check | None = None
    """Called right before a hook is started. Without it, nobody makes the call, and no hook is asked."""


class Hooks(Protocol):
    """Asks and tells the hooks of a runtime."""

    async def ask(self, hook: Hook, occasion: Occasion, check: Check) -> HookAnswer:
        """Return what the hook answers within its time limit. If it is late or fails, `on_failure` counts.

        Raises:
            Lapsed: the check failed, and the hook was not started.
        """
        ...

    async def aclose(self) -> None:
        """End what still runs."""
        ...


class Notifier(Protocol):
    """Notifies people of what happens to sessions."""

    async def notify(self, session: str, workspace: str, due: NotificationDue, check: Check) -> Notified:
        """Notify once, even if a process before this one tried, and return what became of it.

        Raises:
            Lapsed: the check failed, and nothing was done.
        """
        ...

    async def aclose(self) -> None:
        """End what still runs."""
        ...


class Tools(Protocol):
    """The tools of a runtime behind their gates."""

    @property
    def version(self) -> int:
        """A number that grows with each change of the tools."""
        ...

    def add(self, tool: Tool) -> None:
        """Take in one more tool; the same one again changes nothing. Runs choose by `Settings.allow_tools`.

        Raises:
            UsageError: the name is taken, or not every provider accepts it.
        """
        ...

    def confine(self, sandbox: Sandbox) -> None:
        """Start programs in this sandbox from now on."""
        ...

    def specs(self, settings: Settings) -> Sequence[ToolSpec]:
        """Return what the model is offered, in a stable order."""
        ...

    def is_quick(self, name: str, settings: Settings) -> bool:
        """Return whether judging a call of that tool waits for nothing: no plan, no slow gate."""
        ...

    async def admit(self, proposal: Proposal) -> Admission:
        """Ask all gates about a proposed call. This has no effect."""
        ...

    async def reach(self, proposal: Proposal) -> Reach:
        """Return what a call reaches by now, whether or not it may run. This has no effect."""
        ...

    def place(self, session: str, resources: Sequence[Resource]) -> AbstractAsyncContextManager[None]:
        """Wait for a place to run in. No other session of this process has one for what this call changes."""
        ...

    async def run(self, name: str, arguments: str, context: CallContext) -> RawResult:
        """Run an admitted call with its canonical arguments. Exceptions become results.

        Raises:
            Fenced: the context's check failed, and nothing happened after it.
        """
        ...

    async def probe(self, proposal: Proposal, expectation: Expectation) -> Probed:
        """Ask the tool whether an interrupted call happened."""
        ...

    async def end_orphans(self, keys: Sequence[str]) -> None:
        """End every process that has one of the call keys in its environment."""
        ...

    async def put_aside(self, session: str, *, is_first: bool) -> str:
        """Return once what of its commands was put aside; a first driver looks at what a killed process left, too."""
        ...

    def in_background(self, session: str) -> Collection[str]:
        """Return the ids of the processes that run in the background of a session, in this runtime."""
        ...

    async def end_background(self, session: str) -> None:
        """End these processes, and forget what they printed."""
        ...

    def survey(self, workspace: str, since_ms: int, named: Sequence[str]) -> str:
        """Return a digest of all files of a workspace, the same when they are the same again. Blocks for up to some
        seconds. Files that did not change since then are compared by their times, all others by their content. Of
        too many, only those `named` are compared, and the digest begins with `evidence.PARTIAL`.
        """
        ...

    async def aclose(self) -> None:
        """End what still runs."""
        ...


Resolver = Callable[[str], Awaitable[Provider]]
"""Return the provider for a PROVIDER:MODEL, made once. Raises `UsageError` or `ProviderUnavailable`."""

Judge = Callable[[Output, str], Coroutine[Any, Any, Verdict]]
"""Returns whether an answer matches the schema of its run. It does not block other sessions."""
