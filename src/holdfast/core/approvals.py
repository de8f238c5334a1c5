"""Decisions that wait for a person: ask, resolve, expire, and act on the answer."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core import deferred, grants
from holdfast.core.closing import will_not_run
from holdfast.core.draft import Draft
from holdfast.core.plan import in_progress
from holdfast.core.state import (
    Answered,
    Call,
    Deferred,
    Denied,
    Done,
    Expired,
    Proposed,
    Started,
    State,
    Waiting,
    starts_of,
)
from holdfast.protocol import events as e
from holdfast.protocol.commands import Principal, Resolve
from holdfast.protocol.failures import Failure
from holdfast.protocol.grants import Grant, grant_in
from holdfast.protocol.ids import approval_id, grant_id
from holdfast.protocol.tools import APPROVAL, Allowed, Asked, CallResult, bound, own_result

NOBODY_HERE = "This call needs a person's approval, and this run has nobody to ask. Find another way."
EXPIRED = (
    "This call needed a person's approval, and the approval expired: nobody decided in time. The call did not run. "
    "Find another way, or ask for it again."
)
UNANSWERED = "The question expired: nobody answered in time. Decide yourself, and say what you assumed."
NO_ANSWER = "Nobody is there to answer in this run. Decide yourself, and say what you assumed."


def ask(draft: Draft, call: Call, asked: Asked) -> None:
    """Ask a person. If the run works without people, refuse the call instead."""
    settings = draft.state.settings
    if settings is None:
        return
    # Nobody is there in an overnight run. The model learns that at once, and can find another way.
    if settings.posture.approve_by == "deny":
        if asked.question:
            draft.add(will_not_run(call, Failure("policy_denied", NO_ANSWER), asked.decisions, "question"))
        else:
            draft.add(will_not_run(call, Failure("policy_denied", NOBODY_HERE), asked.decisions, "approval"))
        return
    shown = bound(call.name, settings.tools.workspace, asked)
    # An interrupted call may have taken effect. To put it aside would tell the model that it has not run.
    is_deferred = settings.posture.approve_by == "defer" and not starts_of(call)
    if is_deferred and (before := deferred.same_call(draft.state, shown.sha256)) is not None:
        text = deferred.told(deferred.ASKED_BEFORE, before.id)
        draft.add(will_not_run(call, Failure("policy_denied", text), asked.decisions))
        return
    if is_deferred and deferred.is_full(draft.state):
        draft.add(will_not_run(call, Failure("policy_denied", deferred.TOO_MANY), asked.decisions))
        return
    planned = draft.state.plan
    step = in_progress(planned.plan) if is_deferred and planned.plan is not None and planned.is_made else None
    name = approval_id(draft.state.session, draft.state.approvals + 1)
    draft.add(
        e.ApprovalRequested(
            approval_id=name,
            call_id=call.call_id,
            name=call.name,
            arguments=shown.arguments,
            sha256=shown.sha256,
            deadline_ms=draft.now_ms + int(settings.posture.approval_deadline_s * 1000),
            source=shown.source,
            workspace=shown.workspace,
            cwd=shown.cwd,
            binary=shown.binary,
            reason=shown.reason,
            question=asked.question,
            options=asked.options,
            decisions=asked.decisions,
            resources=asked.resources,
            seal=asked.seal,
            reach=asked.reach,
            offer=asked.offer,
            no_offer=asked.no_offer,
            lapsed=grants.found(draft.state, asked.lapsed) if asked.lapsed else None,
            is_deferred=is_deferred,
            step=step.id if step is not None else "",
        )
    )
    if is_deferred:
        result = own_result("deferred", deferred.told(deferred.ASKED, name))
        draft.add(e.ToolCallFinished(call.call_id, result))


def open_question(state: State) -> Waiting | None:
    """The open question to a person. The next words of somebody who may answer are its answer."""
    return next((waiting for waiting in _waiting(state) if waiting.is_question), None)


def resolve(draft: Draft, body: Resolve, principal: Principal) -> None:
    """Record a decision. The first one counts; a later one means nothing."""
    waiting = _found(draft.state, body.approval_id)
    if waiting is None:
        return
    # The deadline counts even if its timer has not fired yet: a command may reach the core first.
    if draft.now_ms >= waiting.deadline_ms:
        expire(draft, body.approval_id)
        return
    offers_none = waiting.is_question or waiting.grant is None
    if body.makes_grant and (body.decision != "approve" or offers_none):
        return  # asked for more than is offered: nothing is decided
    decision = "answer" if waiting.is_question and body.decision == "approve" else body.decision
    if decision == "answer" and not (waiting.is_question and "answer" in principal.scopes):
        return
    # What a person writes steers the model, so its rights are recorded with it.
    scopes = principal.scopes if decision == "answer" or body.note else ()
    draft.add(e.ApprovalResolved(body.approval_id, decision, principal.label, body.note, scopes))
    if body.makes_grant and waiting.grant is not None:
        _grant(draft, waiting.grant, body.approval_id, principal.label)
    if isinstance(waiting, Deferred):
        text = deferred.words_of(waiting, decision, body.note)
        draft.add(e.MessageReceived(text, principal.label, scopes or draft.state.principal.scopes))


def _found(state: State, approval: str) -> Waiting | Deferred | None:
    """Return the open approval, of a call of this turn or of one that was put aside."""
    # The id of an approval is unique in the session, so it does not matter where it is looked for first.
    of_turn = next((each for each in _waiting(state) if each.approval_id == approval), None)
    return of_turn or deferred.waiting(state, approval)


def _grant(draft: Draft, offered: Grant, approval: str, by: str) -> None:
    state = draft.state
    if state.settings is None:
        return
    until_ms = draft.now_ms + int(state.settings.policy.grants_last_s * 1000)
    name = grant_id(state.session, state.granted + 1)
    draft.add(e.GrantMade(approval, replace(offered, id=name, until_ms=until_ms), by))


def revoke(draft: Draft, name: str, principal: Principal) -> None:
    """Record that a grant is taken back. If it is gone already, this means nothing."""
    if grants.found(draft.state, name) is not None:
        draft.add(e.GrantRevoked(name, principal.label))


def ask_instead(draft: Draft, call: Call, allowed: Allowed) -> None:
    """Ask about a call that an approval or a grant covered when the gates judged it, and no longer does."""
    # The gates judged by the time before this commit, and by the grants of that moment. What they found is asked
    # about as it is: no gate has to judge again.
    decisions = tuple([each for each in allowed.decisions if each.by != APPROVAL])
    ask(
        draft,
        call,
        Asked(
            decisions=decisions,
            arguments=allowed.arguments,
            source=allowed.source,
            seal=allowed.seal,
            cwd=allowed.cwd,
            binary=allowed.binary,
            reach=allowed.reach,
            lapsed=grant_in(allowed.decisions),
            resources=allowed.resources,
            likeness=allowed.likeness,
        ),
    )


def expire(draft: Draft, approval: str) -> None:
    """Record that nobody decided until the deadline."""
    found = _found(draft.state, approval)
    if found is None:
        return
    draft.add(e.ApprovalResolved(approval, "expired", "deadline"))
    if isinstance(found, Deferred):
        draft.add(e.NoteAdded("approval", deferred.told(deferred.EXPIRED, found.id, found.name)))


def close_decided(draft: Draft) -> None:
    """Close the calls that people denied or answered, or on which nobody decided in time."""
    for call in draft.state.turn.calls:
        match call.stage:
            case Done() | Started() | Proposed() | Waiting():
                pass
            case Answered(text=text):
                told = CallResult("ok", text or "(no words)", trust="user", origin="user")
                draft.add(e.ToolCallFinished(call.call_id, told))
            case Expired(was_question=was_question):
                text = UNANSWERED if was_question else EXPIRED
                draft.add(will_not_run(call, Failure("policy_denied", text)))
            case Denied(note=note):
                said = f" They said: {note}" if note else ""
                draft.add(will_not_run(call, Failure("policy_denied", f"A person denied this call.{said}")))


def _waiting(state: State) -> list[Waiting]:
    return [call.stage for call in state.turn.calls if isinstance(call.stage, Waiting)]
