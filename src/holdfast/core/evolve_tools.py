"""The fold of tool calls and approvals: the stages of each call of the turn."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core import background, deferred, grants, guard, ledger, pace, plan, progress
from holdfast.core.changes import labelled, narrowed, with_call, with_run
from holdfast.core.failing import after_call as after_failure
from holdfast.core.reflecting import after_call
from holdfast.core.state import (
    Answered,
    Call,
    Denied,
    Done,
    Expired,
    Permission,
    Proposed,
    Started,
    State,
    ToolAttempt,
    Waiting,
    call_of,
    is_complete,
)
from holdfast.protocol import events as e
from holdfast.protocol.commands import Principal
from holdfast.protocol.failures import Failure
from holdfast.protocol.flags import flags_after
from holdfast.protocol.tools import TELLING, Decision, covered_by
from holdfast.protocol.trust import Label

_DECIDED = {"approve": "approved", "deny": "denied", "answer": "answered"}


def of_tool(state: State, event: e.ToolEvent) -> State:
    match event:
        case e.ToolCallStarted():
            return _started(state, event)
        case e.ToolCallFinished():
            return _finished(state, event)
        case e.ToolCallQueued(call_id=call_id, resources=resources):
            return with_call(state, call_id, resources=resources)
        case e.ToolCallRefused(call_id=call_id, failure=failure):
            failed = _reflecting(state, is_failed=failure.code != "cancelled")
            return _done(_failing(failed, failure), call_id, f"refused\0{failure.message}")
        case e.ToolCallAbandoned(call_id=call_id, text=text):
            return _done(state, call_id, f"abandoned\0{text}")
        case e.ToolCallTold(call_id=call_id, decisions=decisions):
            return _passed(with_call(state, call_id, resources=()), call_id, decisions)
        case e.PlanChanged():
            after = guard.after_plan(state.progress, event.plan, state.turn.number)
            return replace(state, plan=plan.after_change(state.plan, event.plan), progress=after)
        case e.AnswerGiven():
            return _answer_given(state, event)


def _answer_given(state: State, event: e.AnswerGiven) -> State:
    given = with_run(state, answer_seq=state.seq, cut=())
    if event.is_doubted:
        return with_run(given, was_doubted=True)
    return with_run(given, reply="given", verdict=event.verdict)


def of_approval(state: State, event: e.ApprovalEvent) -> State:
    match event:
        case e.ApprovalRequested():
            return _asked(state, event)
        case e.ApprovalResolved():
            return _resolved(state, event)
        case e.ApprovalConsumed():
            return _consumed(state, event)
        case e.GrantMade(grant=grant, approval_id=approval):
            return deferred.without(grants.made(state, grant), approval)
        case e.GrantRevoked(grant_id=name):
            return grants.without(state, name)


def _started(state: State, event: e.ToolCallStarted) -> State:
    run = state.run
    if run is not None:
        run = replace(run, totals=replace(run.totals, tool_calls=run.totals.tool_calls + 1))
    attempt = ToolAttempt(
        event.attempt,
        event.epoch,
        event.effect,
        event.on_interrupt,
        event.timeout_s,
        event.expects,
        event.walled,
    )
    call = call_of(state, event.call_id)
    arguments = {}
    if event.arguments and call is not None:
        arguments = {"arguments": event.arguments, "written": call.written or call.arguments}
    started = with_call(
        state,
        event.call_id,
        stage=Started(attempt),
        interrupted=None,
        likeness=event.likeness,
        resources=event.resources,
        **arguments,
    )
    starts = pace.after_start(state.starts, state.at_ms) if event.attempt == 1 else state.starts
    return _passed(replace(started, run=run, starts=starts), event.call_id, event.decisions)


def _passed(state: State, call_id: str, decisions: Sequence[Decision]) -> State:
    """Count what let the call pass the gates: a grant, or the approval of the same call made before."""
    used = grants.used(state, decisions)
    return _made_again(used, call_id, decisions) if used.deferred else used


def _finished(state: State, event: e.ToolCallFinished) -> State:
    result = event.result
    call = call_of(state, event.call_id)
    state = labelled(state, Label(call.name if call is not None else "", result.trust))
    flags = flags_after(state.taint, state.seq, event)
    state = state if flags is state.taint else replace(state, taint=flags)
    if result.background is not None:
        state = replace(state, background=background.after_result(state.background, result.background))
    if call is None or type(call.stage) is Done:
        return state
    if isinstance(call.stage, Started) and not call.likeness.only_looks:
        attempt = call.stage.attempt
        noted = ledger.done(
            state.ledger, call.name, call.arguments, attempt.effect, attempt.expects, state.seq
        )
        state = replace(state, ledger=noted) if noted is not state.ledger else state
    is_negative = result.evidence.is_negative  # a search that found nothing did not fail
    state = _failing(state, None if is_negative else result.failure)
    state = _reflecting(state, is_failed=result.status in ("error", "timeout") and not is_negative)
    sign = "" if guard.is_waiting(state, result) else guard.signature(call, guard.told(result))
    after = replace(state, progress=guard.after_call(state, call, result, sign))
    if result.has_failed and (failed := guard.failed_now(after)) is not None:
        what = f"{failed.name} {failed.arguments}: {failed.said}"
        after = replace(after, ledger=ledger.noted(after.ledger, "failed", what, state.seq))
    return _closed(after, call, sign, is_ok=not result.has_failed or is_negative)


def _reflecting(state: State, *, is_failed: bool) -> State:
    reflecting = after_call(state.reflecting, is_failed=is_failed)
    return state if reflecting is state.reflecting else replace(state, reflecting=reflecting)


def _failing(state: State, failure: Failure | None) -> State:
    run = state.run
    if run is None or (failing := after_failure(run.failing, failure, state.turn.number)) is run.failing:
        return state
    return replace(state, run=replace(run, failing=failing))


def _asked(state: State, event: e.ApprovalRequested) -> State:
    covers, grant = covered_by(event.decisions), grants.offered(event)
    is_question = bool(event.question)
    stage = Waiting(event.approval_id, event.sha256, event.deadline_ms, is_question, covers, grant)
    if event.lapsed is not None:
        state = grants.without(state, event.lapsed.id)
    if event.is_deferred:
        state = deferred.asked(state, event, grant, covers)
    asked = with_call(state, event.call_id, stage=stage, permission=None, resources=event.resources)
    return replace(asked, approvals=state.approvals + 1)


def _resolved(state: State, event: e.ApprovalResolved) -> State:
    for call in state.turn.calls:
        stage = call.stage
        if isinstance(stage, Waiting) and stage.approval_id == event.approval_id:
            return _decided(_entered(_heard(state, event), call, event), call, stage, event)
    return deferred.decided(state, event) if state.deferred else state


def _made_again(state: State, call_id: str, decisions: Sequence[Decision]) -> State:
    """Give a call the permission that a person gave when it was made before. No other call can use it then."""
    found = deferred.permission_in(state, decisions)
    if found is None:
        return state
    permission = Permission(found.id, found.sha256, is_consumed=True)
    covered = state.run.covered if state.run is not None else ()
    if found.covers and found.covers not in covered:
        state = with_run(state, covered=(*covered, found.covers))
    return with_call(deferred.without(state, found.id), call_id, permission=permission)


def _heard(state: State, event: e.ApprovalResolved) -> State:
    """The model reads an answer, and the note of a denial. So they narrow the run's scopes, as a message does."""
    # A person without the right to configure must not steer a run that has it. So the run keeps only common
    # rights.
    if event.decision != "answer" and not (event.decision == "deny" and event.note):
        return state
    principal = narrowed(Principal(event.by, scopes=event.scopes), state.principal)
    return replace(state, principal=principal, progress=progress.spoken(state.progress))


