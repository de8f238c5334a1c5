"""The state of a session, folded from its journal: open work, windows and counts, never the transcript. `phase` names
the situation that the rest follows from; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from holdfast.core.compaction import Compaction
from holdfast.core.failing import NOT_FAILING, Failing
from holdfast.core.hooked import NOTHING, Hooking
from holdfast.core.ledger import Ledger
from holdfast.core.measure import Measure, Rates
from holdfast.core.pace import Starts
from holdfast.core.plan import Planned
from holdfast.core.progress import Progress
from holdfast.core.prompted import Prompted
from holdfast.core.reflecting import Reflecting
from holdfast.core.totals import Totals
from holdfast.core.waited import Waited
from holdfast.protocol.circuits import CircuitState
from holdfast.protocol.commands import NOBODY, Principal
from holdfast.protocol.events import RunStatus
from holdfast.protocol.evidence import ANY_CALL, Likeness
from holdfast.protocol.fence import Walled
from holdfast.protocol.grants import Grant
from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Verdict
from holdfast.protocol.notify import NotificationDue
from holdfast.protocol.request import Purpose, SidePurpose
from holdfast.protocol.settings import Group, Settings
from holdfast.protocol.tools import (
    EVERYTHING,
    BackgroundProcess,
    Effect,
    Expectation,
    OnInterrupt,
    Resource,
    Touched,
)
from holdfast.protocol.trust import CLEAN, Label, Taint

Phase = Literal[
    "idle", "preparing", "calling", "backing_off", "admitting", "acting", "waiting", "paused", "stopping"
]
"""idle: no run is open. preparing: the next request must be rendered. calling: a model call is open. backing_off: a
model call failed and will be tried again. admitting: the gates must judge a tool call. acting: tool calls are open.
waiting: a person must decide or answer. paused: a person paused the run. stopping: the run ends as soon as no call is
open."""


RESTING: frozenset[Phase] = frozenset({"idle", "backing_off", "waiting", "paused"})
"""In these phases a driver has nothing to do, so the time does not count against `wall_s`."""

_NO_MODEL = ModelFacts("", "", price="unknown")
"""The facts of the model in a session that never ran one."""


class Stopping(msgspec.Struct, frozen=True, gc=False):
    """How the run is to end."""

    status: RunStatus
    reason: str
    message: str
    grace_until_ms: int
    by: str = ""


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run, from the first words to its end: the open run, else the last one."""

    number: int
    started_ms: int
    totals: Totals = Totals()
    driven_ms: int = 0
    """Time in which a driver was at work."""
    reply: Literal["", "answer", "cut_answer", "given", "refusal", "empty", "calls"] = ""
    """The kind of the last response; empty until the last request has one. `given`: its call of `answer` counts."""
    goal_seq: int = 0
    """The first message that opened this run. A continuation keeps the value of the run that it continues."""
    answer_seq: int = 0
    """The record with the last words of the model; 0 before its first words."""
    cut: tuple[int, ...] = ()
    """The records before it whose words reached the output limit, and from which it goes on."""
    empty_replies: int = 0
    verdict: Verdict | None = None
    """Whether the last response matches the schema; None if it was not an answer, or the run has no schema."""
    repairs: int = 0
    """How often a note asked the model to repair its answer."""
    was_doubted: bool = False
    """The model was told once that its confidence is low."""
    was_asked_to_call: bool = False
    """The model was asked once to answer by a call of `answer`."""
    failing: Failing = NOT_FAILING
    """The calls that failed in the same way, up to now."""
    overflows: int = 0
    waited: Waited = Waited()
    warned: tuple[str, ...] = ()
    """The warnings that were given, each once: limits that are 80 % used, a response over its cap."""
    landing: str = ""
    """The limit that was reached: only a last pass follows, unless the limit is raised before it."""
    has_landed: bool = False
    """The last pass was answered."""
    covered: tuple[str, ...] = ()
    """What approvals that were used cover for the rest of the run (`tools.Decision.covers`)."""
    is_paused: bool = False
    question: str = ""
    """What the paused run asks the user; empty if a person paused it."""
    stopping: Stopping | None = None
    ended_ms: int = 0
    """0 while it is open. Then the status is empty."""
    status: str = ""
    reason: str = ""
    message: str = ""


