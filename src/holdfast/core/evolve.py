"""The fold: what each event makes of the state. Total: it never validates and never raises on a known event.

Nothing is decided here. An event that names a call which is not there changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from msgspec.structs import replace

from holdfast.core import guard, measure
from holdfast.core.measure import Measure
from holdfast.core.state import (
    RESTING,
    Answered,
    Call,
    Denied,
    Done,
    Expired,
    ModelCall,
    Permission,
    Proposed,
    Run,
    Stage,
    Started,
    State,
    Stopping,
    ToolAttempt,
    Totals,
    Turn,
    Unsaid,
    Waiting,
    facts,
    is_complete,
    open_run,
    phase,
)
from holdfast.protocol import events as e
from holdfast.protocol.commands import Principal
from holdfast.protocol.messages import calls_of, text_of
from holdfast.protocol.settings import SettingsRef, settings_by
from holdfast.protocol.trust import Label

TITLE_CHARS = 80
NO_EPOCH = -1
"""What no driver of this session started."""
_NOTHING = Unsaid()
SHRINK_SHARE = 0.7
"""What is left of the assumed window after a provider refused a request as too long without naming a smaller one."""
LEAST_WINDOW_TOKENS = 1_024
"""No refusal teaches a window below this: nothing could be done in it."""


def evolve(state: State, record: e.Record) -> State:
    """The state after the record."""
    here = replace(_driven(state, record), seq=record.seq, at_ms=record.at_ms, awake_ms=record.awake_ms)
    return _FOLDS[type(record.event)](here, record.event)


def fold(records: list[e.Record], state: State | None = None) -> State:
    """The state after many records."""
    state = state or State()
    for record in records:
        state = evolve(state, record)
    return state


def _driven(state: State, record: e.Record) -> State:
    """Count the time since the last record in which this very driver was at work, by its clock."""
    passed_ms = record.awake_ms - state.awake_ms
    if passed_ms <= 0 or record.epoch != state.epoch or state.run is None or phase(state) in RESTING:
        return state
    return replace(state, run=replace(state.run, driven_ms=state.run.driven_ms + passed_ms))


# --- session ------------------------------------------------------------------------------------


def _of_session(state: State, event: e.SessionEvent) -> State:
    match event:
        case e.SessionOpened(session=session, key=key):
            return replace(state, session=session, key=key, created_ms=state.at_ms)
        case e.SessionForked():
            return _forked(state, event)
        case e.Attached():
            return _attached(state, event)


def _forked(state: State, event: e.SessionForked) -> State:
    """A branch has its own name, its own epochs, and asks its own approvals: a permission that its parent was
    given is not its own. What its parent had in flight no driver of the branch started."""
    calls = tuple(_of_a_branch(call) for call in state.turn.calls)
    open_ = replace(state.models.open, epoch=NO_EPOCH) if state.models.open is not None else None
    return replace(
        state,
        session=event.session,
        key="",
        epoch=0,
        turn=replace(state.turn, calls=calls),
        models=replace(state.models, open=open_),
    )


def _of_a_branch(call: Call) -> Call:
    match call.stage:
        case Started(attempt):
            return replace(call, stage=Started(replace(attempt, epoch=NO_EPOCH)), permission=None)
        case Done():
            return call
        case Proposed() | Waiting() | Answered() | Denied() | Expired():
            return replace(call, stage=Proposed(), permission=None)


def _attached(state: State, event: e.Attached) -> State:
    """What an older epoch started is not running. What may be looked at or run again goes before the gates."""
    calls = tuple(
        replace(call, stage=Proposed(), interrupted=attempt)
        if (attempt := _cut_off(call.stage, event.epoch)) is not None and attempt.on_interrupt != "unknown"
        else call
        for call in state.turn.calls
    )
    turn = replace(state.turn, calls=calls)
    return replace(state, epoch=event.epoch, turn=turn)


def _cut_off(stage: Stage, epoch: int) -> ToolAttempt | None:
    """The attempt that an older epoch left open."""
    return stage.attempt if isinstance(stage, Started) and stage.attempt.epoch != epoch else None


# --- run ----------------------------------------------------------------------------------------


def _of_run(state: State, event: e.RunEvent) -> State:
    match event:
        case e.MessageReceived():
            return _message(state, event)
        case e.NoteAdded():
            return _noted(state, event)
        case e.SettingsStored(groups=groups):
            return replace(state, groups={**state.groups, **groups})
        case e.RunStarted():
            return _run_started(state, event)
        case e.SettingsChanged():
            return _changed(state, event)
        case e.RunPaused():
            return _with_run(state, is_paused=True)
        case e.RunResumed():
            return _waits_no_more(_with_run(state, is_paused=False))
        case e.RunLanding(reason=reason, message=message):
            return _with_run(state, landing=reason, message=message)
        case e.RunStopping():
            return _stopping(state, event)
        case e.RunStopped():
            return _stopped(state, event)


def _message(state: State, event: e.MessageReceived) -> State:
    """Words make a title, and tell on whose behalf the run works: of several, with the rights that all have."""
    title = state.title or " ".join(event.text.split())[:TITLE_CHARS]
    principal = Principal(event.sender, scopes=event.scopes)
    if open_run(state) is not None or state.unsaid.last_words_seq:  # the run holds the words of others too
        principal = _least(principal, state.principal)
    unsaid = replace(state.unsaid, words_seq=state.unsaid.words_seq or state.seq, last_words_seq=state.seq)
    spoken = _labelled(state, Label("user", "user"))
    return replace(spoken, title=title, principal=principal, unsaid=unsaid)


def _least(principal: Principal, other: Principal) -> Principal:
    """The first, with the rights that both have."""
    return replace(principal, scopes=tuple(scope for scope in principal.scopes if scope in other.scopes))


def _labelled(state: State, label: Label) -> State:
    return state if label in state.labels else replace(state, labels=(*state.labels, label))


def _run_started(state: State, event: e.RunStarted) -> State:
    before = state.before + state.run.totals if state.run is not None else state.before
    state = _set(_waits_no_more(state), event.settings)
    last = state.run
    goal_seq = last.goal_seq if event.is_continuation and last is not None else state.unsaid.words_seq
    run = Run(
        event.run, started_ms=state.at_ms, goal_seq=goal_seq, totals=Totals(is_unpriced=_is_unpriced(state))
    )
    principal = state.principal
    if event.is_continuation:
        principal = _least(Principal(event.sender, scopes=event.scopes), principal)
    return replace(
        state,
        run=run,
        before=before,
        principal=principal,
        turn=Turn(state.turn.number),
        models=replace(state.models, failed_attempts=0),
    )


def _changed(state: State, event: e.SettingsChanged) -> State:
    before, state = state.settings, _set(state, event.settings)
    run = state.run
    if run is None:
        return state
    if before is not None and state.settings is not None and before.limits != state.settings.limits:
        run = _under_new_limits(
            run, is_landing=state.models.open is not None and state.models.open.is_last_pass
        )
    if _is_unpriced(state):
        run = replace(run, totals=replace(run.totals, is_unpriced=True))
    return replace(state, run=run)


def _under_new_limits(run: Run, *, is_landing: bool) -> Run:
    """Which limits are near or reached is found out anew, unless the last pass is under way."""
    warned = tuple(name for name in run.warned if name == "cap")
    if is_landing or run.has_landed:
        return replace(run, warned=warned)
    return replace(run, warned=warned, landing="", message="")


def _is_unpriced(state: State) -> bool:
    return facts(state).price == "unknown"


def _set(state: State, ref: SettingsRef) -> State:
    """Other settings. Another model counts tokens in its own way and has its own window."""
    changed = replace(state, settings=settings_by(ref, state.groups) or state.settings)
    before, after = facts(state), facts(changed)
    if after.name != before.name:  # the new one is not the one that has to be waited for
        return _with_models(
            changed, measure=Measure(), learnt_window_tokens=0, retry_at_ms=0, failed_attempts=0
        )
    if after.context_tokens != before.context_tokens:
        return _with_models(changed, learnt_window_tokens=0)
    return changed


def _waits_no_more(state: State) -> State:
    """No attempt of a model call is waited for any more."""
    return _with_models(state, retry_at_ms=0) if state.models.retry_at_ms else state


def _stopping(state: State, event: e.RunStopping) -> State:
    stopping = Stopping(event.status, event.reason, event.message, event.grace_until_ms, event.by)
    return _waits_no_more(_with_run(state, stopping=stopping, is_paused=False))


def _stopped(state: State, event: e.RunStopped) -> State:
    ended = _with_run(
        state, status=event.status, reason=event.reason, message=event.message, stopping=None, is_paused=False
    )
    return replace(
        ended,
        turn=replace(state.turn, calls=()),
        models=replace(state.models, retry_at_ms=0, failed_attempts=0),
        unsaid=_unsaid_after(state, event),
    )


def _unsaid_after(state: State, event: e.RunStopped) -> Unsaid:
    """Who stops a run stops its words too. No run opens for them, but once it had begun the next request has them."""
    if event.status != "interrupted":
        return state.unsaid
    has_begun = state.run is not None and state.run.totals.model_calls
    return replace(state.unsaid, words_seq=0, last_words_seq=state.unsaid.last_words_seq if has_begun else 0)


def _noted(state: State, event: e.NoteAdded) -> State:
    run = state.run
    if run is not None and event.about in ("cost", "tokens", "cap"):
        run = replace(run, warned=(*run.warned, event.about))
    unsaid = replace(state.unsaid, notes=(*state.unsaid.notes, event.about))
    return replace(state, run=run, unsaid=unsaid)


# --- model --------------------------------------------------------------------------------------


def _of_model(state: State, event: e.ModelEvent) -> State:
    match event:
        case e.ModelCallStarted():
            return _call_started(state, event)
        case e.Responded():
            return _responded(state, event)
        case e.ModelCallFailed():
            return _call_failed(state, event)
        case e.ModelCallUnready(retry_at_ms=retry_at_ms):
            failed_attempts = state.models.failed_attempts + 1
            return _with_models(state, retry_at_ms=retry_at_ms, failed_attempts=failed_attempts)
        case e.ModelCallUnaffordable():
            return state
        case e.ModelCallCut():
            return _call_cut(state, event)
        case e.ModelCallAbandoned():
            return _call_abandoned(state)


def _call_started(state: State, event: e.ModelCallStarted) -> State:
    request, models, run = event.request, state.models, state.run
    call = ModelCall(
        event.key,
        event.epoch,
        event.attempt,
        request.size_bytes,
        request.expected_tokens,
        request.output_cap_tokens,
        request.reserved_microusd,
        request.reserved_tokens,
        event.is_last_pass,
        facts(state),
    )
    if run is not None:
        run = replace(run, reply="", totals=replace(run.totals, model_calls=run.totals.model_calls + 1))
    return replace(
        state,
        run=run,
        models=replace(
            models,
            open=call,
            started=models.started + 1,
            measure=measure.after_request(models.measure, request.fresh_bytes),
            base=request.base,
        ),
        turn=Turn(event.turn, (), state.turn.repeats),
        unsaid=_NOTHING,
    )


def _responded(state: State, event: e.Responded) -> State:
    call = state.models.open
    asked = calls_of(event.parts)
    has_words = bool(text_of(event.parts).strip())
    state = _charged(state, event)
    run, models = state.run, state.models
    if run is not None:
        is_turn = call is not None and not call.is_last_pass
        run = replace(
            run,
            totals=replace(run.totals, turns=run.totals.turns + is_turn),
            reply=_reply_kind(event, bool(asked)),
            answer_seq=state.seq if has_words else run.answer_seq,
            empty_replies=0 if asked or has_words else run.empty_replies + 1,
            has_landed=call is not None and call.is_last_pass,
        )
    calls = tuple(Call(p.call_id, p.ref, p.name, p.arguments, p.is_masked) for p in asked)
    return replace(
        state,
        run=run,
        turn=replace(state.turn, calls=calls),
        models=replace(
            models,
            outcomes=models.outcomes + 1,
            failed_attempts=0,
            measure=_measured(state, call, event),
        ),
    )


def _is_of_next(state: State, call: ModelCall | None) -> bool:
    """Whether what a call taught about its model holds for the next one: the settings may have changed since."""
    return call is not None and call.facts.name == facts(state).name


def _measured(state: State, call: ModelCall | None, event: e.Responded) -> Measure:
    """What the counts of a response teach about the next request."""
    if call is None or not _is_of_next(state, call):
        return state.models.measure
    window = call.facts.context_tokens
    return measure.after_response(
        state.models.measure, call.size_bytes, window, event.usage, event.estimated, event.parts
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
    call, run = state.models.open, state.run
    window = state.models.learnt_window_tokens
    if event.failure.code == "context_overflow":
        run = replace(run, overflows=run.overflows + 1) if run is not None else None
        if _is_of_next(state, call):
            assumed, named = window or facts(state).context_tokens, event.failure.tokens or 0
            smaller = named if 0 < named < assumed else int(assumed * SHRINK_SHARE)
            window = max(smaller, LEAST_WINDOW_TOKENS)
    state = _charged(replace(state, run=run), event)
    return _with_models(
        state,
        outcomes=state.models.outcomes + 1,
        failed_attempts=call.attempt if call is not None else state.models.failed_attempts,
        retry_at_ms=event.retry_at_ms,
        learnt_window_tokens=window,
    )


def _call_cut(state: State, event: e.ModelCallCut) -> State:
    cut = _charged(state, event)
    return _with_run(cut, answer_seq=state.seq) if event.text.strip() else cut


def _call_abandoned(state: State) -> State:
    call, run = state.models.open, state.run
    if call is not None and run is not None:
        held = replace(
            run.totals,
            held_microusd=run.totals.held_microusd + call.reserved_microusd,
            held_tokens=run.totals.held_tokens + call.reserved_tokens,
        )
        run = replace(run, totals=held)
    return replace(state, models=replace(state.models, open=None), run=run)


def _charged(state: State, ended: e.Responded | e.ModelCallFailed | e.ModelCallCut) -> State:
    """Settle the open attempt: its reservation gives way to what it used."""
    run = state.run
    if run is not None:
        totals = replace(
            run.totals,
            usage=run.totals.usage + ended.usage,
            cost_microusd=run.totals.cost_microusd + ended.cost_microusd,
            is_estimated=run.totals.is_estimated or bool(ended.estimated),
        )
        run = replace(run, totals=totals)
    return replace(state, run=run, models=replace(state.models, open=None))


# --- tools and approvals ------------------------------------------------------------------------


def _of_tool(state: State, event: e.ToolEvent) -> State:
    match event:
        case e.ToolCallAdmitted(call_id=call_id, resources=resources):
            return _with_call(state, call_id, resources=resources)
        case e.ToolCallQueued(call_id=call_id, resources=resources):
            return _with_call(state, call_id, resources=resources)
        case e.ToolCallStarted():
            return _started(state, event)
        case e.ToolCallFinished():
            return _finished(state, event)
        case e.ToolCallRefused(call_id=call_id, failure=failure):
            return _done(state, call_id, f"refused\0{failure.message}")
        case e.ToolCallAbandoned(call_id=call_id, text=text):
            return _done(state, call_id, f"abandoned\0{text}")


def _of_approval(state: State, event: e.ApprovalEvent) -> State:
    match event:
        case e.ApprovalRequested():
            return _asked(state, event)
        case e.ApprovalResolved():
            return _resolved(state, event)
        case e.ApprovalConsumed():
            return _consumed(state, event)


def _started(state: State, event: e.ToolCallStarted) -> State:
    run = state.run
    if run is not None:
        run = replace(run, totals=replace(run.totals, tool_calls=run.totals.tool_calls + 1))
    attempt = ToolAttempt(
        event.attempt, event.epoch, event.effect, event.on_interrupt, event.timeout_s, event.expects
    )
    arguments = {"arguments": event.arguments} if event.arguments else {}
    started = _with_call(state, event.call_id, stage=Started(attempt), interrupted=None, **arguments)
    return replace(started, run=run)


def _finished(state: State, event: e.ToolCallFinished) -> State:
    result = event.result
    name = next((call.name for call in state.turn.calls if call.call_id == event.call_id), "")
    return _done(
        _labelled(state, Label(name, result.trust)),
        event.call_id,
        f"{result.status}\0{result.blob or result.text}",
    )


def _asked(state: State, event: e.ApprovalRequested) -> State:
    stage = Waiting(event.approval_id, event.sha256, event.deadline_ms, bool(event.question))
    asked = _with_call(state, event.call_id, stage=stage, permission=None, resources=event.resources)
    return replace(asked, approvals=state.approvals + 1)


def _resolved(state: State, event: e.ApprovalResolved) -> State:
    for call in state.turn.calls:
        stage = call.stage
        if isinstance(stage, Waiting) and stage.approval_id == event.approval_id:
            match event.decision:
                case "approve":
                    permission = Permission(stage.approval_id, stage.sha256)
                    return _with_call(state, call.call_id, stage=Proposed(), permission=permission)
                case "answer":  # these are words of a person too
                    heard = replace(
                        state, principal=_least(Principal(event.by, scopes=event.scopes), state.principal)
                    )
                    return _with_call(heard, call.call_id, stage=Answered(event.note))
                case "deny":
                    return _with_call(state, call.call_id, stage=Denied(event.note))
                case "expired":
                    return _with_call(state, call.call_id, stage=Expired(stage.is_question))
                case "withdrawn":
                    return state
    return state


def _consumed(state: State, event: e.ApprovalConsumed) -> State:
    for call in state.turn.calls:
        permission = call.permission
        if permission is not None and permission.approval_id == event.approval_id:
            return _with_call(state, call.call_id, permission=replace(permission, is_consumed=True))
    return state


# --- changing a part ----------------------------------------------------------------------------


def _with_run(state: State, **changes: Any) -> State:
    return replace(state, run=replace(state.run, **changes)) if state.run is not None else state


def _with_models(state: State, **changes: Any) -> State:
    return replace(state, models=replace(state.models, **changes))


def _with_call(state: State, call_id: str, **changes: Any) -> State:
    calls = tuple(replace(c, **changes) if c.call_id == call_id else c for c in state.turn.calls)
    return replace(state, turn=replace(state.turn, calls=calls))


def _done(state: State, call_id: str, result: str) -> State:
    """Close a call; when it is the last of its turn, the repeats are counted."""
    calls = tuple(
        replace(call, stage=Done(guard.signature(call, result)))
        if call.call_id == call_id and not isinstance(call.stage, Done)
        else call
        for call in state.turn.calls
    )
    turn = replace(state.turn, calls=calls)
    if calls != state.turn.calls and is_complete(turn):
        turn = replace(turn, repeats=guard.counted(turn.repeats, calls))
    return replace(state, turn=turn)


def _folds(
    kind: Any, fold: Callable[[State, Any], State]
) -> dict[type[e.Event], Callable[[State, Any], State]]:
    return dict.fromkeys(get_args(kind), fold)


_FOLDS = {
    **_folds(e.SessionEvent, _of_session),
    **_folds(e.RunEvent, _of_run),
    **_folds(e.ModelEvent, _of_model),
    **_folds(e.ToolEvent, _of_tool),
    **_folds(e.ApprovalEvent, _of_approval),
}
"""Looked up by type, which is faster than to ask each group in turn."""
