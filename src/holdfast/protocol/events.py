"""The closed union of facts that a journal can have, grouped by subject, each in the past tense.

An event carries what the fold needs and what a person at 3 am needs, and nothing that another event
says already. Adding an optional field needs no new version; a changed meaning needs a new `v` here, an
upcaster in `upcast` and a golden journal. Types are retired, never deleted.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from holdfast.protocol.answers import Answer
from holdfast.protocol.approvals import ApprovalConsumed as ApprovalConsumed
from holdfast.protocol.approvals import ApprovalRequested as ApprovalRequested
from holdfast.protocol.approvals import ApprovalResolved as ApprovalResolved
from holdfast.protocol.approvals import Resolution as Resolution
from holdfast.protocol.budgets import Reached
from holdfast.protocol.circuits import CircuitChanged as CircuitChanged
from holdfast.protocol.commands import Scope
from holdfast.protocol.compaction import ContextCompacted as ContextCompacted
from holdfast.protocol.compaction import ViewPart as ViewPart
from holdfast.protocol.evidence import ANY_CALL, Likeness
from holdfast.protocol.failures import Failure
from holdfast.protocol.fence import Walled
from holdfast.protocol.files import FilesRestored as FilesRestored
from holdfast.protocol.files import FilesRestoring as FilesRestoring
from holdfast.protocol.grants import GrantMade as GrantMade
from holdfast.protocol.grants import GrantRevoked as GrantRevoked
from holdfast.protocol.hooks import HookEvent
from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.messages import Attachment, Estimated, Finish, Part, Usage, Verdict
from holdfast.protocol.notify import NotificationDue as NotificationDue
from holdfast.protocol.notify import NotificationEnded as NotificationEnded
from holdfast.protocol.plan import Plan
from holdfast.protocol.prompt import PromptBuilt as PromptBuilt
from holdfast.protocol.reflection import Reflection
from holdfast.protocol.request import Purpose, Request, SidePurpose
from holdfast.protocol.settings import Group, SettingsRef
from holdfast.protocol.tools import (
    EVERYTHING,
    CallResult,
    Decision,
    Effect,
    Expectation,
    OnInterrupt,
    Resource,
)

RunStatus = Literal["done", "failed", "limit", "stuck", "interrupted"]


# --- session ------------------------------------------------------------------------------------


class SessionOpened(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The first record of a journal."""

    session: str
    key: str = ""
    """CHANNEL:CHAT, empty for a session without one."""
    created_by: str = ""


class SessionForked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The first own record of a branch: what the parent recorded up to `at_seq` is shared, not copied."""

    session: str
    parent: str
    at_seq: int
    is_rewind: bool = False
    """The branch takes over from its parent: `SessionRenamed` completes that."""


class SessionRenamed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The name CHANNEL:CHAT is another one from here on: a branch took it over, or this branch has it now."""

    key: str = ""
    other: str = ""
    """The session that has the name now, or that had it before."""


