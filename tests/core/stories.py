"""A session told in causes: what was given, when something happens, then these events. No engine, no waiting."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.core.causes import Attach, Cause, Commanded, Due, Finding, Found, Outcome
from holdfast.core.decide import decide
from holdfast.core.evolve import evolve
from holdfast.core.state import Call, ModelCall, Run, State, Waiting, action_key, next_key, next_side_key
from holdfast.core.wanted import Admit, Attempt, Prepare, PrepareRequest, Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Command, CommandBody, Continue, Principal, Resolve, Send, owner
from holdfast.protocol.failures import Failure, FailureCode
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Finish, ModelReply, Part, Text, ToolCall, Usage, Verdict
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.request import Request
from holdfast.protocol.settings import Settings, changed, groups_of, ref_of, settings_with
from holdfast.protocol.tools import EVERYTHING, Admission, Allowed, Asked, CallResult, Decision, Resource

PASSED = (Decision("policy", "allow"),)
APPROVED = (Decision("policy", "ask"), Decision("approval", "allow"))
SESSION = "01JYA0000000000000000000SE"
ANN = owner("ann", "cli")
START_MS = 1_750_000_000_000
FACTS = ModelFacts("openai", "m", input_microusd_per_mtok=1_000_000, output_microusd_per_mtok=4_000_000)
SETTINGS = settings_with(FACTS, "w")
READS = ("read_file", "grep")
"""Tools whose calls read something, and nobody knows what; all others may touch anything."""
GIVEN = e.Trigger("command", "given")
T = TypeVar("T")


def settings(**changes: Any) -> Settings:
    """The settings of a run; what `Limits` knows goes there."""
    return changed(SETTINGS, **changes)


def started(run: int, of: Settings = SETTINGS) -> tuple[e.Event, e.Event]:
    """A run opens, the first in its journal with these settings."""
    return e.SettingsStored(groups_of(of)), e.RunStarted(run, ref_of(of))


def touched(name: str) -> tuple[Resource, ...]:
    """What the gates find out about a call of that tool."""
    return (Resource("read"),) if name in READS else EVERYTHING


def call(name: str = "shell", arguments: str = "{}") -> ToolCall:
    """A call as a model asks for it."""
    return ToolCall("ref", name, arguments)


def request(**changes: Any) -> Request:
    """A rendered request; what it costs is what a test is about, or nothing."""
    plain: dict[str, Any] = {
        "wire": "openai", "base": "b", "keep": 0, "tail": "]}", "sha256": "s", "size_bytes": 1_000,
        "expected_tokens": 300, "output_cap_tokens": 1_000, "reserved_tokens": 1_500, "reserved_microusd": 5_000,
    }  # fmt: skip
    return Request(**plain | changes)


def kinds(events: list[e.Event]) -> list[str]:
    """The names of the events."""
    return [type(event).__name__ for event in events]


def only(kind: type[T], events: list[e.Event]) -> T:
    """The one event of that kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, kinds(events)
    return found[0]


def steps(state: State) -> list[Prepare | Attempt]:
    """What is wanted beside timers."""
    return [action for action in wanted(state) if not isinstance(action, Wait)]


HEAD = "[2025-06-15 15:06:40 UTC] "
"""Before words that come at the start."""


