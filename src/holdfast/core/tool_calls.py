"""Decisions about tool calls: what the finding of a prepare step means, and the outcome of an attempt."""

from __future__ import annotations

import math

import msgspec

from holdfast.core import approvals, deferred, grants, told
from holdfast.core.closing import lost, unseen, will_not_run
from holdfast.core.draft import Draft
from holdfast.core.guard import likeness_of, refusal
from holdfast.core.state import (
    Call,
    Proposed,
    action_key,
    open_run,
    started_calls,
    starts_of,
    touched_by_others,
)
from holdfast.protocol import events as e
from holdfast.protocol.counts import counted
from holdfast.protocol.failures import Failure
from holdfast.protocol.grants import grant_in
from holdfast.protocol.outcomes import Lost, Probed
from holdfast.protocol.tools import (
    APPROVAL,
    STRIPPED,
    Admission,
    Allowed,
    Asked,
    CallResult,
    Refused,
    Told,
    own_result,
)

_encode = msgspec.json.Encoder(order="sorted").encode

NO_TOOLS_LEFT = "This was the last response of the run: its calls do not run."
NO_CALLS_LEFT = "The run may start {calls}, and it has: this call does not run."
DONE_BEFORE = "Done. (The process was interrupted right after this; a look showed that it happened.)"


LEFT_OUT = "{tool} does not take these arguments, so its call ran without them: {names}."


def take_finding(draft: Draft, call: Call, found: Admission | Probed | Lost) -> None:
    """Act on what the gates say about a call, or what a look at an interrupted call showed."""
    match found:  # what every turn brings first: to ask for a class takes its time
        # The gates have just found what the call touches. If an earlier call that is not done touches the same,
        # or any that runs, this one waits for it: `write a.txt` and `read a.txt` keep their order, while
        # `read b.txt` may pass them.
        case Allowed(resources=resources) | Asked(resources=resources) if touched_by_others(
            draft.state, call
        ).is_in_conflict(resources):
            draft.add(e.ToolCallQueued(call.call_id, call.name, resources))
        case Allowed() | Asked() if why := _over_limit(draft, call):
            draft.add(will_not_run(call, Failure("budget_exhausted", why)))
        case Allowed() | Asked() if why := _failed_before(draft, call, found):
            draft.add(will_not_run(call, Failure("failed_before", why)))
        case Allowed() as allowed if _has_lapsed(draft, allowed):
            approvals.ask_instead(draft, call, allowed)
        case Allowed() as allowed:
            _start(draft, call, allowed)
        case Asked() as asked:
            approvals.ask(draft, call, asked)
        case Told() as said:
            told.take(draft, call, said)
        case Refused(failure=failure, decisions=decisions):
            draft.add(will_not_run(call, failure, decisions))
        case Probed(happened="yes"):
            draft.add(e.ToolCallFinished(call.call_id, own_result("ok", DONE_BEFORE)))
        case Probed(told=seen):
            draft.add(unseen(call, seen))
        case Lost():
            draft.add(lost(call))


def _has_lapsed(draft: Draft, allowed: Allowed) -> bool:
    """Return whether the gates let the call pass with an approval or a grant that is gone."""
    # An example: the gates judged a call for 3 s, and meanwhile the run was stopped, which dropped the approval.
    if deferred.named_in(allowed.decisions):
        return deferred.permission_in(draft.state, allowed.decisions) is None
    if not (name := grant_in(allowed.decisions)):
        return False
    grant = grants.found(draft.state, name)
    return grant is None or not grant.is_live(draft.now_ms)


def _over_limit(draft: Draft, call: Call) -> str:
    """Return why the call is refused: the run has started as many as it may. An interrupted one has started."""
    run, settings = open_run(draft.state), draft.state.settings
    if run is None or settings is None or starts_of(call):
        return ""
    most = settings.limits.tool_calls
    return NO_CALLS_LEFT.format(calls=counted(most, "tool call")) if run.totals.tool_calls >= most else ""


def _failed_before(draft: Draft, call: Call, found: Allowed | Asked) -> str:
    """Return why the call is refused: it failed again and again. What was allowed or interrupted runs."""
    if not draft.state.progress.failures or call.permission is not None or call.interrupted is not None:
        return ""
    return refusal(draft.state, found.likeness.digest or likeness_of(call.name, found.arguments))


def _start(draft: Draft, call: Call, allowed: Allowed) -> None:
    """Record that the permission is used, and that the call passed the gates and starts: all in one commit."""
    settings = draft.state.settings
    permission = call.permission
    is_open = permission is not None and not permission.is_consumed
    if permission is not None and is_open and APPROVAL in [each.by for each in allowed.decisions]:
        draft.add(e.ApprovalConsumed(permission.approval_id))
    if (made_before := deferred.permission_in(draft.state, allowed.decisions)) is not None:
        draft.add(e.ApprovalConsumed(made_before.id))
    run = open_run(draft.state)
    if settings is None or run is None:
        return
    # A command with a timeout of 600 s that starts 60 s before the end of the run gets 60 s. So its end is an
    # ordinary timeout, with its output so far, and not a stop of the run. While calls are judged, the driver is at
    # work, so the time since the last record counts.
    driven_ms = run.driven_ms + draft.awake_ms - draft.state.awake_ms
    left_s = settings.limits.wall_s - driven_ms / 1000
    timeout_s = min(allowed.timeout_s, left_s) if math.isfinite(allowed.timeout_s) else left_s
    draft.add(
        e.ToolCallStarted(
            call_id=call.call_id,
            name=call.name,
            epoch=draft.epoch,
            attempt=starts_of(call) + 1,
            effect=allowed.effect,
            on_interrupt=allowed.on_interrupt,
            timeout_s=round(max(timeout_s, 0.001), 3),
            is_masked=bool(allowed.seal),
            arguments="" if _means_the_same(call.arguments, allowed.arguments) else allowed.arguments,
            expects=allowed.expects,
            likeness=allowed.likeness,
            walled=allowed.walled,
            decisions=allowed.decisions,
            resources=allowed.resources,
        )
    )
    for decision in allowed.decisions:
        if decision.rule == STRIPPED:
            draft.add(e.NoteAdded("arguments", LEFT_OUT.format(tool=call.name, names=decision.reason)))


def _means_the_same(written: str, canonical: str) -> bool:
    """Whether the gates changed nothing but spaces and order: then the arguments are not stored again.

    Bytes are compared, since `true` and `1` are the same in Python.
    """
    if written == canonical:
        return True
    try:
        return _encode(msgspec.json.decode(written or "{}")) == (canonical or "{}").encode()
    except (msgspec.DecodeError, UnicodeError):
        return False


def take_outcome(draft: Draft, key: str, result: CallResult) -> None:
    """Record the outcome of an open attempt. If it is not open, the outcome comes too late and means nothing."""
    for call, _ in started_calls(draft.state):
        if action_key(call) == key:
            if result.status == "unknown":
                draft.add(e.ToolCallAbandoned(call.call_id, result.text))
            else:
                draft.add(e.ToolCallFinished(call.call_id, result))


def refuse_all(draft: Draft) -> None:
    """Refuse all calls, because no call of the last pass runs."""
    for call in draft.state.turn.calls:
        if isinstance(call.stage, Proposed):
            draft.add(will_not_run(call, Failure("budget_exhausted", NO_TOOLS_LEFT)))