class SessionImported(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The records before this one came in a file. Its permissions no longer count, its files are not this home's to
    put back, and what it had in flight no driver here started."""


class Attached(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A driver took the session; only what is started in this epoch may run.

    A tool call that an older epoch left open, and that may be looked at or run again, goes before the gates again:
    no other record says so.
    """

    epoch: int
    holder: str = ""
    background: tuple[str, ...] = ()
    """The processes in the background that still run. The others are gone."""


# --- run ----------------------------------------------------------------------------------------


class MessageReceived(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Words for the agent, redacted already."""

    text: str
    sender: str = ""
    """The label of the sender (`Principal.label`)."""
    scopes: tuple[Scope, ...] = ()
    """What the sender might ask for."""
    attachments: tuple[Attachment, ...] = ()
    head: str = ""
    """What the model reads before the text: the time."""


class SettingsStored(msgspec.Struct, frozen=True, gc=False):
    """Groups of settings that no earlier record of the journal has; what follows refers to them by name."""

    groups: dict[str, Group]
    """The groups of settings, by the SHA-256 of their encoding."""


class RunStarted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A run opened: fresh limits, these settings."""

    run: int
    settings: SettingsRef
    is_continuation: bool = False
    """No new message opened it: it goes on with what the last run left."""
    sender: str = ""
    """Who asked for the continuation, as `Principal.label`; empty where a message opened the run."""
    scopes: tuple[Scope, ...] = ()
    """What that sender might ask for."""


class SettingsChanged(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The open run has these settings from here on."""

    settings: SettingsRef


class RunPaused(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Nothing new starts until the run is resumed."""

    by: str = ""
    """Who paused it; empty for the runtime."""
    question: str = ""
    """What the model asks the user; empty if a person paused the run."""


class RunResumed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The pause is over; where there was none, the wait before another attempt is."""

    by: str = ""


class RunLanding(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The run reached a limit: one more call without tools gives an answer, then it ends `limit`."""

    reason: str
    message: str
    """The reason, in the words that the model and the user read."""


class RunStopping(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The run will end like this as soon as all open calls are closed."""

    status: RunStatus
    reason: str
    message: str = ""
    grace_until_ms: int = 0
    """When the grace ends, by the driver's clock (`Record.awake_ms`)."""
    by: str = ""
    """Who asked for it; empty for the runtime."""


class RunStopped(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The one terminal record of a run."""

    run: int
    status: RunStatus
    reason: str
    message: str = ""
    """Why the run ended, for the user; empty if it is simply done."""
    by: str = ""
    """Who asked for it, as in `RunStopping`."""


class NoteAdded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The runtime tells the model something, and the user sees it."""

    about: Literal[
        "cost", "tokens", "repeat", "empty", "continue", "calls", "cap", "takeover", "output", "files", "stall",
        "workspace", "plan", "reflection", "reflected", "answer", "arguments", "approval", "processes", "length",
        "aside",
    ] | Reached  # fmt: skip
    text: str


class Reflected(msgspec.Struct, frozen=True, gc=False):
    """The model judged, in the side call with this key, how the task is going."""

    key: str
    answer: Reflection


# --- model --------------------------------------------------------------------------------------


class ModelCallStarted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The intent of one attempt, with the exact request."""

    key: str
    epoch: int
    turn: int
    attempt: int
    model: str
    request: Request
    is_last_pass: bool = False
    """The last pass of a run that reached a limit: without tools."""
    purpose: Purpose = "work"


class ModelCallUnready(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The next attempt could not even be made: nothing was sent."""

    key: str
    failure: Failure
    retry_at_ms: int = 0
    """0: waiting does not help."""
    purpose: Purpose = "work"
    waits_for: str = ""
    """The circuit or the limit of `[rates]` that it waits for. Empty: something else is missing."""


class ModelCallUnaffordable(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The next attempt would break a limit, or does not fit: nothing was sent."""

    key: str
    reason: Literal["cost", "tokens", "context"] | Reached
    message: str
    size_bytes: int
    """The size of the request without its tail."""
    fresh_bytes: int = 0
    """How much of it the request before did not have."""
    purpose: Purpose = "work"
    kinds: Kinds = NO_KINDS
    """What it has of each kind of text."""


class Responded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A complete response of the conversation's model. An attempt of a side call ends in a `SideCallEnded`."""

    key: str
    parts: tuple[Part, ...]
    usage: Usage
    cost_microusd: int
    finish: Finish
    model: str = ""
    request_ref: str = ""
    duration_ms: int = 0
    first_delta_ms: int = 0
    estimated: Estimated = ()
    """The sides of the usage that the provider did not count, or not plainly."""
    calls_refused: int = 0
    """Calls that were not taken: those beyond the most that one response may have, and all of a refused response.
    They are not among the parts."""
    verdict: Verdict | None = None
    """Whether the answer matches the schema of its run; None for other responses."""
    workspace: str = ""
    """The state of the workspace after the turn before, looked at meanwhile; empty: nobody had to look."""


class ModelCallFailed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt that brought no response."""

    key: str
    failure: Failure
    retry_at_ms: int = 0
    """When it is tried again; 0: the run ends, or a shorter request follows at once."""
    usage: Usage = Usage()
    cost_microusd: int = 0
    """What the provider must be assumed to charge for it."""
    duration_ms: int = 0
    estimated: Estimated = ()
    """As of a response."""


class ModelCallCut(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A response that was stopped while it arrived: what a person may have read is kept, calls are not."""

    key: str
    text: str
    usage: Usage
    cost_microusd: int
    duration_ms: int = 0
    estimated: Estimated = ()
    """As of a response."""


class ModelCallAbandoned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The attempt is given up without an outcome: its driver is gone, or it did not end within the grace of a stop.
    Its reservation stays held, since it may have been charged."""

    key: str
    purpose: Purpose = "work"


class SideCallEnded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcome of an attempt of a side call. The conversation knows nothing of it."""

    key: str
    purpose: SidePurpose
    status: Literal["responded", "failed", "cut"]
    text: str = ""
    """The words of the response."""
    calls: int = 0
    """The tool calls in the response. They never run."""
    is_masked: bool = False
    """A secret was masked in the text."""
    usage: Usage = Usage()
    cost_microusd: int = 0
    estimated: Estimated = ()
    """As of a response."""
    finish: Finish = "stop"
    model: str = ""
    request_ref: str = ""
    duration_ms: int = 0
    first_delta_ms: int = 0
    failure: Failure | None = None
    retry_at_ms: int = 0
    """The earliest time of the next attempt; 0: not before the purpose is due again."""


# --- context ------------------------------------------------------------------------------------


class SummaryDiscarded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A summary is not used. The view is compacted without one."""

    key: str
    """The attempt that brought it."""
    problem: str
    """Why, as the end of a sentence."""


class CompactionAsked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Somebody wants the view to be compacted before the next request."""

    by: str = ""


class ContextRestored(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All messages are in the view again: the compactions before this one no longer count."""

    by: str = ""


# --- tools --------------------------------------------------------------------------------------


class ToolCallTold(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All gates let a call pass that only tells Holdfast something. The core takes what it says; nothing starts."""

    call_id: str
    name: str
    decisions: tuple[Decision, ...] = ()


class ToolCallQueued(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The call waits for calls before it that touch the same. Then it goes before the gates again."""

    call_id: str
    name: str
    resources: tuple[Resource, ...] = EVERYTHING


class ToolCallRefused(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The call will not run; the failure tells the model why."""

    call_id: str
    name: str
    failure: Failure
    decisions: tuple[Decision, ...] = ()
    nobody_for: Literal["", "approval", "question"] = ""
    """What a person would have been asked for; empty when the refusal is final without one."""


class ToolCallStarted(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All gates let the call pass, and this is the intent of one attempt of its effect."""

    call_id: str
    name: str
    epoch: int
    attempt: int
    effect: Effect
    on_interrupt: OnInterrupt
    timeout_s: float
    arguments: str = ""
    """Canonical JSON; empty when it is what the model wrote."""
    expects: Expectation | None = None
    is_masked: bool = False
    """The arguments are a masked copy: what ran is what the model wrote."""
    likeness: Likeness = ANY_CALL
    walled: Walled | None = None
    """The sandbox of the programs that it starts; None: it starts none of others."""
    decisions: tuple[Decision, ...] = ()
    """What the gates said."""
    resources: tuple[Resource, ...] = EVERYTHING
    """What it touches: calls that touch the same wait for it."""


class ToolCallFinished(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an attempt came to."""

    call_id: str
    result: CallResult


class ToolCallAbandoned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The call ends without a result. The text tells the model why: the outcome of an attempt is unknown, or the
    arguments are lost (`is_lost`)."""

    call_id: str
    text: str
    refused: ToolCallRefused | None = None
    """Why it could not be run again, when it was to be."""
    is_lost: bool = False
    """Only a masked copy of its arguments is left."""


class PlanChanged(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of `update_plan` was taken: this is the plan from here on."""

    call_id: str
    plan: Plan
    note: str = ""
    """Why it changed, as the model says."""


class AnswerGiven(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of `answer` was taken."""

    call_id: str
    answer: Answer
    verdict: Verdict | None = None
    """Whether its text matches the schema of the run; None without a schema."""
    is_doubted: bool = False
    """Its confidence is too low: the model was told to look again, and the run goes on."""


# --- hooks --------------------------------------------------------------------------------------


class HooksDue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Hooks are asked before this happens."""

    event: HookEvent
    subject: str
    reason: str = ""
    """Why it is to happen."""


HookStatus = Literal["ok", "denied", "failed"]


class HookEnded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A hook was asked about something, or told of it. What hooks say about a call is among its decisions."""

    hook: str
    event: HookEvent
    subject: str
    status: HookStatus
    reason: str = ""
    duration_ms: int = 0


SessionEvent = SessionOpened | SessionForked | SessionRenamed | SessionImported | Attached
RunEvent = (
    MessageReceived
    | SettingsStored
    | RunStarted
    | SettingsChanged
    | RunPaused
    | RunResumed
    | RunLanding
    | RunStopping
    | RunStopped
    | NoteAdded
    | Reflected
)
ModelEvent = (
    PromptBuilt
    | ModelCallStarted
    | ModelCallUnready
    | CircuitChanged
    | ModelCallUnaffordable
    | Responded
    | ModelCallFailed
    | ModelCallCut
    | ModelCallAbandoned
    | SideCallEnded
)
ToolEvent = (
    ToolCallTold
    | ToolCallQueued
    | ToolCallRefused
    | ToolCallStarted
    | ToolCallFinished
    | ToolCallAbandoned
    | PlanChanged
    | AnswerGiven
)
ContextEvent = ContextCompacted | SummaryDiscarded | CompactionAsked | ContextRestored
ApprovalEvent = ApprovalRequested | ApprovalResolved | ApprovalConsumed | GrantMade | GrantRevoked
NotifyEvent = NotificationDue | NotificationEnded
FileEvent = FilesRestoring | FilesRestored
HookFact = HooksDue | HookEnded
Event = (
    SessionEvent
    | RunEvent
    | ModelEvent
    | ContextEvent
    | ToolEvent
    | ApprovalEvent
    | FileEvent
    | HookFact
    | NotifyEvent
)

EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)

VERSIONS: dict[type[Event], int] = dict.fromkeys(EVENT_TYPES, 1)
"""The current version of each event."""

TriggerKind = Literal["attach", "command", "outcome", "finding", "timer", "fork", "import"]
"""A driver took the session, somebody asked, an attempt ended, a prepare step found something, a timer came due,
the session was branched off or imported."""


class Trigger(msgspec.Struct, frozen=True, gc=False):
    """What made the core decide, as the records that came of it name it."""

    kind: TriggerKind
    name: str = ""
    """The id of the command, the key of the action or timer."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """The envelope of an event in its journal."""

    session: str
    seq: int
    at_ms: int
    epoch: int
    cause: Trigger
    event: Event
    awake_ms: int = 0
    """How long its driver had been at work by then, the machine's sleep left out; 0: a visitor wrote it."""