class Story:
    """A session so far: its records, its state, and the time."""

    def __init__(self, **changes: Any) -> None:
        """`changes`: of the settings that messages carry."""
        self.settings = settings(**changes)
        self.state = State()
        self.records: list[e.Record] = []
        self.now_ms = START_MS
        self.awake_ms = 0
        """By the driver's clock."""
        self.epoch = 0
        self.given(e.SessionOpened(SESSION))

    def given(self, *events: e.Event, epoch: int | None = None) -> Story:
        """What the journal holds already."""
        for event in events:
            at = epoch if epoch is not None else self.epoch
            record = e.Record(SESSION, self.state.seq + 1, self.now_ms, at, GIVEN, event, self.awake_ms)
            self.records.append(record)
            self.state = evolve(self.state, record)
        return self

    def when(self, cause: Cause) -> list[e.Event]:
        """What the cause brings, which then is part of the journal."""
        events = decide(self.state, cause, self.now_ms, self.awake_ms)
        epoch = cause.epoch if isinstance(cause, Attach | Commanded) else self.state.epoch
        self.given(*events, epoch=epoch)
        return events

    def later(self, seconds: float) -> Story:
        self.awake_ms += round(seconds * 1000)
        return self.asleep(seconds)

    def asleep(self, seconds: float) -> Story:
        """The machine is suspended, or its clock is set."""
        self.now_ms += round(seconds * 1000)
        return self

    @property
    def run(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    @property
    def model_call(self) -> ModelCall:
        assert self.state.models.open is not None
        return self.state.models.open

    @property
    def side_call(self) -> ModelCall:
        assert self.state.side.open is not None
        return self.state.side.open

    # --- causes ---------------------------------------------------------------------------------

    def attach(self) -> list[e.Event]:
        """The next driver takes over, whatever became of the last one."""
        self.epoch, self.awake_ms = self.epoch + 1, 0
        return self.when(Attach(self.epoch, "host:1"))

    def command(self, body: CommandBody, who: Principal = ANN) -> list[e.Event]:
        return self.when(Commanded(Command("c", SESSION, who, body), self.epoch))

    def visit(self, body: CommandBody) -> list[e.Event]:
        """A command from somebody who takes an epoch and drives nothing."""
        self.epoch, self.awake_ms = self.epoch + 1, 0
        return self.when(Commanded(Command("c", SESSION, owner("cli:bob"), body), self.epoch))

    def send(self, text: str = "Do it.") -> list[e.Event]:
        return self.command(Send(text, self.settings))

    def go_on(self, **changes: Any) -> list[e.Event]:
        return self.command(Continue(settings(**changes) if changes else None))

    def resolve(self, decision: Any, note: str = "", approval: str = "") -> list[e.Event]:
        return self.command(Resolve(approval or self.asked().approval_id, decision, note))

    def prepared(self, **changes: Any) -> list[e.Event]:
        """The next request is rendered and affordable."""
        return self.found(next_key(self.state), request(**changes))

    def answered(
        self,
        *parts: Part,
        finish: Finish = "stop",
        usage: Usage | None = None,
        verdict: Verdict | None = None,
        workspace: str = "",
    ) -> list[e.Event]:
        """The open model call brings these parts."""
        used = usage if usage is not None else Usage(100, 10)
        reply = ModelReply(parts, used, finish, verdict=verdict, workspace=workspace)
        return self.when(Outcome(self.model_call.key, reply))

    def failed(self, code: FailureCode, **changes: Any) -> list[e.Event]:
        """The open model call fails."""
        return self.when(Outcome(self.model_call.key, ModelFailure(Failure(code, "It failed.", **changes))))

    def side_prepared(self, **changes: Any) -> list[e.Event]:
        """The request of a side call is rendered and affordable."""
        return self.found(next_side_key(self.state), request(**changes))

    def side_answered(self, *parts: Part, usage: Usage | None = None) -> list[e.Event]:
        """The open side call brings these parts."""
        reply = ModelReply(parts, usage if usage is not None else Usage(100, 10))
        return self.when(Outcome(self.side_call.key, reply))

    def side_failed(self, code: FailureCode, **changes: Any) -> list[e.Event]:
        """The open side call fails."""
        return self.when(Outcome(self.side_call.key, ModelFailure(Failure(code, "It failed.", **changes))))

    def admitted(self, call_id: str, **changes: Any) -> list[e.Event]:
        """The gates let the call pass."""
        call = self.call(call_id)
        decisions = PASSED if call.permission is None else APPROVED
        found = {"decisions": decisions, "arguments": call.arguments, "resources": touched(call.name)}
        return self.judged(call_id, Allowed(**found | changes))

    def asked_for(self, call_id: str, **changes: Any) -> list[e.Event]:
        """The gates want a person to decide about the call."""
        call = self.call(call_id)
        found = {"arguments": call.arguments, "resources": touched(call.name)}
        return self.judged(call_id, Asked(**found | changes))

    def judged(self, call_id: str, admission: Admission) -> list[e.Event]:
        """This is what the gates say about the call."""
        return self.found(action_key(self.call(call_id)), admission)

    def found(self, key: str, result: Found) -> list[e.Event]:
        """The prepare step with this key, which is wanted now, finds this."""
        return self.when(Finding(self.step(key), result))

    def step(self, key: str) -> Prepare:
        """Return the step with this key, as it is wanted now; else make one that is not wanted."""
        for step in steps(self.state):
            if isinstance(step, Prepare) and step.key == key:
                return step
        call = next((c for c in self.state.turn.calls if action_key(c) == key), None)
        return PrepareRequest(key, is_last_pass=False) if call is None else Admit(key, call)

    def finished(self, call_id: str, text: str = "ok", status: Any = "ok") -> list[e.Event]:
        """The open attempt of the call comes to this."""
        return self.when(Outcome(action_key(self.call(call_id)), CallResult(status, text)))

    def due(self, key: str) -> list[e.Event]:
        """The timer comes due: time passes until then."""
        waits = [a for a in wanted(self.state) if isinstance(a, Wait) and a.key == key]
        assert waits, f"nobody waits for {key}"
        self.until(waits[0])
        return self.when(Due(key))

    def until(self, wait: Wait) -> None:
        """Let time pass until then."""
        now_ms = self.awake_ms if wait.is_driven else self.now_ms
        self.later(max(wait.at_ms - now_ms, 0) / 1000)

    # --- parts ----------------------------------------------------------------------------------

    def call(self, call_id: str) -> Call:
        return next(c for c in self.state.turn.calls if c.call_id == call_id)

    def asked(self) -> Waiting:
        return next(c.stage for c in self.state.turn.calls if isinstance(c.stage, Waiting))


def opened(**changes: Any) -> Story:
    """A session with a driver and words in it; the first request is to be prepared."""
    story = Story(**changes)
    story.attach()
    story.send()
    return story


def calling(**changes: Any) -> Story:
    """The first model call is open."""
    story = opened(**changes)
    story.prepared()
    return story


def proposing(*calls: ToolCall, **changes: Any) -> Story:
    """The model asked for these calls; they are to be put before the gates."""
    story = calling(**changes)
    story.answered(*(calls or (call(),)), finish="tool_calls")
    return story


def acting(**changes: Any) -> Story:
    """One call, `t1.c1`, is running."""
    story = proposing(**changes)
    story.admitted("t1.c1")
    return story


def asking(**changes: Any) -> Story:
    """One call, `t1.c1`, waits for a person."""
    story = proposing(call("shell", '{"command":"make"}'), **changes)
    story.asked_for("t1.c1", decisions=(Decision("policy", "ask", reason="runs a command"),))
    return story


def a_turn(story: Story, *calls: ToolCall, result: str = "ok") -> list[e.Event]:
    """A whole turn of calls that all run, from the request on; what the last result brought."""
    story.prepared()
    story.answered(*(calls or (call(),)), finish="tool_calls")
    events: list[e.Event] = []
    for each in story.state.turn.calls:
        story.admitted(each.call_id)
        events = story.finished(each.call_id, result)
    return events


def words(text: str = "Done.") -> Text:
    return Text(text)
