"""Decisions that wait for a person: ask, resolve, expire, and act on the answer."""

from __future__ import annotations

import hashlib

from holdfast.core.closing import not_run
from holdfast.core.draft import Draft
from holdfast.core.state import Call, State
from holdfast.protocol import events as e
from holdfast.protocol.commands import Resolve
from holdfast.protocol.failures import Failure
from holdfast.protocol.ids import approval_id
from holdfast.protocol.tools import Admission, CallResult

NOBODY_HERE = "This call needs a person's approval, and this run has nobody to ask. Find another way."
EXPIRED = (
    "This call needed a person's approval, and the approval expired: nobody decided in time. The call did not run. "
    "Find another way, or ask for it again."
)
UNANSWERED = "The question expired: nobody answered in time. Decide yourself, and say what you assumed."
NO_ANSWER = "Nobody is there to answer in this run. Decide yourself, and say what you assumed."


def ask(draft: Draft, call: Call, admission: Admission) -> None:
    """Ask a person, unless the run is to go without people."""
    settings = draft.state.settings
    if settings is None:
        return
    if settings.approve_by == "deny":
        text = NO_ANSWER if admission.effect == "ask" else NOBODY_HERE
        failure = Failure("policy_denied", text)
        draft.add(not_run(call, failure, admission.decisions))
        return
    asking = next((d for d in admission.decisions if d.verdict == "ask"), None)
    draft.add(
        e.ApprovalRequested(
            approval_id=approval_id(draft.state.session, draft.state.approvals + 1),
            call_id=call.call_id,
            name=call.name,
            arguments=admission.arguments,
            sha256=hashlib.sha256(admission.arguments.encode()).hexdigest(),
            deadline_ms=draft.now_ms + int(settings.approval_deadline_s * 1000),
            cwd=admission.cwd,
            binary=admission.binary,
            reason=asking.reason if asking is not None else "",
            question=admission.question,
            options=admission.options,
            decisions=admission.decisions,
        )
    )


def open_question(state: State) -> Call | None:
    """The question to a person that is open: words that arrive answer it."""
    return next((c for c in state.calls if c.status == "asked" and c.is_question), None)


def resolve(draft: Draft, body: Resolve, by: str) -> None:
    """The first answer counts; one that comes later means nothing."""
    call = _asked(draft.state, body.approval_id)
    if call is not None:
        decision = "answer" if call.is_question and body.decision == "approve" else body.decision
        if decision == "answer" and not call.is_question:
            return
        draft.add(e.ApprovalResolved(body.approval_id, decision, by, body.note))


def expire(draft: Draft, approval: str) -> None:
    """Nobody decided until the deadline."""
    if _asked(draft.state, approval) is not None:
        draft.add(e.ApprovalResolved(approval, "expired", "deadline"))


def act_on_answers(draft: Draft) -> bool:
    """Close the calls that people denied or answered, or on which nobody decided in time; whether there were any."""
    decided = [call for call in draft.state.calls if call.status in ("denied", "answered", "expired")]
    for call in decided:
        if call.status == "answered":
            draft.add(e.ToolCallFinished(call.call_id, CallResult("ok", call.note or "(no words)")))
        elif call.status == "expired":
            draft.add(not_run(call, Failure("policy_denied", UNANSWERED if call.is_question else EXPIRED)))
        else:
            said = f" They said: {call.note}" if call.note else ""
            draft.add(not_run(call, Failure("policy_denied", f"A person denied this call.{said}")))
    return bool(decided)


def _asked(state: State, approval: str) -> Call | None:
    return next((c for c in state.calls if c.status == "asked" and c.approval_id == approval), None)
