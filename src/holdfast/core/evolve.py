"""The fold: what each event makes of the state. Total: it never validates and never raises on a known event.

Nothing is decided here. An event that names a call which is not there changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.core import guard
from holdfast.core.state import (
    Call,
    CallStatus,
    ModelCall,
    Run,
    State,
    Stopping,
    Totals,
    open_run,
    started_calls,
)
from holdfast.protocol import events as e
from holdfast.protocol.limits import Settings
from holdfast.protocol.messages import Usage, calls_of, text_of

TITLE_CHARS = 80
NO_EPOCH = -1
"""What no driver of this session started."""
SHRINK_SHARE = 0.7
"""What is left of the assumed window after a provider refused a request as too long without naming its own."""


def evolve(state: State, record: e.Record) -> State:
    """The state after the record."""
    here = replace(_driven(state, record), seq=record.seq, at_ms=record.at_ms)
    return _FOLDS[type(record.event)](here, record.event)


def fold(records: list[e.Record], state: State | None = None) -> State:
    """The state after many records."""
    state = state or State()
    for record in records:
        state = evolve(state, record)
    return state


def _driven(state: State, record: e.Record) -> State:
    """Count the time since the last record where something was in flight under this very driver."""
    if record.at_ms <= state.at_ms or record.epoch != state.epoch:
        return state
    run = open_run(state)
    if run is None:
        return state
    if state.model_call is None and not started_calls(state):
        return state
    return replace(state, run=replace(run, driven_ms=run.driven_ms + record.at_ms - state.at_ms))


# --- session ------------------------------------------------------------------------------------


def _opened(state: State, event: e.SessionOpened) -> State:
    return replace(state, session=event.session, key=event.key, created_ms=state.at_ms)


def _forked(state: State, event: e.SessionForked) -> State:
    """A branch has its own name, its own epochs, and asks its own approvals: a permission that its parent was
    given is not its own. What its parent had in flight no driver of the branch started."""
    calls = tuple(
        replace(call, status="proposed", approval_id="", deadline_ms=0, is_approved=False)
        if call.status in ("proposed", "asked", "answered", "denied", "expired")
        else replace(call, epoch=NO_EPOCH, is_approved=False)
        for call in state.calls
    )
    model_call = replace(state.model_call, epoch=NO_EPOCH) if state.model_call is not None else None
    return replace(state, session=event.session, key="", epoch=0, calls=calls, model_call=model_call)


def _attached(state: State, event: e.Attached) -> State:
    """What an older epoch started is not running. What may be looked at or run again goes before the gates."""
    calls = tuple(
        replace(call, status="proposed")
        if call.status == "started" and call.on_interrupt != "unknown" and call.epoch != event.epoch
        else call
        for call in state.calls
    )
    return replace(state, epoch=event.epoch, calls=calls, reads=frozenset(event.reads))


# --- run ----------------------------------------------------------------------------------------


def _message(state: State, event: e.MessageReceived) -> State:
    title = state.title or " ".join(event.text.split())[:TITLE_CHARS]
    return replace(state, title=title, is_unanswered=True)


def _run_started(state: State, event: e.RunStarted) -> State:
    before = state.before + state.run.totals if state.run is not None else state.before
    run = Run(event.run, started_ms=state.at_ms, totals=Totals(is_unpriced=_is_unpriced(event.settings)))
    return replace(
        state,
        settings=event.settings,
        run=run,
        before=before,
        calls=(),
        repeats=(),
        failed_attempts=0,
        retry_at_ms=0,
        **_unmeasured(state, event.settings),
    )


def _settings(state: State, event: e.SettingsChanged) -> State:
    run = state.run
    if run is not None and _is_unpriced(event.settings):
        run = replace(run, totals=replace(run.totals, is_unpriced=True))
    return replace(state, settings=event.settings, run=run, **_unmeasured(state, event.settings))


def _is_unpriced(settings: Settings) -> bool:
    return settings.facts.price == "unknown"


def _unmeasured(state: State, settings: Settings) -> dict[str, int]:
    """Another model counts tokens in its own way and has its own window."""
    if state.settings is not None and state.settings.facts.name == settings.facts.name:
        return {}
    return {"measured_bytes": 0, "measured_tokens": 0, "window_tokens": 0}


def _paused(state: State, event: e.RunPaused) -> State:
    return _with_run(state, is_paused=True)


def _resumed(state: State, event: e.RunResumed) -> State:
    return replace(_with_run(state, is_paused=False), retry_at_ms=0)


def _landing(state: State, event: e.RunLanding) -> State:
    return _with_run(state, landing=event.reason, message=event.message)


def _stopping(state: State, event: e.RunStopping) -> State:
    stopping = Stopping(event.status, event.reason, event.message, event.grace_until_ms)
    return replace(_with_run(state, stopping=stopping, is_paused=False), retry_at_ms=0)


def _stopped(state: State, event: e.RunStopped) -> State:
    ended = _with_run(
        state, status=event.status, reason=event.reason, message=event.message, stopping=None, is_paused=False
    )
    return replace(ended, calls=(), retry_at_ms=0, failed_attempts=0)


def _noted(state: State, event: e.NoteAdded) -> State:
    run = state.run
    if run is not None and event.about in ("cost", "tokens"):
        run = replace(run, warned=(*run.warned, event.about))
    return replace(state, run=run, notes=(*state.notes, event.about))


# --- model --------------------------------------------------------------------------------------


def _call_started(state: State, event: e.ModelCallStarted) -> State:
    call = ModelCall(
        event.key,
        event.epoch,
        event.attempt,
        event.size_bytes,
        event.reserved_microusd,
        event.reserved_tokens,
        event.is_final,
    )
    run = state.run
    if run is not None:
        run = replace(run, reply="", totals=replace(run.totals, model_calls=run.totals.model_calls + 1))
    return replace(
        state,
        run=run,
        model_call=call,
        model_calls=state.model_calls + 1,
        turn=event.turn,
        calls=(),
        notes=(),
        is_unanswered=False,
    )


def _responded(state: State, event: e.Responded) -> State:
    call = state.model_call
    asked = calls_of(event.parts)
    has_words = bool(text_of(event.parts).strip())
    state = _charged(state, event.usage, event.cost_microusd)
    run = state.run
    if run is not None:
        is_turn = call is not None and not call.is_final
        run = replace(
            run,
            totals=replace(run.totals, turns=run.totals.turns + is_turn),
            reply=_reply_kind(event, bool(asked)),
            answer_seq=state.seq if has_words else run.answer_seq,
            empty_replies=0 if asked or has_words else run.empty_replies + 1,
            has_landed=call is not None and call.is_final,
        )
    is_counted = not event.is_estimated and event.usage.input_tokens > 0 and call is not None
    return replace(
        state,
        run=run,
        answered=state.answered + 1,
        failed_attempts=0,
        calls=tuple(Call(part.call_id, part.ref, part.name, part.arguments) for part in asked),
        measured_bytes=call.size_bytes if is_counted and call is not None else state.measured_bytes,
        measured_tokens=event.usage.input_tokens if is_counted else state.measured_tokens,
    )


def _reply_kind(event: e.Responded, has_calls: bool) -> Any:
    if has_calls:
        return "calls"
    if event.finish == "refusal":
        return "refusal"
    if not text_of(event.parts).strip():
        return "empty"
    return "cut_answer" if event.finish == "length" else "answer"


def _call_failed(state: State, event: e.ModelCallFailed) -> State:
    call, run, settings = state.model_call, state.run, state.settings
    window = state.window_tokens
    if event.failure.code == "context_overflow" and settings is not None:
        assumed = window or settings.facts.context_tokens
        window = min(event.failure.tokens or assumed, int(assumed * SHRINK_SHARE))
        run = replace(run, overflows=run.overflows + 1) if run is not None else None
    state = _charged(replace(state, run=run), event.usage, event.cost_microusd)
    return replace(
        state,
        answered=state.answered + 1,
        failed_attempts=call.attempt if call is not None else state.failed_attempts,
        retry_at_ms=event.retry_at_ms,
        window_tokens=window,
    )


def _call_cut(state: State, event: e.ModelCallCut) -> State:
    cut = _charged(state, event.usage, event.cost_microusd)
    return _with_run(cut, answer_seq=state.seq) if event.text.strip() else cut


def _call_abandoned(state: State, event: e.ModelCallAbandoned) -> State:
    call, run = state.model_call, state.run
    if call is None or run is None:
        return replace(state, model_call=None)
    held = replace(
        run.totals,
        held_microusd=run.totals.held_microusd + call.reserved_microusd,
        held_tokens=run.totals.held_tokens + call.reserved_tokens,
    )
    return replace(state, model_call=None, run=replace(run, totals=held))


def _charged(state: State, usage: Usage, cost: int) -> State:
    """Settle the open attempt: its reservation gives way to what it used."""
    run = state.run
    if run is not None:
        totals = run.totals
        totals = replace(totals, usage=totals.usage + usage, cost_microusd=totals.cost_microusd + cost)
        run = replace(run, totals=totals)
    return replace(state, run=run, model_call=None)


# --- tools and approvals ------------------------------------------------------------------------


def _admitted(state: State, event: e.ToolCallAdmitted) -> State:
    return state


def _refused(state: State, event: e.ToolCallRefused) -> State:
    return _done(state, event.call_id, f"refused\0{event.failure.message}")


def _started(state: State, event: e.ToolCallStarted) -> State:
    run = state.run
    if run is not None:
        run = replace(run, totals=replace(run.totals, tool_calls=run.totals.tool_calls + 1))
    started = _with_call(
        state,
        event.call_id,
        status="started",
        attempt=event.attempt,
        epoch=event.epoch,
        effect=event.effect,
        on_interrupt=event.on_interrupt,
        timeout_s=event.timeout_s,
        change=event.change,
        **({"arguments": event.arguments} if event.arguments else {}),
    )
    return replace(started, run=run)


def _finished(state: State, event: e.ToolCallFinished) -> State:
    result = event.result
    return _done(state, event.call_id, f"{result.status}\0{result.blob or result.text}")


def _abandoned(state: State, event: e.ToolCallAbandoned) -> State:
    return _done(state, event.call_id, f"abandoned\0{event.text}")


def _asked(state: State, event: e.ApprovalRequested) -> State:
    asked = _with_call(
        state,
        event.call_id,
        status="asked",
        approval_id=event.approval_id,
        deadline_ms=event.deadline_ms,
        approved_sha256=event.sha256,
        is_question=bool(event.question),
        is_approved=False,
    )
    return replace(asked, approvals=state.approvals + 1)


def _resolved(state: State, event: e.ApprovalResolved) -> State:
    status = _RESOLVED.get(event.decision)
    for call in state.calls:
        if call.approval_id == event.approval_id and call.status == "asked" and status is not None:
            is_approved = event.decision == "approve"
            return _with_call(state, call.call_id, status=status, is_approved=is_approved, note=event.note)
    return state


_RESOLVED: dict[str, CallStatus] = {
    "approve": "proposed",
    "answer": "answered",
    "deny": "denied",
    "expired": "expired",
}
"""Where a decision leaves its call."""


def _consumed(state: State, event: e.ApprovalConsumed) -> State:
    return state


# --- changing a part ----------------------------------------------------------------------------


def _with_run(state: State, **changes: Any) -> State:
    return replace(state, run=replace(state.run, **changes)) if state.run is not None else state


def _with_call(state: State, call_id: str, **changes: Any) -> State:
    calls = tuple(replace(call, **changes) if call.call_id == call_id else call for call in state.calls)
    return replace(state, calls=calls)


def _done(state: State, call_id: str, result: str) -> State:
    """Close a call; when it is the last of its turn, the repeats are counted."""
    calls = tuple(
        replace(call, status="done", signature=guard.signature(call, result))
        if call.call_id == call_id and call.status != "done"
        else call
        for call in state.calls
    )
    is_complete = calls != state.calls and all(call.status == "done" for call in calls)
    repeats = guard.counted(state.repeats, calls) if is_complete else state.repeats
    return replace(state, calls=calls, repeats=repeats)


_FOLDS: dict[type[e.Event], Callable[[State, Any], State]] = {
    e.SessionOpened: _opened,
    e.SessionForked: _forked,
    e.Attached: _attached,
    e.MessageReceived: _message,
    e.RunStarted: _run_started,
    e.SettingsChanged: _settings,
    e.RunPaused: _paused,
    e.RunResumed: _resumed,
    e.RunLanding: _landing,
    e.RunStopping: _stopping,
    e.RunStopped: _stopped,
    e.NoteAdded: _noted,
    e.ModelCallStarted: _call_started,
    e.Responded: _responded,
    e.ModelCallFailed: _call_failed,
    e.ModelCallCut: _call_cut,
    e.ModelCallAbandoned: _call_abandoned,
    e.ToolCallAdmitted: _admitted,
    e.ToolCallRefused: _refused,
    e.ToolCallStarted: _started,
    e.ToolCallFinished: _finished,
    e.ToolCallAbandoned: _abandoned,
    e.ApprovalRequested: _asked,
    e.ApprovalResolved: _resolved,
    e.ApprovalConsumed: _consumed,
}