TIMER = "timer"
"""Who resumes a run whose wait is over, if no person does."""
NO_EPOCH = -1
"""The epoch of the attempts that a branch inherits, or that came in a file: no driver here has it."""


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    """The open attempt of a model call."""

    key: str
    epoch: int
    attempt: int
    size_bytes: int
    expected_tokens: int
    output_cap_tokens: int
    reserved_microusd: int
    reserved_tokens: int
    is_last_pass: bool
    facts: ModelFacts
    """The model that it was sent to, even if the settings have changed since."""
    purpose: Purpose = "work"
    kinds: Kinds = NO_KINDS
    begun_ms: int = 0
    user: str = ""
    """The name of who the run was for when it began."""


class Models(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The session's model calls for work: what their events update."""

    started: int = 0
    """The attempts that were started in the session. The key of the next one is derived from it."""
    outcomes: int = 0
    """Attempts with a response or a recorded failure, of the whole session."""
    open: ModelCall | None = None
    """The open attempt. `Responded`, `ModelCallFailed`, `ModelCallCut` or `ModelCallAbandoned` closes it."""
    failed_attempts: int = 0
    """The failed attempts of the model call that will be tried again."""
    retry_at_ms: int = 0
    measure: Measure = Measure()
    learnt: dict[str, Rates] = {}
    """By name, the rates of other models that the session used, at most `MOST_LEARNT`."""
    base: str = ""
    """The base of the last request (`request.Request`)."""
    base_bytes: int = 0
    anew_seq: int = 0
    """The last request that began anew. With what it quotes, it is where a resume reads from."""
    quoted: tuple[int, ...] = ()
    """The earlier records that it quotes."""
    model: str = ""
    """The name of the model that it was sent to."""
    size_bytes: int = 0
    """Its size."""
    is_short: bool = False
    """The next request waits for the end of a side call, whose reservation it needs."""
    learnt_window_tokens: int = 0
    """The model's window, learnt from a refusal of the provider; 0: the settings say it."""
    overflow_said: str = ""
    """What the provider said in that refusal."""
    refs: tuple[int, ...] = ()
    """The marks of the ids that providers gave to calls (`refs`)."""
    insists: bool = False
    """A person does not want to wait any longer: the next attempt goes out although its service asked for a pause."""
    circuits: dict[str, CircuitState] = {}
    """By name, the circuits that are not closed, as the session last met them."""


class Tally(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The side calls for one purpose."""

    outcomes: int = 0
    """Attempts with a recorded outcome, of the whole session."""
    asked: int = 0
    """The side calls of the open run, without further attempts of the same one."""
    spent_microusd: int = 0
    """What they cost the open run, with what attempts with an unknown outcome hold."""
    turns: int = -1
    """The turns of the run when the last one was over, or given up. It is not due again in the same turn."""
    failed_attempts: int = 0
    """The failed attempts of the side call that will be tried again."""
    retry_at_ms: int = 0
    """When that may be."""


class Side(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The session's side calls: model calls beside the conversation, at most one at a time (`core.side`)."""

    started: int = 0
    """The attempts that were started in the session. The key of the next one is derived from it."""
    open: ModelCall | None = None
    """The open attempt. `SideCallEnded` or `ModelCallAbandoned` closes it."""
    tallies: dict[SidePurpose, Tally] = {}

    def tally(self, purpose: SidePurpose) -> Tally:
        return self.tallies.get(purpose, NO_TALLY)


NO_TALLY = Tally()


class ToolAttempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One attempt of a tool call, as its intent recorded it."""

    number: int
    epoch: int
    effect: Effect
    on_interrupt: OnInterrupt
    timeout_s: float
    expects: Expectation | None = None
    walled: Walled | None = None


class Permission(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A person allowed exactly this."""

    approval_id: str
    sha256: str
    """The hash of everything that the person was shown."""
    covers: str = ""
    """What it covers beside the call, once it is used (`tools.Decision.covers`)."""
    is_consumed: bool = False
    """An attempt has started with it. It counts for every further attempt of the same call."""


class Proposed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The model asked for the call; the gates decide next."""


class Waiting(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """A person has to decide, or to answer its question."""

    approval_id: str
    sha256: str
    deadline_ms: int
    is_question: bool = False
    covers: str = ""
    """What an approval would cover beside the call."""
    grant: Grant | None = None
    """The grant that an approval may make, without its id and its end."""


class Answered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A person answered the question."""

    text: str


class Denied(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A person denied the call."""

    note: str


class Expired(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Nobody decided, or answered, in time."""

    was_question: bool


class Started(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An attempt has no outcome yet."""

    attempt: ToolAttempt


class Done(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The model has its result."""

    signature: str
    """The digest of the call and its exact result, which the guard against repeats compares; empty for a call that
    was waiting."""


Stage = Proposed | Waiting | Answered | Denied | Expired | Started | Done


class Call(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call of the turn in progress."""

    call_id: str
    ref: str
    name: str
    arguments: str
    """The arguments as the model wrote them, until the gates make them canonical."""
    is_masked: bool = False
    """`arguments` is a masked copy, which never runs."""
    stage: Stage = Proposed()
    interrupted: ToolAttempt | None = None
    """The last attempt, whose driver is gone. It may be probed or run again."""
    permission: Permission | None = None
    """What a person allowed."""
    resources: tuple[Resource, ...] | None = None
    """What the call touches, as the gates last found; None: no gate has judged it yet."""
    likeness: Likeness = ANY_CALL
    """What makes it the same as another call, as the gates found; nothing before it starts."""
    written: str = ""
    """The arguments as the model wrote them, once the gates changed their meaning; else empty. The gates judge these
    again if the call is interrupted: hooks change them once, not twice."""


class Deferred(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call that waits for a person while the model works on something else. For the model it is over."""

    id: str
    """The id of its approval."""
    name: str
    sha256: str
    """The hash of everything that the person is shown."""
    deadline_ms: int
    is_question: bool = False
    covers: str = ""
    """What an approval would cover beside the call."""
    grant: Grant | None = None
    """The grant that an approval may make, without its id and its end."""
    is_approved: bool = False
    """A person approved it: the same call may run once."""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The turn in progress: what the events of tool calls update."""

    number: int = 0
    calls: tuple[Call, ...] = ()
    repeats: tuple[tuple[str, int], ...] = ()
    """Signatures of the last turn's calls, and for how many turns in a row each has come."""


class Unsaid(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What no request has carried yet."""

    words_seq: int = 0
    """The first record with words of a person that need an answer; 0: no words wait."""
    last_words_seq: int = 0
    """The newest message that the next request brings; 0: no message is new. It can be set while `words_seq` is 0:
    the words of a stopped run are still sent, but they open no run."""
    notes: tuple[str, ...] = ()
    """The subjects of the runtime's notes to the model."""


class State(msgspec.Struct, frozen=True, gc=False):
    """The fold of a journal, in groups: each is updated by the events of one subject."""

    session: str = ""
    key: str = ""
    created_ms: int = 0
    title: str = ""
    seq: int = 0
    at_ms: int = 0
    awake_ms: int = 0
    """The time of the last record by its driver's clock (`Record.awake_ms`)."""
    epoch: int = 0
    """The epoch of the last driver. What drivers of older epochs started is no longer running."""
    groups: dict[str, Group] = {}
    """All groups of settings that the journal has, by name: as many as were ever different."""
    settings: Settings | None = None
    """The settings in force."""
    run: Run | None = None
    """The open run, else the last one, else None."""
    before: Totals = Totals()
    """What all runs before `run` used."""
    principal: Principal = NOBODY
    """The sender for whom the run works: the last one who spoke, or who continued the run. It has only the scopes
    that all speakers of the run share. `name` is their label."""
    taint: Taint = CLEAN
    """The flags: what the model may have read."""
    labels: tuple[Label, ...] = ()
    """Every source of content in the session (a tool or a speaker) with its trust, each once."""
    approvals: int = 0
    """How many approvals were requested so far. The id of the next one is derived from it."""
    grants: tuple[Grant, ...] = ()
    """The grants that nobody revoked, oldest first. One that has ended stays until a question has told of it."""
    granted: int = 0
    """How many grants were made so far."""
    deferred: tuple[Deferred, ...] = ()
    """The calls that were put aside until a person has decided."""
    notifications: tuple[NotificationDue, ...] = ()
    """What somebody is still to be notified of."""
    notices: int = 0
    """How many notifications were due so far."""
    noticed_approvals: int = 0
    """How many approvals were requested when somebody was last notified that the session waits."""
    starts: Starts = ()
    """The starts of calls within the last hour."""
    models: Models = Models()
    side: Side = Side()
    reflecting: Reflecting = Reflecting()
    prompt: Prompted = Prompted()
    turn: Turn = Turn()
    progress: Progress = Progress()
    unsaid: Unsaid = Unsaid()
    plan: Planned = Planned()
    parent: str = ""
    """The session that this one branched off from."""
    inherited: Totals = Totals()
    """What the shared records used. The parent paid for it."""
    compaction: Compaction = Compaction()
    """The last compaction of the view."""
    ledger: Ledger = Ledger()
    """What was done, in short."""
    hooking: Hooking = NOTHING
    """What hooks have not answered yet."""
    background: tuple[BackgroundProcess, ...] = ()
    """The processes that the run started in the background, and that nobody has seen end."""
    restoring_seq: int = 0
    """The record of an intent to put files back that has no outcome yet; 0 without one."""


def open_run(state: State) -> Run | None:
    """The run that has not ended."""
    return state.run if state.run is not None and not state.run.status else None


def has_begun(state: State) -> bool:
    """Whether the open or last run has sent a request."""
    return state.run is not None and state.run.totals.model_calls > 0


def phase(state: State) -> Phase:
    """Return the phase of the session, computed from the state alone."""
    run = state.run
    # The order decides. Stopping comes before everything else. An open model call or a running tool goes on
    # during a pause, which only keeps new work from starting, so "calling" and "acting" come before "paused".
    if run is None or run.status:
        return "idle"
    if run.stopping is not None:
        return "stopping"
    if state.models.open is not None:
        return "calling"
    is_open = False
    for call in state.turn.calls:
        if type(call.stage) is Started:
            return "acting"
        is_open = is_open or type(call.stage) is not Done
    if run.is_paused:
        return "paused"
    if is_open:
        return "admitting" if next(admissible(state), None) is not None else "waiting"
    if state.deferred and rests_on_people(state):
        return "waiting"
    return "backing_off" if state.models.retry_at_ms else "preparing"


def waits_for_people(state: State) -> bool:
    """Return whether a person has yet to decide about a deferred call."""
    return any(not each.is_approved for each in state.deferred)


def rests_on_people(state: State) -> bool:
    """Return whether the model has answered, and nothing else is left than that decision."""
    run, unsaid = state.run, state.unsaid
    if run is None or run.landing or unsaid.words_seq or unsaid.notes:
        return False
    return run.reply in ("answer", "cut_answer", "given") and waits_for_people(state)


def admissible(state: State) -> Iterator[Call]:
    """The calls that may be put before the gates now.

    Calls take effect in the order in which the model wrote them; those that do not touch the same run side by side.
    What a call touches is known once the gates have seen it, so that they see one after the other.
    """
    before: Touched | None = None  # most turns have only one call
    running: Touched | None = None
    for call in state.turn.calls:
        if type(call.stage) is Done:
            continue
        touches = call.resources or ()
        is_free = before is None or not before.is_in_conflict(touches)
        if is_free and touches and type(call.stage) is Proposed:
            running = running or _touched_by(
                [each for each in state.turn.calls if type(each.stage) is Started]
            )
            is_free = not running.is_in_conflict(touches)
        if type(call.stage) is Proposed and is_free:
            yield call
        # Not judged yet, or a shell command, which may touch anything: no later call may pass it. An example:
        # the model asks for read a, shell, read b. `read a` and the shell command may go before the gates;
        # `read b` waits.
        if call.resources is None or EVERYTHING[0] in call.resources:
            return
        before = before or Touched()
        before.add(call.resources)


def touched_by_others(state: State, call: Call) -> Touched:
    """Return what the earlier calls touch that are not done yet, and the later ones that run."""
    # A later call may run because this one touched nothing of it when the gates first saw it. Since then a person
    # was asked, or the process was interrupted, and now it may touch something else.
    calls = state.turn.calls
    if len(calls) == 1:
        return Touched()
    place = next((place for place, each in enumerate(calls) if each.call_id == call.call_id), len(calls))
    earlier = [each for each in calls[:place] if type(each.stage) is not Done]
    return _touched_by([*earlier, *(each for each in calls[place + 1 :] if type(each.stage) is Started)])


def _touched_by(calls: Iterable[Call]) -> Touched:
    touched = Touched()
    for each in calls:
        touched.add(EVERYTHING if each.resources is None else each.resources)
    return touched


def open_model_call(state: State, key: str) -> ModelCall | None:
    """The open model call of that key."""
    for each in (state.models.open, state.side.open):
        if each is not None and each.key == key:
            return each
    return None


def open_model_calls(state: State) -> tuple[ModelCall, ...]:
    """The open call for work, and the open side call."""
    return tuple([each for each in (state.models.open, state.side.open) if each is not None])


def facts(state: State, key: str = "") -> ModelFacts:
    """Return the model of the open model call with this key; else of the conversation's next model call."""
    # A model call keeps the model that it was sent to. If the user changes the model meanwhile, the response is
    # still charged at the price of the model that gave it.
    if key and (model_call := open_model_call(state, key)) is not None:
        return model_call.facts
    return state.settings.model.facts if state.settings is not None else _NO_MODEL


def facts_for(state: State, purpose: SidePurpose) -> ModelFacts:
    """Return the model of the next side call for this purpose."""
    settings = state.settings
    if settings is None:
        return facts(state)
    other = settings.context.compact_model if purpose == "summary" else settings.conduct.reflection_model
    return other or facts(state)


def shares_request(state: State, purpose: SidePurpose) -> bool:
    """Whether the next side call for this purpose is the last request for work with one more message."""
    return facts_for(state, purpose).name == state.models.model


def next_key(state: State) -> str:
    """The key of the next attempt of a model call for work."""
    return f"m{state.models.started + 1}"


def next_side_key(state: State) -> str:
    """The key of the next attempt of a side call."""
    return f"s{state.side.started + 1}"


def call_of(state: State, call_id: str) -> Call | None:
    """The call of the turn with that id."""
    for call in state.turn.calls:
        if call.call_id == call_id:
            return call
    return None


def started_calls(state: State) -> list[tuple[Call, ToolAttempt]]:
    """The tool calls with an attempt that has no outcome yet, and that attempt."""
    return [(call, call.stage.attempt) for call in state.turn.calls if type(call.stage) is Started]


def is_complete(turn: Turn) -> bool:
    """Whether every call of the turn has its result."""
    for call in turn.calls:  # noqa: SIM110 - each rule asks, and a generator takes three times as long
        if type(call.stage) is not Done:
            return False
    return True


def starts_of(call: Call) -> int:
    """How often the call was started."""
    # Attempts are numbered from 1 and never reset: t3.c1#2 is the second attempt of the first call of turn 3.
    attempt = call.stage.attempt if type(call.stage) is Started else call.interrupted
    return attempt.number if attempt is not None else 0


def action_key(call: Call) -> str:
    """CALL#N, where N is the number of the call's open or last attempt; 0 before the first one."""
    return f"{call.call_id}#{starts_of(call)}"
