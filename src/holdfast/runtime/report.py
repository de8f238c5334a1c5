"""What a run came to, in one frozen value: what `run --json` prints and the library returns.

How it is shown or written belongs to the command line and the library.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.state import Run, State, phase
from holdfast.core.summary import status
from holdfast.errors import UsageError
from holdfast.protocol.codec import decode
from holdfast.protocol.events import ModelCallCut, Responded
from holdfast.protocol.ids import trace_id
from holdfast.protocol.messages import Usage, text_of
from holdfast.protocol.ports import Store

ReportStatus = Literal["done", "failed", "limit", "waiting", "stuck", "parked", "interrupted"]

_OPEN: dict[str, ReportStatus] = {"waiting": "waiting", "parked": "parked"}
_REASONS: dict[str, str] = {"waiting": "approval", "backing_off": "retry", "paused": "paused"}


class Report(msgspec.Struct, frozen=True):
    """The open or the last run of a session; all counts are of this run, over every process that drove it."""

    session: str
    run: int
    status: ReportStatus
    reason: str
    """One word: `answer`, `cost`, `turns`, `approval`, `rate_limited` ..."""
    message: str
    """Why it ended, as a sentence; empty when it was simply done."""
    text: str
    """The last words of the model; empty when it said none."""
    turns: int
    model_calls: int
    tool_calls: int
    """Calls that were started."""
    usage: Usage
    cost_microusd: int | None
    """None: a model without a known price took part."""
    trace_id: str
    due_ms: int
    """When a parked run wants to go on; else 0."""
    can_go_on: bool
    """Whether `resume` would go on with it: it was not simply done."""


def report(state: State, text: str) -> Report:
    """What the newest run came to, or how it stands; `text` are its last words.

    Raises:
        UsageError: the session has no run yet.
    """
    run = state.run
    if run is None:
        raise UsageError(f"Nothing ran in session {state.session} yet.", hint="Give it a task.")
    used = run.totals
    return Report(
        session=state.session,
        run=run.number,
        status=_status(state),
        reason=_reason(state, run),
        message=run.message,
        text=text,
        turns=used.turns,
        model_calls=used.model_calls,
        tool_calls=used.tool_calls,
        usage=used.usage,
        cost_microusd=None if used.is_unpriced else used.cost_microusd,
        trace_id=trace_id(state.session, run.number),
        due_ms=state.retry_at_ms,
        can_go_on=run.status != "done",
    )


def _status(state: State) -> ReportStatus:
    """An open run that nobody drives any more counts as interrupted."""
    run = state.run
    if run is not None and run.status:
        return run.status  # type: ignore[return-value]  # the fold of a RunStopped
    return _OPEN.get(status(state), "interrupted")


def _reason(state: State, run: Run) -> str:
    if run.status:
        return run.reason
    if phase(state) == "waiting" and any(call.is_question for call in state.calls if call.status == "asked"):
        return "question"
    return _REASONS.get(phase(state), "open")


async def last_words(store: Store, state: State) -> str:
    """The text of the model's last response in the newest run; empty when it said nothing."""
    seq = state.run.answer_seq if state.run is not None else 0
    if not seq:
        return ""
    match decode((await store.read(state.session, seq - 1, seq))[0]).event:
        case Responded(parts=parts):
            return text_of(parts)
        case ModelCallCut(text=text):
            return text
    return ""
