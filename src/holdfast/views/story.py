"""The story of a session, built from its records: runs, attempts of model calls, tool calls.

It serves people who look at a session. The engine has a state of its own (`core.state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Literal

import msgspec

from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    ContextCompacted,
    ContextRestored,
    MessageReceived,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    ModelCallStarted,
    PromptBuilt,
    Record,
    Responded,
    RunStarted,
    RunStopped,
    SettingsChanged,
    SettingsStored,
    SideCallEnded,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
    ToolCallStarted,
)
from holdfast.protocol.fence import Walled
from holdfast.protocol.flags import flags_after, set_by
from holdfast.protocol.grants import grant_in
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Usage, calls_of
from holdfast.protocol.request import Stretch
from holdfast.protocol.settings import Group, Settings, settings_by, settings_with
from holdfast.protocol.traffic import Traffic
from holdfast.protocol.trust import CLEAN, Flag, Taint, Trust
from holdfast.views.notices import decided

Outcome = Responded | ModelCallFailed | ModelCallCut | ModelCallAbandoned | SideCallEnded
AttemptStatus = Literal["answered", "failed", "cut", "abandoned", "open"]
CallStatus = Literal[
    "ok", "error", "timeout", "cancelled", "unknown", "refused", "abandoned", "waiting", "open", "asked"
]
"""`asked`: the model made the call, and no gate has judged it yet. `open`: it was started, and no record
tells its end."""


_ERASED = settings_with(ModelFacts("?", "?", price="unknown"), "?")
"""The settings of a run, if the record that had them was erased."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a model call."""

    number: int
    """Counts from 1 over the whole session, as in `show --request N`."""
    run: int
    seq: int
    at_ms: int
    started: ModelCallStarted
    left_out: tuple[Stretch, ...] = ()
    """The records whose messages the request does not have (`events.ContextCompacted`)."""
    change: str = ""
    """Why it does not begin with the last request for work; empty if it does."""
    outcome: Outcome | None = None
    ended_ms: int = 0
    """0 if it has not ended. For an abandoned attempt: the last record of the process that made it."""

    @property
    def is_work(self) -> bool:
        """Whether it carried the conversation on."""
        return self.started.purpose == "work"

    @property
    def is_estimated(self) -> bool:
        """Whether a part of what it cost is an estimate."""
        return bool(getattr(self.outcome, "estimated", ()))

    @property
    def duration_ms(self) -> int | None:
        """The duration; None if its end was not recorded."""
        return None if self.status in ("open", "abandoned") else max(self.ended_ms - self.at_ms, 0)

    @property
    def status(self) -> AttemptStatus:
        """The outcome as a word."""
        match self.outcome:
            case Responded():
                return "answered"
            case ModelCallFailed():
                return "failed"
            case ModelCallCut():
                return "cut"
            case ModelCallAbandoned():
                return "abandoned"
            case SideCallEnded(status=status):
                return "answered" if status == "responded" else status
        return "open"

    @property
    def usage(self) -> Usage:
        """The tokens that it used, as far as they are known."""
        match self.outcome:
            case Responded(usage=usage) | ModelCallFailed(usage=usage) | ModelCallCut(usage=usage):
                return usage
            case SideCallEnded(usage=usage):
                return usage
        return Usage()

    @property
    def spent_microusd(self) -> int:
        """The settled cost."""
        match self.outcome:
            case Responded(cost_microusd=cost) | ModelCallFailed(cost_microusd=cost):
                return cost
            case ModelCallCut(cost_microusd=cost) | SideCallEnded(cost_microusd=cost):
                return cost
        return 0

    @property
    def held_microusd(self) -> int:
        """The cost that stays reserved because the outcome is unknown."""
        return self.started.request.reserved_microusd if self.status in ("abandoned", "open") else 0


class Call(msgspec.Struct, frozen=True):
    """One tool call with all its attempts."""

    call_id: str
    run: int
    turn: int
    name: str
    arguments: str
    at_ms: int
    """When it started, or was made if it has not started."""
    ended_ms: int = 0
    """0 if it has not ended. For an abandoned call: the last record of the process that ran it."""
    status: CallStatus = "asked"
    attempts: int = 0
    """The number of times that it was started."""
    text: str = ""
    """The result that the model received."""
    duration_ms: int | None = None
    """None if it did not run, or its end was not recorded."""
    decision: str = ""
    """The decision of a person, with their name."""
    is_masked: bool = False
    """`arguments` is a masked copy: what looks like a secret in it is hidden, and runs as the model wrote it."""
    origin: str = ""
    """Where the result comes from; empty if no tool and nobody returned one."""
    trust: Trust | None = None
    """The trust of the result; None without one."""
    sets: tuple[Flag, ...] = ()
    """The flags of the session that this result was the first to set."""
    repeat: int = 1
    """How many consecutive turns had this call with this result."""
    walled: Walled | None = None
    """The sandbox of the programs that its last attempt started; None: it started none of others, or they ran in
    none."""
    traffic: Traffic | None = None
    """What its programs asked of the network; None: nothing."""


