"""What a run came to, in one frozen value: what `run --json` prints and the library returns.

How it is shown or written belongs to the command line and the library.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.approvals import open_question
from holdfast.core.state import Run, State
from holdfast.core.summary import status
from holdfast.errors import UsageError
from holdfast.protocol.events import ModelCallCut, ModelCallFailed, Responded
from holdfast.protocol.ids import trace_id
from holdfast.protocol.limits import usd
from holdfast.protocol.messages import Usage, text_of
from holdfast.protocol.ports import Store
from holdfast.runtime.journal import readable

ResultStatus = Literal["done", "failed", "limit", "waiting", "stuck", "parked", "interrupted"]

_OPEN: dict[str, ResultStatus] = {"waiting": "waiting", "paused": "waiting", "parked": "parked"}
_RECENT_RECORDS = 20
"""The failure that parked a session stands among its last records."""


class Result(msgspec.Struct, frozen=True):
    """What a run came to, the open or the last one of a session. Counts and cost are of this run, over every process
    that drove it."""

    session_id: str
    status: ResultStatus
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

    @property
    def cost_usd(self) -> str | None:
        """Dollars as decimal text, `"0.001234"`; None: the model's price is not known."""
        return None if self.cost_microusd is None else usd(self.cost_microusd)


async def report(store: Store, state: State) -> Result:
    """What the newest run came to, or how it stands.

    Raises:
        UsageError: the session has no run yet, or the answer was erased.
        StorageError: its records cannot be read.
    """
    run = state.run
    if run is None:
        raise UsageError(f"Nothing ran in session {state.session} yet.", hint="Give it a task.")
    used = run.totals
    reason, message = await _why(store, state, run)
    return Result(
        session_id=state.session,
        status=_status(state, run),
        reason=reason,
        message=message,
        text=await last_words(store, state),
        turns=used.turns,
        model_calls=used.model_calls,
        tool_calls=used.tool_calls,
        usage=used.usage,
        cost_microusd=None if used.is_unpriced else used.cost_microusd,
        trace_id=trace_id(state.session, run.number),
        due_ms=state.retry_at_ms,
        can_go_on=run.status != "done",
    )


def _status(state: State, run: Run) -> ResultStatus:
    """An open run that does not rest counts as interrupted: whoever asks has left it."""
    if run.status:
        return run.status  # type: ignore[return-value]  # the fold of a RunStopped
    return _OPEN.get(status(state), "interrupted")


async def _why(store: Store, state: State, run: Run) -> tuple[str, str]:
    """One word and a sentence."""
    if run.status:
        return run.reason, run.message
    match status(state):
        case "waiting" if open_question(state) is not None:
            return "question", "It waits for a person's answer."
        case "waiting":
            return "approval", "It waits for a person's decision."
        case "paused":
            return "paused", "Somebody paused it."
        case "parked":
            return await _last_failure(store, state)
    return "open", "The run is open, and it was left before it came to rest."


async def _last_failure(store: Store, state: State) -> tuple[str, str]:
    recent = await store.read(state.session, max(state.seq - _RECENT_RECORDS, 0))
    for event in (readable(stored).event for stored in reversed(recent)):
        if isinstance(event, ModelCallFailed):
            return event.failure.code, event.failure.message
    return "provider_transient", "The provider is not available."


async def last_words(store: Store, state: State) -> str:
    """The text of the model's last response in the newest run; empty when it said nothing."""
    seq = state.run.answer_seq if state.run is not None else 0
    if not seq:
        return ""
    match readable((await store.read(state.session, seq - 1, seq))[0]).event:
        case Responded(parts=parts):
            return text_of(parts)
        case ModelCallCut(text=text):
            return text
    return ""
