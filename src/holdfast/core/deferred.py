"""Calls that wait for a person while the model works on something else.

The call itself is closed at once: its result says that a person was asked. The decision comes as a message. An
approval then covers the same call, if the model makes it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core import plan
from holdfast.core.state import Deferred, State
from holdfast.protocol import events as e
from holdfast.protocol.grants import Grant
from holdfast.protocol.tools import APPROVAL, Decision

ASKED = (
    "Asked; work on something else. A person decides about this call (approval {number}), and it has not run. The "
    "answer comes as a message. If nothing else is left to do, say so."
)
ASKED_BEFORE = (
    "A person was asked about exactly this call before (approval {number}), and has not decided yet. It has not run. "
    "Work on something else; the answer comes as a message."
)
APPROVED = (
    "Approved: your call of {name} (approval {number}). Make it again with the same arguments, and it runs."
)
DENIED = "Denied: your call of {name} (approval {number}) does not run."
ANSWERED = "The answer to your question (approval {number}):"
EXPIRED = (
    "Nobody decided in time about your call of {name} (approval {number}), so it does not run. Do without it, or ask "
    "again."
)
MOST_WAITING = 32
TOO_MANY = (
    f"This call needs a person's approval, and {MOST_WAITING} calls wait for people already. It has not run, and "
    "nobody was asked about it. Work on something else until the answers come."
)
_DEFERRED = "deferred:"


def waiting(state: State, approval: str) -> Deferred | None:
    """Return the call that waits for this decision."""
    return next((each for each in state.deferred if each.id == approval and not each.is_approved), None)


def same_call(state: State, sha256: str) -> Deferred | None:
    """Return the call with this digest that waits for a person."""
    return next((each for each in state.deferred if each.sha256 == sha256 and not each.is_approved), None)


def is_full(state: State) -> bool:
    """Return whether so many calls wait for people that nobody is asked about another one."""
    # Otherwise a model that tries call after call would fill the list of the person who has to decide about all of
    # them. An approved call waits for the model, so it does not count.
    waiting = [each for each in state.deferred if not each.is_approved]
    return len(waiting) >= MOST_WAITING


def approved(state: State, sha256: str) -> Deferred | None:
    """Return the approved call with this digest."""
    return next((each for each in state.deferred if each.sha256 == sha256 and each.is_approved), None)


def told(text: str, approval: str, name: str = "") -> str:
    """Return a text about a call. The model knows an approval by its number in the session."""
    return text.format(name=name, number=approval.rpartition("-")[2])


def words_of(found: Deferred, decision: str, note: str) -> str:
    """Return the decision as a message to the model. It does not quote the call, whose words may be anybody's."""
    if decision == "answer":
        return f"{told(ANSWERED, found.id)} {note or '(no words)'}"
    said = told(APPROVED if decision == "approve" else DENIED, found.id, found.name)
    return f"{said} They said: {note}" if note else said


def permission_of(found: Deferred) -> Decision:
    """Return the decision about a call that a person approved when it was made before."""
    return Decision(APPROVAL, "allow", f"{_DEFERRED}{found.id}")


def named_in(decisions: Sequence[Decision]) -> str:
    """Return the id of the approval with which the gates let a call pass that was made before; empty for other
    calls."""
    for each in decisions:
        if each.by == APPROVAL and each.rule.startswith(_DEFERRED):
            return each.rule.removeprefix(_DEFERRED)
    return ""


def permission_in(state: State, decisions: Sequence[Decision]) -> Deferred | None:
    """Return the approved call that is made again; None if it is another one, or nobody has approved it."""
    if not state.deferred:
        return None
    name = named_in(decisions)
    return next((each for each in state.deferred if each.id == name and each.is_approved), None)


# --- the fold -------------------------------------------------------------------------------------


def asked(state: State, event: e.ApprovalRequested, grant: Grant | None, covers: str) -> State:
    """Put a call aside. The step of the plan that is at work waits with it."""
    aside = Deferred(
        event.approval_id, event.name, event.sha256, event.deadline_ms, bool(event.question), covers, grant
    )
    planned = plan.after_asking_people(state.plan, event.approval_id, event.step)
    return replace(state, deferred=(*state.deferred, aside), plan=planned)


def decided(state: State, event: e.ApprovalResolved) -> State:
    """Keep a call that is approved until it is made again; drop every other one."""
    # An approval is kept as the hash of what was shown. The model has to make the call again, so that its arguments
    # come from a response, and its result belongs to one.
    kept = []
    for each in state.deferred:
        if each.id != event.approval_id:
            kept.append(each)
        elif event.decision == "approve":
            kept.append(replace(each, is_approved=True))
    return replace(state, deferred=tuple(kept), plan=plan.after_deciding(state.plan, event.approval_id))


def without(state: State, approval: str) -> State:
    """Drop a call: its approval is used, or a grant covers it from now on."""
    return replace(state, deferred=tuple([each for each in state.deferred if each.id != approval]))
