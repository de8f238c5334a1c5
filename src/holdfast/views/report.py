"""The result of a run, as the library returns it and `run --json` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import asdict

from holdfast.core.approvals import open_question
from holdfast.core.state import Run, State
from holdfast.core.summary import status
from holdfast.errors import NoOutput, UsageError
from holdfast.protocol.answers import value_in
from holdfast.protocol.events import (
    AnswerGiven,
    Event,
    ModelCallCut,
    ModelCallFailed,
    ModelCallUnready,
    Record,
)
from holdfast.protocol.failures import in_full
from holdfast.protocol.ids import trace_id
from holdfast.protocol.limits import usd
from holdfast.protocol.messages import Usage, Verdict
from holdfast.protocol.settings import Output, name_of
from holdfast.views.words import words_of

ResultStatus = Literal["done", "failed", "limit", "waiting", "stuck", "parked", "interrupted"]

_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_OPEN: dict[str, ResultStatus] = {"waiting": "waiting", "paused": "waiting", "parked": "parked"}


T = TypeVar("T")


class Result(msgspec.Struct, Generic[T], frozen=True):
    """The result of the open or last run of a session. Counts and cost include every process that drove the run."""

    session_id: str
    status: ResultStatus
    reason: str
    """One word: `answer`, `cost`, `turns`, `approval`, `rate_limited` ..."""
    message: str
    """Why the run ended, as a sentence; empty if it is done."""
    text: str
    """The last words of the model; empty if it said nothing."""
    turns: int
    model_calls: int
    tool_calls: int
    """The number of calls that were started."""
    usage: Usage
    cost_microusd: int | None
    """None if a model without a known price took part."""
    is_estimated: bool
    """Whether a provider did not count a part of the usage: tokens and cost are estimates then."""
    trace_id: str
    due_ms: int
    """When a parked run can continue; otherwise 0."""
    can_go_on: bool
    """Whether `resume` can continue the run: it is not done."""
    has_schema: bool = False
    """Whether the answer has to match a JSON Schema."""
    is_calibrated: bool = False
    """Whether the answer has to come with a confidence."""
    confidence: float | None = None
    """How sure the model is of `text`, from 0 to 1; None if it did not say so."""
    reasons: tuple[str, ...] = ()
    """What the answer rests on, as the model says."""
    caveats: tuple[str, ...] = ()
    """What may be wrong with it, as the model says."""
    answer: T | msgspec.UnsetType = msgspec.UNSET
    """What `output` returns: words, or with a schema the value; UNSET if the run has not ended with an answer."""

    @property
    def output(self) -> T:
        """The answer as the type that `output=` named; without it the text.

        Raises:
            NoOutput: the run has not ended with an answer, or with none that matches.
        """
        if isinstance(self.answer, msgspec.UnsetType):
            why = self.message or f"Its status is {self.status}, its reason {self.reason}."
            raise NoOutput(f"The run has no output. {why}")
        return self.answer

    @property
    def cost_usd(self) -> str | None:
        """Dollars as decimal text, `"0.001234"`; None if the price of the model is unknown."""
        return None if self.cost_microusd is None else usd(self.cost_microusd)


def report_of(state: State, said: Sequence[Event], recent: Sequence[Record] = ()) -> Result[Any]:
    """Return the result of the newest run.

    Args:
        said: The events at the run's `cut` and `answer_seq`, if any: together they are the answer.
        recent: The last records of a parked session, with the failure that parked it.

    Raises:
        UsageError: The session has no run yet.
    """
    run = state.run
    if run is None:
        raise UsageError(f"Session {state.session} has no run yet.", hint="Give it a task.")
    used, text = run.totals, "".join(map(_words, said))
    given = said[-1].answer if said and isinstance(said[-1], AnswerGiven) else None
    reason, message = _why(state, run, recent)
    return Result(
        session_id=state.session,
        status=_status(state, run),
        reason=reason,
        message=message,
        text=text,
        turns=used.turns,
        model_calls=used.model_calls,
        tool_calls=used.tool_calls,
        usage=used.usage,
        cost_microusd=None if used.is_unpriced else used.cost_microusd,
        is_estimated=used.is_estimated,
        trace_id=trace_id(state.session, run.number),
        due_ms=state.models.retry_at_ms,
        can_go_on=run.status != "done",
        has_schema=state.settings is not None and bool(state.settings.output.schema),
        is_calibrated=state.settings is not None and state.settings.conduct.is_calibrated,
        confidence=given.confidence if given is not None else None,
        reasons=given.reasons if given is not None else (),
        caveats=given.caveats if given is not None else (),
        answer=_answer(state, run, text),
    )


def _answer(state: State, run: Run, text: str) -> Any:
    """Return the answer with which the run has ended, as a value if it has a schema; UNSET without an answer."""
    output = state.settings.output if state.settings is not None else Output()
    if not text or run.status not in ("done", "limit"):
        return msgspec.UNSET
    if not output.schema:
        return text
    return value_in(text) if run.verdict == Verdict(name_of(output)) else msgspec.UNSET


def _status(state: State, run: Run) -> ResultStatus:
    """Return the status. An open run that does not wait counts as interrupted, because its driver left it."""
    if run.status:
        return run.status  # type: ignore[return-value]  # the fold of a RunStopped
    return _OPEN.get(status(state), "interrupted")


def _why(state: State, run: Run, recent: Sequence[Record]) -> tuple[str, str]:
    """Return the reason as a word and as a sentence."""
    if run.status:
        return run.reason, run.message
    match status(state):
        case "waiting" if run.question:
            return "question", f"The agent asks: {run.question}"
        case "waiting" if open_question(state) is not None:
            return "question", "The agent waits for your answer."
        case "waiting":
            return "approval", "A call waits for your approval."
        case "paused":
            return "paused", "The session is paused."
        case "parked":
            return _last_failure(recent)
    return "open", "The run is open, and no process drives it."


def _last_failure(recent: Sequence[Record]) -> tuple[str, str]:
    for record in reversed(recent):
        is_side = isinstance(record.event, ModelCallUnready) and record.event.purpose != "work"
        if isinstance(record.event, ModelCallFailed | ModelCallUnready) and not is_side:
            failure = record.event.failure
            is_budget = failure.code == "budget_exhausted"  # then the detail names it
            return failure.detail if is_budget else failure.code, in_full(failure)
    return "provider_transient", "The provider is not available."


def _words(event: Event) -> str:
    return event.text if isinstance(event, ModelCallCut) else words_of(event) or ""


def result_row(report: Result[Any]) -> dict[str, Any]:
    """Return the object that `run --json` prints."""
    has_answer = not isinstance(report.answer, msgspec.UnsetType)
    calibration = {
        "confidence": report.confidence,
        "reasons": list(report.reasons),
        "caveats": list(report.caveats),
    }
    row: dict[str, Any] = {
        "session": report.session_id,
        "status": report.status,
        "reason": report.reason,
        "text": report.text,
        "turns": report.turns,
        "model_calls": report.model_calls,
        "tool_calls": report.tool_calls,
        "usage": {name: asdict(report.usage)[name] for name in _USAGE},
        "cost_usd": report.cost_usd,
        "trace_id": report.trace_id,
        "resume": next_command(report) if report.can_go_on else None,
        "message": report.message,
    }
    row |= calibration if report.is_calibrated else {}
    return row | ({"output": report.answer if has_answer else None} if report.has_schema else {})


def next_command(report: Result[Any]) -> str:
    """Return the command that continues the session."""
    return f"holdfast resume {report.session_id}"
