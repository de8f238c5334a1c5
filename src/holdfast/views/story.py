"""What happened in a session, put together from its records: runs, attempts of model calls, tool calls.

Pure, and for people who look: the engine's own state is `core`'s. How it is shown belongs to the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from holdfast.protocol.events import (
    ApprovalRequested,
    ApprovalResolved,
    MessageReceived,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    ModelCallStarted,
    Record,
    Responded,
    RunStarted,
    RunStopped,
    SettingsChanged,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
    ToolCallStarted,
)
from holdfast.protocol.limits import Settings
from holdfast.protocol.messages import Usage, calls_of

Outcome = Responded | ModelCallFailed | ModelCallCut | ModelCallAbandoned
AttemptStatus = Literal["answered", "failed", "cut", "abandoned", "open"]
CallStatus = Literal[
    "ok", "error", "timeout", "cancelled", "unknown", "refused", "abandoned", "waiting", "running", "asked"
]
"""`asked`: the model asked for it, and no gate has answered yet."""


class Attempt(msgspec.Struct, frozen=True):
    """One try of a model call."""

    number: int
    """From 1 over the whole session: what `show --request N` takes."""
    run: int
    seq: int
    at_ms: int
    started: ModelCallStarted
    outcome: Outcome | None = None
    ended_ms: int = 0
    """0: it has not ended. Of an abandoned one: the last sign of life of the process that made it."""

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None where nobody saw it end."""
        return None if self.status in ("open", "abandoned") else max(self.ended_ms - self.at_ms, 0)

    @property
    def status(self) -> AttemptStatus:
        """What became of it."""
        match self.outcome:
            case Responded():
                return "answered"
            case ModelCallFailed():
                return "failed"
            case ModelCallCut():
                return "cut"
            case ModelCallAbandoned():
                return "abandoned"
        return "open"

    @property
    def usage(self) -> Usage:
        """The tokens that it is known to have used."""
        match self.outcome:
            case Responded(usage=usage) | ModelCallFailed(usage=usage) | ModelCallCut(usage=usage):
                return usage
        return Usage()

    @property
    def spent_microusd(self) -> int:
        """What it cost, as far as that is settled."""
        match self.outcome:
            case Responded(cost_microusd=cost) | ModelCallFailed(cost_microusd=cost):
                return cost
            case ModelCallCut(cost_microusd=cost):
                return cost
        return 0

    @property
    def held_microusd(self) -> int:
        """What stays reserved for it, since nobody knows what it cost."""
        return self.started.request.reserved_microusd if self.status in ("abandoned", "open") else 0


class Call(msgspec.Struct, frozen=True):
    """One tool call, over all its attempts."""

    call_id: str
    run: int
    turn: int
    name: str
    arguments: str
    at_ms: int
    """When it started; until then, when it was asked for."""
    ended_ms: int = 0
    """0: it has not ended. Of an abandoned one: the last sign of life of the process that ran it."""
    status: CallStatus = "asked"
    attempts: int = 0
    """How often it was started; 0: never."""
    text: str = ""
    """What the model was told."""
    duration_ms: int | None = None
    """None: it did not run, or nobody saw it end."""
    decision: str = ""
    """What a person said, and who."""
    repeat: int = 1
    """2 and more: that often in consecutive turns, the same call with the same result."""


class Run(msgspec.Struct, frozen=True):
    """From input to rest."""

    number: int
    at_ms: int
    settings: Settings
    task: str
    """The words that opened it; empty for one that goes on with what the last one left."""
    ended_ms: int = 0
    stopped: RunStopped | None = None


class Story(msgspec.Struct, frozen=True):
    """All of a session that happened so far."""

    runs: tuple[Run, ...]
    attempts: tuple[Attempt, ...]
    calls: tuple[Call, ...]
    last_ms: int
    """When the newest record was written."""


def story(records: Sequence[Record]) -> Story:
    """The story that the records of one session tell, in order."""
    numbered = list(zip(runs_of(records), records, strict=True))
    last_ms = records[-1].at_ms if records else 0
    return Story(_runs(numbered), _attempts(numbered), _calls(numbered), last_ms)