def _entered(state: State, call: Call, event: e.ApprovalResolved) -> State:
    """Enter the decision of a person in the ledger."""
    if event.decision not in ("approve", "deny", "answer"):
        return state
    note = f": {event.note}" if event.note else ""
    what = f"{_DECIDED[event.decision]} {call.name} {call.arguments}"[:120] + note
    return replace(state, ledger=ledger.noted(state.ledger, "decision", what, state.seq))


def _decided(state: State, call: Call, stage: Waiting, event: e.ApprovalResolved) -> State:
    match event.decision:
        case "approve":
            permission = Permission(stage.approval_id, stage.sha256, stage.covers)
            return with_call(state, call.call_id, stage=Proposed(), permission=permission)
        case "answer":
            return with_call(state, call.call_id, stage=Answered(event.note))
        case "deny":
            return with_call(state, call.call_id, stage=Denied(event.note))
        case "expired":
            return with_call(state, call.call_id, stage=Expired(stage.is_question))
        case "withdrawn":
            return state


def _consumed(state: State, event: e.ApprovalConsumed) -> State:
    for call in state.turn.calls:
        permission = call.permission
        if permission is not None and permission.approval_id == event.approval_id:
            used = with_call(state, call.call_id, permission=replace(permission, is_consumed=True))
            covered = used.run.covered if used.run is not None else ()
            if not permission.covers or permission.covers in covered:
                return used
            return with_run(used, covered=(*covered, permission.covers))
    return state


def _done(state: State, call_id: str, result: str) -> State:
    """Close a call that brought no result."""
    for call in state.turn.calls:
        if call.call_id == call_id and type(call.stage) is not Done:
            return _closed(state, call, guard.signature(call, result), is_ok=False)
    return state


def _closed(state: State, done: Call, sign: str, *, is_ok: bool) -> State:
    """Close a call. If it is the last one of its turn, count the repeats and judge the turn."""
    if state.plan.plan is not None and done.name not in TELLING:  # it did something, beside telling Holdfast
        state = replace(state, plan=plan.after_call(state.plan, is_ok=is_ok))
    calls = tuple([replace(call, stage=Done(sign)) if call is done else call for call in state.turn.calls])
    turn = replace(state.turn, calls=calls)
    if not is_complete(turn):
        return replace(state, turn=turn)
    # Once per turn, when its last call is done, in whichever order the calls end. The same call does not repeat
    # itself in a world that has changed: a test after each edit, with the same failure, is work.
    repeats = () if state.progress.has_new_files else guard.counted(turn.repeats, calls)
    return replace(
        state, turn=replace(turn, repeats=repeats), progress=progress.closed(state.progress, turn.number)
    )