class Run(msgspec.Struct, frozen=True):
    """One run: from input to rest."""

    number: int
    at_ms: int
    settings: Settings
    task: str
    """The message that opened the run; empty if it continues the last run."""
    ended_ms: int = 0
    stopped: RunStopped | None = None


class Story(msgspec.Struct, frozen=True):
    """Everything that happened in a session so far."""

    runs: tuple[Run, ...]
    attempts: tuple[Attempt, ...]
    calls: tuple[Call, ...]
    last_ms: int
    """The time of the newest record."""
    taint: Taint
    """The flags of the session."""
    groups: dict[str, Group]
    """The groups of settings, by name."""


def story(records: Sequence[Record]) -> Story:
    """Build the story from all records of a session, in order."""
    numbered = list(zip(runs_of(records), records, strict=True))
    last_ms = records[-1].at_ms if records else 0
    groups: dict[str, Group] = {}
    for record in records:
        groups |= record.event.groups if isinstance(record.event, SettingsStored) else {}
    taint = reduce(lambda before, record: flags_after(before, record.seq, record.event), records, CLEAN)
    return Story(_runs(numbered, groups), _attempts(numbered), _calls(numbered), last_ms, taint, groups)


def starts(calls: Iterable[Call]) -> int:
    """Count how often the calls were started, as `tool_calls` does everywhere."""
    return sum(call.attempts for call in calls)


def runs_of(records: Sequence[Record]) -> list[int]:
    """Return the run number of each record. A record between two runs belongs to the next run, if there is one."""
    numbers: list[int] = []
    run, waiting = 0, 0
    for record in records:
        match record.event:
            case RunStarted(run=run):
                numbers += [run] * (waiting + 1)
                waiting = 0
            case RunStopped(run=stopped):
                numbers += [stopped] * (waiting + 1)
                run = waiting = 0
            case _ if run:
                numbers.append(run)
            case _:
                waiting += 1
    return numbers + [numbers[-1] if numbers else 0] * waiting


def _runs(numbered: Iterable[tuple[int, Record]], groups: Mapping[str, Group]) -> tuple[Run, ...]:
    runs: dict[int, Run] = {}
    task = ""
    for number, record in numbered:
        match record.event:
            case MessageReceived(text=text):
                task = task or text
            case RunStarted(settings=ref):
                runs[number] = Run(number, record.at_ms, settings_by(ref, groups) or _ERASED, task)
                task = ""
            case SettingsChanged(settings=ref) if number in runs:
                runs[number] = msgspec.structs.replace(
                    runs[number], settings=settings_by(ref, groups) or _ERASED
                )
            case RunStopped() as stopped if number in runs:
                runs[number] = msgspec.structs.replace(runs[number], stopped=stopped, ended_ms=record.at_ms)
                task = ""
    return tuple(runs.values())


def _attempts(numbered: Iterable[tuple[int, Record]]) -> tuple[Attempt, ...]:
    attempts: list[Attempt] = []
    open_at: dict[str, int] = {}
    alive_ms: dict[int, int] = {}
    left_out: tuple[Stretch, ...] = ()
    before: ModelCallStarted | None = None
    why: list[str] = []
    for run, record in numbered:
        alive_ms[record.epoch] = record.at_ms
        match record.event:
            case ContextCompacted():
                left_out = record.event.left_out
                why.append("the context was compacted")
            case ContextRestored():
                left_out = ()
                why.append("the whole context is back")
            case PromptBuilt(reason=reason):
                why.append(f"the system prompt was built: {reason}")
            case ModelCallStarted() as started:
                open_at[started.key] = len(attempts)
                number = len(attempts) + 1
                change = _change(before, started, why)
                attempts.append(Attempt(number, run, record.seq, record.at_ms, started, left_out, change))
                if started.purpose == "work":
                    before, why = started, []
            case (
                Responded() | ModelCallFailed() | ModelCallCut() | ModelCallAbandoned() | SideCallEnded()
            ) as outcome if outcome.key in open_at:
                at = open_at.pop(outcome.key)
                is_lost = isinstance(outcome, ModelCallAbandoned)
                epoch = attempts[at].started.epoch if is_lost else record.epoch
                ended_ms = alive_ms.get(epoch, record.at_ms)
                attempts[at] = msgspec.structs.replace(attempts[at], outcome=outcome, ended_ms=ended_ms)
    return tuple(attempts)


