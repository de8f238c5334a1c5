"""What once came to the core, read back from what it recorded: the cause of a batch, the findings of its prepare
steps. Whether today's code decides the same about them is `replay`'s question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import asdict, replace

from holdfast.core import approvals, budget
from holdfast.core.causes import Attach, Cause, Commanded, Due, Outcome, Prepared
from holdfast.core.closing import lost
from holdfast.core.draft import LAST_PASS
from holdfast.core.state import State
from holdfast.core.tool_calls import DONE_BEFORE
from holdfast.core.wanted import Admit, PrepareRequest
from holdfast.protocol import events as e
from holdfast.protocol.commands import (
    SCOPES,
    Command,
    CommandBody,
    Continue,
    Pause,
    Principal,
    Resolve,
    Send,
    Stop,
)
from holdfast.protocol.messages import ModelReply, ToolCall
from holdfast.protocol.outcomes import Lost, ModelCut, ModelFailure, Probed, Unaffordable
from holdfast.protocol.tools import Admission, Allowed, Asked, CallResult, Refused

E = TypeVar("E")


def cause_of(state: State, trigger: e.Trigger, epoch: int, batch: Sequence[e.Event]) -> Cause | None:
    """The cause of a recorded batch; None when the batch does not tell.

    Args:
        trigger: What the records name as their cause: no finding.
        batch: The events, without a `SessionOpened` before them.
    """
    name = trigger.name
    match batch[0]:
        case e.Attached(epoch=attached, holder=holder, reads=reads):
            return Attach(attached, holder, reads)
        case _ if trigger.kind == "timer":
            return Due(name)
        case e.Responded() as told:
            parts = tuple(replace(p, call_id="") if isinstance(p, ToolCall) else p for p in told.parts)
            reply = ModelReply(
                parts, told.usage, told.finish, told.model, told.request_ref, told.is_estimated
            )
            return Outcome(name, reply, told.duration_ms, told.first_delta_ms)
        case e.ModelCallFailed(failure=failure, usage=usage, duration_ms=duration_ms):
            return Outcome(name, ModelFailure(failure, usage), duration_ms)
        case e.ModelCallCut(text=text, usage=usage, duration_ms=duration_ms):
            return Outcome(name, ModelCut(text, usage), duration_ms)
        case e.ToolCallFinished(result=result):
            return Outcome(name, result)
        case e.ToolCallAbandoned(text=text):
            return Outcome(name, CallResult("unknown", text))
    return Commanded(Command(name, state.session, _who(batch), _command(batch)), epoch)


def _command(batch: Sequence[e.Event]) -> CommandBody:
    """What somebody asked for, from the facts that it brought."""
    started = _first(batch, e.RunStarted)
    changed = _first(batch, e.SettingsChanged)
    settings = started.settings if started else changed.settings if changed else None
    message = _first(batch, e.MessageReceived)
    if message is not None:
        return Send(message.text, settings)
    match batch[0]:
        case e.RunPaused():
            return Pause()
        case e.RunStopping(reason=reason) | e.RunStopped(reason=reason):
            return Stop(reason)
        case e.ApprovalResolved(approval_id=name, decision="approve" | "deny" | "answer" as said, note=note):
            return Resolve(name, said, note)
    answer = _first(batch, e.ApprovalResolved)
    if answer is not None and answer.decision == "answer":  # words that also changed something
        return Send(answer.note, settings)
    return Continue(settings)


def _who(batch: Sequence[e.Event]) -> Principal:
    """Who asked. Words that did not answer an open question were those of somebody who may not."""
    is_message = _first(batch, e.MessageReceived) is not None
    return Principal(_name(batch), scopes=("speak",) if is_message else SCOPES)


def _name(batch: Sequence[e.Event]) -> str:
    for event in batch:
        match event:
            case e.MessageReceived(sender=name) | e.RunPaused(by=name) | e.RunResumed(by=name):
                return name
            case e.ApprovalResolved(by=name):
                return name
            case e.RunStopping(by=name) | e.RunStopped(by=name):
                return name
    return ""


def _first(batch: Sequence[e.Event], kind: type[E]) -> E | None:
    return next((event for event in batch if isinstance(event, kind)), None)


# --- prepare steps ------------------------------------------------------------------------------


def finding(
    step: PrepareRequest | Admit, state: State, rest: Sequence[e.Event], *, is_costed_anew: bool
) -> Prepared | None:
    """What a prepare step found, from the events that its finding brought; None when they do not tell.

    A request's price is worked out again from its recorded size: a budget that cannot afford it answers
    so. With `is_costed_anew` an affordable one gets today's numbers too, else it keeps the recorded ones.
    """
    result: e.Request | Unaffordable | Admission | Probed | Lost | None
    if isinstance(step, PrepareRequest):
        result = _request(step, state, rest[0], is_costed_anew)
    else:
        result = _admission(step, rest)
    return None if result is None else Prepared(step.key, result)


def _request(
    step: PrepareRequest, state: State, told: e.Event, is_costed_anew: bool
) -> e.Request | Unaffordable | None:
    match told:
        case e.ModelCallStarted(request=request):
            size_bytes = request.size_bytes - len(request.tail.encode())
            grant = budget.afford(state, size_bytes, is_final=step.is_final)
            if isinstance(grant, Unaffordable):
                return grant
            return replace(request, **asdict(grant)) if is_costed_anew else request
        case e.RunLanding(reason=("cost" | "tokens") as reason, message=message):
            if is_costed_anew:
                return Unaffordable(reason, message.removesuffix(LAST_PASS.format(message="")))
            # How large the request would have been is not recorded: at least as large as the last one.
            answer = budget.afford(state, state.models.measured_bytes, is_final=step.is_final)
            return answer if isinstance(answer, Unaffordable) else None
        case e.RunStopping(message=message):
            return Unaffordable("context", message)
    return None


def _admission(step: Admit, rest: Sequence[e.Event]) -> Admission | Probed | Lost | None:
    match rest[0]:
        case e.ApprovalRequested() as asked:
            return Asked(
                decisions=asked.decisions,
                arguments=asked.arguments,
                source=asked.source,
                seal=asked.seal,
                cwd=asked.cwd,
                binary=asked.binary,
                question=asked.question,
                options=asked.options,
            )
        case e.ToolCallRefused(failure=failure, decisions=decisions):
            if failure.message in (approvals.NO_ANSWER, approvals.NOBODY_HERE):
                question = "?" if failure.message == approvals.NO_ANSWER else ""
                return Asked(decisions, step.call.arguments, question=question)
            return Refused(failure, decisions)
        case e.ToolCallFinished(result=CallResult(status="ok", text=text)) if text == DONE_BEFORE:
            return Probed("yes")
        case e.ToolCallAbandoned() as abandoned:
            return Lost() if abandoned == lost(step.call) else Probed("unknown")
    admitted, started = _first(rest, e.ToolCallAdmitted), _first(rest, e.ToolCallStarted)
    if admitted is None or started is None or started.call_id != step.call.call_id:
        return None
    return Allowed(
        admitted.decisions,
        arguments=started.arguments or step.call.arguments,
        effect=started.effect,
        on_interrupt=started.on_interrupt,
        timeout_s=started.timeout_s,
        expects=started.expects,
    )
