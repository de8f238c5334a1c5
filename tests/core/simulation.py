"""A session to which anything happens: outcomes in any order, commands and timers at any time, crashes at any point.

It plays the engine's part (one commit for a cause, with the prepare steps that follow) on nothing but `decide`,
`evolve` and `wanted`, and holds every commit against the invariants. Which way things go is a list of numbers, so
that a failure shrinks to a short story.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, TypeVar

from msgspec.structs import asdict

from holdfast.context.transcript import Transcript
from holdfast.core import budget, deferred, side_calls
from holdfast.core.causes import Attach, Cause, Commanded, Due, Finding, Outcome
from holdfast.core.decide import decide, decision
from holdfast.core.evolve import evolve
from holdfast.core.state import (
    RESTING,
    Phase,
    State,
    Waiting,
    action_key,
    open_model_calls,
    open_run,
    phase,
    started_calls,
)
from holdfast.core.summary import totals
from holdfast.core.wanted import (
    Admit,
    CallModel,
    Notify,
    Prepare,
    PrepareRequest,
    PrepareSide,
    RunHook,
    RunTool,
    Wait,
    is_wanted,
    wanted,
)
from holdfast.protocol import events as e
from holdfast.protocol.answers import Answer
from holdfast.protocol.commands import (
    Command,
    CommandBody,
    Compact,
    Continue,
    Pause,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Send,
    Stop,
    owner,
)
from holdfast.protocol.failures import Failure
from holdfast.protocol.grants import grant_in, permission_of
from holdfast.protocol.hooks import HOOK_EVENTS, Hook, HookAnswer
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.messages import ModelReply, Text, ToolCall, ToolResult, Usage, calls_of
from holdfast.protocol.notify import NOTIFY_ABOUT, Notified
from holdfast.protocol.outcomes import (
    Built,
    CircuitMet,
    Lost,
    ModelCut,
    ModelFailure,
    Probed,
    Unaffordable,
    Unready,
)
from holdfast.protocol.plan import PlanUpdate, Step
from holdfast.protocol.request import Request
from holdfast.protocol.tools import (
    EVERYTHING,
    Allowed,
    Asked,
    CallResult,
    Decision,
    FileChange,
    FileRestore,
    Files,
    Offer,
    Refused,
    Resource,
    Told,
    Touched,
)
from tests.core.stories import APPROVED, PASSED, SESSION, START_MS, request, settings

T = TypeVar("T")
LAST_STEPS = 10
INTENTS = (e.ModelCallStarted, e.ToolCallStarted)
RESULTS = (e.ToolCallFinished, e.ToolCallRefused, e.ToolCallAbandoned)
ANSWERS = (e.Responded, e.ModelCallFailed, e.ModelCallCut, e.ModelCallAbandoned, e.SideCallEnded)
SETTINGS = (
    settings(turns=4, wall_s=100, repeat_note=2, repeat_stop=3, model_attempts=2, reflect_turns=1),
    settings(turns=6, wall_s=100, model_attempts=2, compact_turns=1, max_reflections=0),
    settings(turns=2, wall_s=100, approve_by="deny", repeat_note=2, repeat_stop=4, model_attempts=3),
    settings(
        turns=5, wall_s=100, approve_by="defer", notify_on=NOTIFY_ABOUT, model_attempts=2, max_reflections=0
    ),
    settings(turns=4, tokens=12_000, wall_s=100, model_attempts=2, after_failures=1, max_reflections=2),
)
HOOKED = settings(
    turns=4,
    wall_s=100,
    model_attempts=2,
    hooks=(Hook("all", HOOK_EVENTS), Hook("some", ("run_start", "before_model", "after_tool"), ("shell",))),
)
SETTINGS = (*SETTINGS, HOOKED)
NAMES = ("read_file", "grep", "write_file", "shell")
TOUCHED_FILES = tuple(
    (Resource(access, path),) for access in ("read", "write") for path in ("/w/a", "/w/b", "/w")
)
PLANS = (
    (Step("Look.", "in_progress"), Step("Mend.")),
    (Step("Look.", "done"), Step("Mend.", "in_progress")),
    (Step("Look.", "dropped"), Step("Ask.")),
    (Step("Look.", "in_progress"), Step("Mend.", "in_progress")),
)
TOUCHED = ((Resource("read"),), *TOUCHED_FILES, EVERYTHING, ())
"""What calls touch: anything, files, nothing."""
USAGE = Usage(100, 10)
FAILURES = ("provider_transient", "rate_limited", "provider_fatal", "context_overflow", "cancelled")


class OutOfChoices(Exception):
    """The list of numbers is used up."""


class Simulation:
    """One session and everything that is true of it so far."""

    def __init__(
        self, choices: Sequence[int], on_event: Callable[[State, e.Event], None] | None = None
    ) -> None:
        self._choices = iter(choices)
        self._on_event = on_event
        self.state = State()
        self.records: list[e.Record] = []
        self.now_ms = START_MS
        self.awake_ms = 0
        self.epoch = 0
        self.is_driven = False
        self.crashes = 0
        self.at_work_ms = 0
        self._late: list[Outcome] = []
        self._started: set[str] = set()
        self._steps: list[Prepare] = []
        """The last ones that were wanted."""
        self._transcript = Transcript()
        self._messages: list[Any] = []
        self._results: Counter[str] = Counter()
        self._runs: Counter[int] = Counter()
        self._commands = 0
        opening = e.SessionOpened(SESSION)
        self._commit([e.Record(SESSION, 1, START_MS, 0, e.Trigger("attach"), opening)])

    def play(self) -> None:
        """Let things happen until the numbers are used up, then end what is open."""
        try:
            while True:
                self.step()
        except OutOfChoices:
            self.finish()

    def step(self) -> None:
        """One thing happens."""
        moves: list[Callable[[], None]] = [self._attach]
        if not self.is_driven:
            moves.append(self._visit)
        elif open_run(self.state) is None:
            moves = [self._leave, self._command, self._command, self._time, self._late_outcome, self._outcome]
        else:
            if phase(self.state) != "stopping":  # the engine reads its inbox when the run has ended
                moves += [self._command]
            moves += [self._leave] + [self._outcome] * 8 + [self._due, self._late_outcome, self._time]
        self.pick(moves)()

    def finish(self) -> None:
        """Stop, give up what is open, and see that every run ended once."""
        self._attach()
        self._take(self._commanded(Stop()))
        if phase(self.state) == "stopping":
            self._pass(60_000)
            self._take(Due("grace"))
        assert open_run(self.state) is None, phase(self.state)
        assert set(self._runs.values()) <= {1}
        assert len(self._runs) == sum(isinstance(r.event, e.RunStarted) for r in self.records)

    def pick(self, options: Sequence[T]) -> T:
        """The next number decides."""
        for number in self._choices:
            return options[number % len(options)]
        raise OutOfChoices

    # --- what may happen ------------------------------------------------------------------------

    def _attach(self) -> None:
        """A new driver; if the last one still drove, it crashed."""
        self.crashes += self.is_driven
        self.epoch, self.awake_ms = self.epoch + 1, 0
        self.is_driven = True
        self._started = set()
        self._take(Attach(self.epoch, "host:1"))

    def _leave(self) -> None:
        """The driver is gone: it died, or had nothing left to do."""
        self.crashes += 1
        self.is_driven = False

    def _visit(self) -> None:
        """Somebody finds the session without a driver: it was given back, or its driver died."""
        self.epoch += 1
        cause = self._commanded(self._body())
        records = decision(self.state, cause, self.now_ms, 0).records
        assert not any(isinstance(record.event, (*INTENTS, e.Attached)) for record in records), (
            "a visitor starts nothing"
        )
        self._commit(records)

    def _command(self) -> None:
        self._take(self._commanded(self._body()))

    def _commanded(self, body: CommandBody) -> Commanded:
        self._commands += 1
        return Commanded(Command(f"c{self._commands}", SESSION, owner("cli:ann"), body), self.epoch)

    def _body(self) -> CommandBody:
        asked = [c.stage.approval_id for c in self.state.turn.calls if isinstance(c.stage, Waiting)]
        asked += [each.id for each in self.state.deferred if not each.is_approved]
        bodies: list[CommandBody] = [
            Send(f"words {len(self.records)}", self.pick(SETTINGS)),
            Continue(),
            Continue(SETTINGS[0]),
            Pause(),
            Compact(),
            Compact(is_undo=True),
            Stop(),
            Resolve("nobody", "approve"),
            Restore("undo", (2,), (FileRestore("/w", "a", "b", ""),)),
            Restored("undo", ("a",)),
        ]
        for approval in asked * 4:
            bodies += [
                Resolve(approval, "approve"),
                Resolve(approval, "approve", makes_grant=True),
                Resolve(approval, "deny"),
                Resolve(approval, "answer", "so"),
            ]
        return self.pick([*bodies, *(Revoke(each.id) for each in self.state.grants)])

    def _outcome(self) -> None:
        """Something that is in flight ends."""
        open_keys = [action_key(call) for call, _ in started_calls(self.state)]
        call, aside = self.state.models.open, self.state.side.open
        hooks = [action.key for action in wanted(self.state) if isinstance(action, RunHook)]
        notifying = [action.key for action in wanted(self.state) if isinstance(action, Notify)]
        if notifying and (self.pick((True, False)) or not (call or open_keys or aside or hooks)):
            self._take(Outcome(self.pick(notifying), Notified("sent")))
        elif hooks and (self.pick((True, False)) or not (call or open_keys or aside)):
            self._take(Outcome(self.pick(hooks), self._hook_answer()))
        elif aside is not None and (self.pick((True, False)) or not (call or open_keys)):
            self._take(Outcome(aside.key, self._side_result()))
        elif call is not None:
            self._take(Outcome(call.key, self._model_result()))
        elif open_keys:
            self._take(Outcome(self.pick(open_keys), self._tool_result()))

    def _late_outcome(self) -> None:
        """Something ends whose driver is gone: it means nothing."""
        if self._late:
            late = self.pick(self._late)
            assert late.key in self._started or decide(self.state, late, self.now_ms, self.awake_ms) == []

    def _due(self) -> None:
        waits = [action for action in wanted(self.state) if isinstance(action, Wait)]
        if waits:
            wait = self.pick(waits)
            self._pass(max(wait.at_ms - (self.awake_ms if wait.is_driven else self.now_ms), 0))
            self._take(Due(wait.key))

    def _time(self) -> None:
        """Some passes; the machine may sleep as well, or somebody set its clock."""
        self._pass(self.pick((1, 500, 30_000)))
        self.now_ms += self.pick((0, 0, 3_600_000, -3_600_000))

    def _pass(self, ms: int) -> None:
        if phase(self.state) not in RESTING:
            self.at_work_ms += ms
        self.now_ms += ms
        self.awake_ms += ms

    # --- what it comes to -----------------------------------------------------------------------

    def _model_result(self) -> Any:
        count = self.pick((0, 0, 1, 1, 1, 2, 3))
        calls = tuple(ToolCall("", self.pick(NAMES), self.pick(("{}", '{"a":1}'))) for _ in range(count))
        replies: list[Any] = [ModelReply((Text("I work."), *calls), USAGE, "tool_calls")] * 6
        replies += [ModelReply((Text("Done."),), USAGE), ModelReply((), USAGE), ModelCut("half", USAGE)]
        replies += [ModelFailure(Failure(self.pick(FAILURES), "No."), Usage(5))]  # type: ignore[arg-type]
        return self.pick(replies)

    def _side_result(self) -> Any:
        course = self.pick(("continue", "adjust", "pivot", "ask", "stop"))
        asked = f'{{"progress":"slow","decision":"{course}","reason":"So it is.","next":"More?"}}'
        replies: list[Any] = [ModelReply((Text(text),), USAGE) for text in (asked, asked, "Well.", "")]
        replies += [ModelReply((Text(asked), ToolCall("", "shell", "{}")), USAGE), ModelCut("half", USAGE)]
        replies += [ModelFailure(Failure(self.pick(FAILURES), "No."), Usage(5))]  # type: ignore[arg-type]
        return self.pick(replies)

    def _tool_result(self) -> CallResult:
        status: Any = self.pick(("ok", "ok", "error", "timeout", "cancelled", "unknown"))
        return CallResult(status, self.pick(("same", f"at {len(self.records)}")))

    def _hook_answer(self) -> HookAnswer:
        answers = [HookAnswer()] * 12 + [HookAnswer(is_cut=True), HookAnswer("", "late", is_failure=True)]
        return self.pick([*answers, HookAnswer("deny", "No."), HookAnswer("ask", "Hm.")])

    def _prepare(self, step: Prepare) -> Finding:
        if not isinstance(step, Admit):
            if isinstance(step, PrepareRequest) and self.state.prompt.due and self.pick((True, False)):
                return Finding(step, Built((), f"prompt {self.state.seq}", self.pick(("", "tools"))))
            gone = Failure("provider_unready", "It is gone.")
            unready = Unready(gone, self.pick((0, self.now_ms + 5_000)), self.pick(("", "openai:m#1")))
            if isinstance(step, PrepareRequest) and self.pick((True, *[False] * 9)):
                known = self.state.models.circuits.get("openai:m#1", "closed")
                after: Any = {"closed": "open", "open": "half_open", "half_open": "closed"}[known]
                return Finding(step, CircuitMet("openai:m#1", after, "It is down."))
            sized = [self._request(step, size) for size in [1_000] * 12 + [900_000]]
            compacted = e.ContextCompacted(
                "full", ((1, 2),), self.state.seq + 1, (e.ViewPart("head", "Some are left out."),), "data",
                messages_before=3, messages_after=2, size_bytes_before=30, size_bytes_after=20,
            )  # fmt: skip
            if self.state.compaction.waiting:
                discarded = e.SummaryDiscarded(self.state.compaction.waiting_key, "it is too long")
                return Finding(step, self.pick([compacted, discarded]))
            return Finding(step, self.pick([*sized, unready, compacted]))
        call = step.call
        if call.interrupted is not None and call.interrupted.on_interrupt == "probe":
            happened: Any = self.pick(("yes", "unknown", "no"))
            if happened != "no":
                return Finding(step, Probed(happened))
        on_interrupt: Any = self.pick(("rerun", "probe", "unknown"))
        change = Files((FileChange("a", "", "b"),))
        resources = self.pick(TOUCHED)
        aside = [each for each in self.state.deferred if each.is_approved]
        if aside and call.permission is None and self.pick((True, False)):
            allowed = Allowed(
                (Decision("policy", "ask"), deferred.permission_of(self.pick(aside))), call.arguments
            )
            return Finding(step, allowed)
        decisions = APPROVED if call.permission is not None and self.pick((True, False)) else PASSED
        if self.state.grants and call.permission is None and self.pick((True, False)):
            decisions = (Decision("policy", "ask"), permission_of(self.pick(self.state.grants)))
        allowed = Allowed(
            decisions,
            arguments=call.arguments,
            on_interrupt=on_interrupt,
            expects=change,
            resources=resources,
        )
        asked = Asked(
            arguments=call.arguments,
            question=self.pick(("", "Which?")),
            resources=resources,
            offer=self.pick((None, Offer(f"shell({call.name})"))),
        )
        refused = Refused(Failure("policy_denied", "No."))
        rest = [] if call.permission is not None else [asked] * 4
        told = Told(PlanUpdate(self.pick(PLANS)), PASSED, call.arguments)
        answered = Told(Answer("So.", self.pick((0.2, 0.9))), PASSED, call.arguments)
        return Finding(step, self.pick([allowed] * 5 + [refused, Lost(), told, answered, *rest]))

    def _request(self, step: PrepareRequest | PrepareSide, size_bytes: int) -> Request | Unaffordable:
        """The next request as the planner makes it, where its messages take so many bytes."""
        kinds = Kinds(prose=size_bytes)
        if isinstance(step, PrepareSide):
            grant = side_calls.afford(self.state, step.purpose, size_bytes, size_bytes, kinds)
        else:
            is_last_pass = step.is_last_pass
            grant = budget.afford(self.state, size_bytes, size_bytes, kinds, is_last_pass=is_last_pass)
        if isinstance(grant, Unaffordable):
            return grant
        tail = "]}"
        sizes = {"size_bytes": size_bytes + len(tail), "fresh_bytes": size_bytes}
        return request(tail=tail, kinds=kinds, **sizes, **asdict(grant))

    # --- one commit -----------------------------------------------------------------------------

    def _take(self, cause: Cause) -> None:
        """The engine's step: the cause, and the prepare steps that it brings, until none is left."""
        if isinstance(cause, Outcome):
            self._late.append(cause)
        self._commit(decision(self.state, cause, self.now_ms, self.awake_ms).records)
        while True:
            step = next((a for a in wanted(self.state) if isinstance(a, Prepare)), None)
            if step is None:
                return
            try:
                prepared = self._prepare(step)
            except OutOfChoices:
                plain = Allowed() if isinstance(step, Admit) else self._request(step, 1_000)
                prepared = Finding(step, plain)
            before = self.state.seq
            self._commit(decision(self.state, prepared, self.now_ms, self.awake_ms).records)
            assert self.state.seq > before, f"{step} leads nowhere"

    def _commit(self, records: Sequence[e.Record]) -> None:
        for record in records:
            if self._on_event is not None:
                self._on_event(self.state, record.event)
            self._note(record)
            self.records.append(record)
            self.state = evolve(self.state, record)
        self._check()

    def _note(self, record: e.Record) -> None:
        """What must be true of this record, given all before it."""
        event = record.event
        self._messages += self._transcript.add(record)
        match event:
            case e.ModelCallStarted(key=key, purpose=purpose):
                line = self.state.models if purpose == "work" else self.state.side
                assert line.open is None
                assert open_run(self.state) is not None
                self._started.add(key)
                if purpose == "work":
                    self._check_pairs()
            case e.ToolCallStarted(call_id=call_id, attempt=attempt, decisions=decisions):
                self._started.add(f"{call_id}#{attempt}")
                assert not self._results[call_id], "a call that has its result does not start again"
                if name := grant_in(decisions):
                    (grant,) = [each for each in self.state.grants if each.id == name]
                    assert grant.is_live(record.at_ms), "a grant that has ended covers nothing"
            case e.RunStarted():
                assert open_run(self.state) is None
            case e.RunStopped(run=run):
                self._runs[run] += 1
                assert not open_model_calls(self.state)
                self._check_pairs()
            case _ if isinstance(event, RESULTS):
                self._results[event.call_id] += 1
                assert self._results[event.call_id] == 1, "a call has one result"
            case _ if isinstance(event, ANSWERS):
                line = self.state.models if getattr(event, "purpose", "work") == "work" else self.state.side
                assert line.open is not None
                assert line.open.key == event.key

    def _check_pairs(self) -> None:
        """Every call that the model made is followed by its results, all together."""
        open_calls: tuple[str, ...] = ()
        for said in self._messages:
            parts = said.message.parts
            results = tuple(part.call_id for part in parts if isinstance(part, ToolResult))
            assert results == open_calls
            open_calls = tuple(call.call_id for call in calls_of(parts))
        assert open_calls == ()

    def _check(self) -> None:
        """What must be true after every commit."""
        state = self.state
        running = [call.resources for call, _ in started_calls(state)]
        for one, other in combinations(running, 2):
            assert one is not None
            assert other is not None
            assert not Touched(other).is_in_conflict(one), "calls that touch the same do not run side by side"
        for action in wanted(state):
            if isinstance(action, CallModel | RunTool):
                attempt = action.model_call if isinstance(action, CallModel) else action.attempt
                assert attempt.epoch == state.epoch
                assert action.key in self._started, "nothing runs that its own driver did not record"
        steps = [action for action in wanted(state) if isinstance(action, Prepare)]
        assert all(is_wanted(step, state) for step in steps)
        assert [step for step in self._steps if is_wanted(step, state)] == [
            step for step in self._steps if step in steps
        ]
        self._steps = [*self._steps, *steps][-LAST_STEPS:]
        assert decide(state, Due("nobody waits for this"), self.now_ms, self.awake_ms) == [], (
            "a decision is at its fixed point"
        )
        run = open_run(state)
        assert (
            run is None or state.settings is None or run.totals.turns <= max(s.limits.turns for s in SETTINGS)
        )
        assert state.run is None or state.run.driven_ms <= self.at_work_ms

    def check_totals(self) -> None:
        """What the session used is the sum of what its records say."""
        used, cost, held, reserved = Usage(), 0, 0, dict[str, int]()
        for record in self.records:
            match record.event:
                case e.ModelCallStarted(key=key, request=Request(reserved_microusd=amount)):
                    reserved[key] = amount
                case (
                    e.Responded(usage=usage, cost_microusd=amount)
                    | e.ModelCallFailed(usage=usage, cost_microusd=amount)
                    | e.ModelCallCut(usage=usage, cost_microusd=amount)
                    | e.SideCallEnded(usage=usage, cost_microusd=amount)
                ):
                    used, cost = used + usage, cost + amount
                case e.ModelCallAbandoned(key=key):
                    held += reserved[key]
        found = totals(self.state)
        assert (found.usage, found.cost_microusd, found.held_microusd) == (used, cost, held)
        started = [r.event for r in self.records if isinstance(r.event, INTENTS)]
        calls = [event for event in started if isinstance(event, e.ModelCallStarted)]
        assert found.model_calls == sum(call.purpose == "work" for call in calls)
        assert found.side_calls == sum(call.purpose != "work" for call in calls)
        assert found.tool_calls == sum(isinstance(event, e.ToolCallStarted) for event in started)


def phases_met(choices: Sequence[int]) -> set[tuple[Phase, str]]:
    """The pairs of phase and event that a history goes through."""
    met: set[tuple[Phase, str]] = set()
    Simulation(choices, lambda state, event: met.add((phase(state), type(event).__name__))).play()
    return met
