"""Decisions about tool calls: admit and start one, settle what an attempt came to, give one up."""

from __future__ import annotations

import msgspec

from holdfast.core import approvals
from holdfast.core.causes import Outcome, Prepared
from holdfast.core.closing import abandoned, not_run
from holdfast.core.draft import Draft
from holdfast.core.state import Call, action_key, admissible, open_run
from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.tools import Admission, CallResult

NO_TOOLS_LEFT = "This was the last response of the run: its calls do not run any more."
DONE_BEFORE = "Done. (The process was interrupted right after this; the file on disk shows that it happened.)"


def admit(draft: Draft, cause: Prepared) -> None:
    """What the gates, or a look at an interrupted call, mean for the call with this key."""
    run = open_run(draft.state)
    call = next((call for call in admissible(draft.state) if action_key(call) == cause.key), None)
    if call is None or run is None or run.is_paused or run.stopping is not None:
        return
    match cause.result:
        case Probed(happened="yes"):
            draft.add(e.ToolCallFinished(call.call_id, CallResult("ok", DONE_BEFORE)))
        case Probed():
            draft.add(abandoned(call, "it was interrupted, and the file has changed since in another way"))
        case Admission(verdict="refuse", failure=failure) as admission if failure is not None:
            draft.add(not_run(call, failure, admission.decisions))
        case Admission(verdict="ask") as admission:
            approvals.ask(draft, call, admission)
        case Admission() as admission:
            _start(draft, call, admission)


def _start(draft: Draft, call: Call, admission: Admission) -> None:
    """Permission used, gates passed, intent recorded: in one commit."""
    settings, run = draft.state.settings, open_run(draft.state)
    if settings is None or run is None:
        return
    if call.approval_id and call.attempt == 0:
        draft.add(e.ApprovalConsumed(call.approval_id))
    draft.add(e.ToolCallAdmitted(call.call_id, call.name, admission.decisions))
    left_s = settings.limits.wall_s - run.driven_ms / 1000
    draft.add(
        e.ToolCallStarted(
            call_id=call.call_id,
            name=call.name,
            epoch=draft.epoch,
            attempt=call.attempt + 1,
            effect=admission.effect,
            on_interrupt=admission.on_interrupt,
            timeout_s=round(max(min(admission.timeout_s, left_s), 0.001), 3),
            arguments="" if _means_the_same(call.arguments, admission.arguments) else admission.arguments,
            change=admission.change,
        )
    )


def _means_the_same(written: str, canonical: str) -> bool:
    """Whether the gates changed nothing but spaces and order: then the arguments are not stored again."""
    return bool(msgspec.json.decode(written or "{}") == msgspec.json.decode(canonical or "{}"))


def settle(draft: Draft, cause: Outcome) -> None:
    """What an attempt came to; nothing when it is not open."""
    call = next((c for c in draft.state.calls if c.status == "started" and action_key(c) == cause.key), None)
    if call is None or not isinstance(cause.result, CallResult):
        return
    if cause.result.status == "unknown":
        draft.add(e.ToolCallAbandoned(call.call_id, cause.result.text))
    else:
        draft.add(e.ToolCallFinished(call.call_id, cause.result))


def refuse_all(draft: Draft) -> None:
    """In the last pass no call runs."""
    for call in draft.state.calls:
        if call.status == "proposed":
            draft.add(not_run(call, Failure("budget_exhausted", NO_TOOLS_LEFT)))