def starts(calls: Iterable[Call]) -> int:
    """How often the calls were started: what `tool_calls` counts wherever it is told."""
    return sum(call.attempts for call in calls)


def runs_of(records: Sequence[Record]) -> list[int]:
    """The run that each record belongs to: what comes between two runs belongs to the next one, if any."""
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


def _runs(numbered: Iterable[tuple[int, Record]]) -> tuple[Run, ...]:
    runs: dict[int, Run] = {}
    task = ""
    for number, record in numbered:
        match record.event:
            case MessageReceived(text=text):
                task = task or text
            case RunStarted(settings=settings):
                runs[number] = Run(number, record.at_ms, settings, task)
                task = ""
            case SettingsChanged(settings=settings) if number in runs:
                runs[number] = msgspec.structs.replace(runs[number], settings=settings)
            case RunStopped() as stopped if number in runs:
                runs[number] = msgspec.structs.replace(runs[number], stopped=stopped, ended_ms=record.at_ms)
                task = ""
    return tuple(runs.values())


def _attempts(numbered: Iterable[tuple[int, Record]]) -> tuple[Attempt, ...]:
    attempts: list[Attempt] = []
    open_at: dict[str, int] = {}
    alive_ms: dict[int, int] = {}
    for run, record in numbered:
        alive_ms[record.epoch] = record.at_ms
        match record.event:
            case ModelCallStarted() as started:
                open_at[started.key] = len(attempts)
                attempts.append(Attempt(len(attempts) + 1, run, record.seq, record.at_ms, started))
            case (Responded() | ModelCallFailed() | ModelCallCut() | ModelCallAbandoned()) as outcome if (
                outcome.key in open_at
            ):
                at = open_at.pop(outcome.key)
                is_lost = isinstance(outcome, ModelCallAbandoned)
                epoch = attempts[at].started.epoch if is_lost else record.epoch
                ended_ms = alive_ms.get(epoch, record.at_ms)
                attempts[at] = msgspec.structs.replace(attempts[at], outcome=outcome, ended_ms=ended_ms)
    return tuple(attempts)


def _calls(numbered: Iterable[tuple[int, Record]]) -> tuple[Call, ...]:
    calls: dict[str, Call] = {}
    asked: dict[str, str] = {}
    alive_ms: dict[int, int] = {}
    epochs: dict[str, int] = {}
    turn = 0

    def change(call_id: str, **changes: object) -> None:
        if call_id in calls:
            calls[call_id] = msgspec.structs.replace(calls[call_id], **changes)

    for run, record in numbered:
        at_ms = alive_ms[record.epoch] = record.at_ms
        match record.event:
            case ModelCallStarted(turn=turn):
                pass
            case Responded(parts=parts):
                for part in calls_of(parts):
                    calls[part.call_id] = Call(part.call_id, run, turn, part.name, part.arguments, at_ms)
            case ToolCallStarted() as started:
                known = calls.get(started.call_id)
                arguments = started.arguments or (known.arguments if known else "")
                calls.setdefault(
                    started.call_id, Call(started.call_id, run, turn, started.name, arguments, at_ms)
                )
                change(started.call_id, at_ms=at_ms, arguments=arguments)
                change(started.call_id, status="running", attempts=started.attempt)
                epochs[started.call_id] = started.epoch
            case ToolCallFinished(call_id=call_id, result=result):
                change(call_id, ended_ms=at_ms, status=result.status, text=result.text)
                change(call_id, duration_ms=result.duration_ms if call_id in epochs else None)
            case ToolCallRefused(call_id=call_id, failure=failure):
                change(call_id, ended_ms=at_ms, status="refused", text=failure.message)
            case ToolCallAbandoned(call_id=call_id, text=text):
                ended_ms = alive_ms.get(epochs.get(call_id, record.epoch), at_ms)
                change(call_id, ended_ms=ended_ms, status="abandoned", text=text)
            case ApprovalRequested(approval_id=approval_id, call_id=call_id):
                asked[approval_id] = call_id
                change(call_id, status="waiting")
            case ApprovalResolved(approval_id=approval_id, decision=decision, by=by):
                change(asked.get(approval_id, ""), decision=f"{decision} by {by}" if by else decision)
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