def _change(before: ModelCallStarted | None, started: ModelCallStarted, why: Sequence[str]) -> str:
    """Return why a request does not begin with the last one for work."""
    if before is None:
        return "the first request"
    if started.model != before.model:
        return "another model"
    if started.purpose != "work":
        return ""
    if why:
        return "; ".join(why)
    if started.request.base == before.request.base:
        return ""
    is_one_last = started.is_last_pass != before.is_last_pass
    return "the last pass has no tools" if is_one_last else "another form of the same prompt"


def _never_ran(call: Call | None) -> dict[str, object]:
    """Return what changes when a call that was put aside is decided on: it has ended and waits, so it never runs, and
    the model makes it again.
    """
    is_aside = call is not None and call.status == "waiting" and call.ended_ms > 0
    return {"status": "asked"} if is_aside else {}


def _calls(numbered: Iterable[tuple[int, Record]]) -> tuple[Call, ...]:
    calls: dict[str, Call] = {}
    asked: dict[str, str] = {}
    alive_ms: dict[int, int] = {}
    epochs: dict[str, int] = {}
    taint = CLEAN
    turn = 0

    def change(call_id: str, **changes: object) -> None:
        if call_id in calls:
            calls[call_id] = msgspec.structs.replace(calls[call_id], **changes)

    for run, record in numbered:
        at_ms = alive_ms[record.epoch] = record.at_ms
        match record.event:
            case ModelCallStarted(turn=turn):
                pass
            case MessageReceived() | PromptBuilt():
                taint = flags_after(taint, record.seq, record.event)
            case Responded(parts=parts):
                calls |= {
                    part.call_id: Call(
                        part.call_id, run, turn, part.name, part.arguments, at_ms, is_masked=part.is_masked
                    )
                    for part in calls_of(parts)
                }
            case ToolCallStarted() as started:
                known = calls.get(started.call_id)
                arguments = started.arguments or (known.arguments if known else "")
                calls.setdefault(
                    started.call_id, Call(started.call_id, run, turn, started.name, arguments, at_ms)
                )
                change(started.call_id, at_ms=at_ms, arguments=arguments)
                change(started.call_id, status="open", attempts=started.attempt, walled=started.walled)
                epochs[started.call_id] = started.epoch
                if name := grant_in(started.decisions):
                    change(started.call_id, decision=f"covered by the grant {name}")
            case ToolCallFinished(call_id=call_id, result=result):
                status = "waiting" if result.status == "deferred" else result.status
                change(call_id, ended_ms=at_ms, status=status, text=result.text)
                change(call_id, duration_ms=result.duration_ms if call_id in epochs else None)
                change(call_id, traffic=result.traffic)
                before, taint = taint, flags_after(taint, record.seq, record.event)
                change(call_id, origin=result.origin, trust=result.trust, sets=set_by(before, taint))
            case ToolCallRefused(call_id=call_id, failure=failure):
                change(call_id, ended_ms=at_ms, status="refused", text=failure.message)
            case ToolCallAbandoned(call_id=call_id, text=text):
                ended_ms = alive_ms.get(epochs.get(call_id, record.epoch), at_ms)
                change(call_id, ended_ms=ended_ms, status="abandoned", text=text)
            case ApprovalRequested(approval_id=approval_id, call_id=call_id):
                asked[approval_id] = call_id
                change(call_id, status="waiting")
            case ApprovalResolved(approval_id=approval_id, decision=decision, by=by):
                call_id = asked.get(approval_id, "")
                change(call_id, decision=decided(decision, by), **_never_ran(calls.get(call_id)))
    return _with_repeats(calls.values())


def _with_repeats(calls: Iterable[Call]) -> tuple[Call, ...]:
    seen: dict[tuple[int, str, str, str], tuple[int, int]] = {}
    counted: list[Call] = []
    for call in calls:
        signature = (call.run, call.name, call.arguments, call.text)
        turn, repeat = seen.get(signature, (call.turn, 0))
        repeat = repeat + 1 if call.turn - turn <= 1 else 1
        seen[signature] = (call.turn, repeat)
        counted.append(msgspec.structs.replace(call, repeat=repeat))
    return tuple(counted)
