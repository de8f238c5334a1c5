"""Reads causes back from records: the command, outcome, timer or finding that led to them.

Each record names the kind and key of its cause; the rest is in the facts that followed. `replay` decides the causes
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from msgspec import convert
from msgspec.structs import asdict, replace

from holdfast.core import budget, deferred, side_calls
from holdfast.core.causes import Attach, Cause, Commanded, Due, Finding, Found, Outcome
from holdfast.core.closing import seen_in
from holdfast.core.state import State
from holdfast.core.wanted import Admit, Prepare, PrepareRequest, PrepareSide
from holdfast.protocol import events as e
from holdfast.protocol.budgets import REACHED, Reached
from holdfast.protocol.commands import (
    SCOPES,
    Command,
    CommandBody,
    Compact,
    Continue,
    Decided,
    Pause,
    Principal,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Send,
    Stop,
)
from holdfast.protocol.compaction import Reason
from holdfast.protocol.hooks import HookAnswer
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.messages import ModelReply, Part, Text, ToolCall
from holdfast.protocol.outcomes import (
    BudgetNear,
    Built,
    CircuitMet,
    Lost,
    ModelCut,
    ModelFailure,
    Probed,
    Unaffordable,
    Unready,
)
from holdfast.protocol.plan import PlanUpdate
from holdfast.protocol.request import Request
from holdfast.protocol.settings import Settings, settings_by
from holdfast.protocol.tools import Admission, Allowed, Asked, CallResult, Refused, Told
from holdfast.protocol.zone import UTC, zone_in

E = TypeVar("E")
_REACHED = frozenset(REACHED.values())


def cause_of(state: State, first: e.Record, batch: Sequence[e.Event]) -> Cause | None:
    """Return the cause of a batch, or None if its events do not fit the trigger.

    Args:
        state: The state before it.
        first: The first record. It names the cause: any kind but a finding.
        batch: The events, without a leading `SessionOpened`.
    """
    others = [event for event in batch if not (isinstance(event, e.NoteAdded) and event.about == "takeover")]
    is_contested = len(others) < len(batch)
    aside, trigger = _aside(batch), first.cause
    match trigger.kind:
        case "attach":
            attached = _first(batch, e.Attached)
            return (
                Attach(attached.epoch, attached.holder, is_contested, attached.background, aside)
                if attached is not None
                else None
            )
        case "timer":
            return Due(trigger.name, aside)
        case "outcome":
            outcome = _outcome(trigger.name, batch[0])
            return replace(outcome, aside=aside) if outcome is not None else None
        case "command":
            who, body = _command(state, others)
            said = _first(others, e.MessageReceived)
            zone = zone_in(said.head, first.at_ms) if said is not None else UTC
            command = Command(trigger.name, state.session, who, body)
            return Commanded(command, first.epoch, is_contested, zone, aside)
    return None


def _aside(batch: Sequence[e.Event]) -> str:
    notes = (event.text for event in batch if isinstance(event, e.NoteAdded) and event.about == "aside")
    return next(notes, "")


def _outcome(key: str, told: e.Event) -> Outcome | None:
    match told:
        case e.NotificationEnded(notified=notified):
            return Outcome(key, notified)
        case e.Responded():
            parts = tuple(replace(p, call_id="") if isinstance(p, ToolCall) else p for p in told.parts)
            parts += (ToolCall("", "", ""),) * told.calls_refused
            reply = ModelReply(
                parts,
                told.usage,
                told.finish,
                told.model,
                told.request_ref,
                told.estimated,
                verdict=told.verdict,
                workspace=told.workspace,
            )
            return Outcome(key, reply, told.duration_ms, told.first_delta_ms)
        case e.ModelCallFailed(failure=failure, usage=usage, estimated=estimated, duration_ms=duration_ms):
            return Outcome(key, ModelFailure(failure, usage, estimated), duration_ms)
        case e.ModelCallCut(text=text, usage=usage, estimated=estimated, duration_ms=duration_ms):
            return Outcome(key, ModelCut(text, usage, estimated), duration_ms)
        case e.SideCallEnded():
            return _of_side(key, told)
        case e.ToolCallFinished(result=result):
            return Outcome(key, result)
        case e.ToolCallAbandoned(text=text):
            return Outcome(key, CallResult("unknown", text))
        case e.HookEnded(status=status, reason=reason, duration_ms=duration_ms):
            verdict: Literal["", "deny"] = "deny" if status == "denied" else ""
            return Outcome(key, HookAnswer(verdict, reason, is_failure=status == "failed"), duration_ms)
    return None


def _of_side(key: str, told: e.SideCallEnded) -> Outcome:
    usage, estimated = told.usage, told.estimated
    if told.status == "cut":
        return Outcome(key, ModelCut("", usage, estimated), told.duration_ms)
    if told.failure is not None:
        return Outcome(key, ModelFailure(told.failure, usage, estimated), told.duration_ms)
    parts: tuple[Part, ...] = (Text(told.text), *[ToolCall("", "", "")] * told.calls)
    reply = ModelReply(
        parts, usage, told.finish, told.model, told.request_ref, estimated, is_masked=told.is_masked
    )
    return Outcome(key, reply, told.duration_ms, told.first_delta_ms)


def _about_deferred(state: State, batch: Sequence[e.Event]) -> tuple[Principal, CommandBody] | None:
    """Return the decision about a call that was put aside; None if the batch has none. It became a message."""
    resolved = _first(batch, e.ApprovalResolved)
    if resolved is None or deferred.waiting(state, resolved.approval_id) is None:
        return None
    said: Decided = "deny"
    if resolved.decision in ("approve", "answer"):
        said = resolved.decision
    makes_grant = _first(batch, e.GrantMade) is not None
    sender = Principal(resolved.by, scopes=resolved.scopes or state.principal.scopes)
    return sender, Resolve(resolved.approval_id, said, resolved.note, makes_grant)


def _command(state: State, batch: Sequence[e.Event]) -> tuple[Principal, CommandBody]:
    """Return who sent the command, and the command. A visitor first ends a run that was stopping."""
    if not batch:
        return _anybody(""), Resolve("", "deny")  # as good as any other command that means nothing
    found = next(filter(None, [_of_one_event(state, each, batch) for each in batch]), None)
    found = found or _about_deferred(state, batch)
    if found is not None:  # a visitor may have ended a run before it
        return found
    settings, changed = _settings(state, batch), _first(batch, e.SettingsChanged)
    message, resumed = _first(batch, e.MessageReceived), _first(batch, e.RunResumed)
    if (
        message is not None
    ):  # if a question was open, the sender could not answer it, or attached something to the answer
        answer = _first(batch, e.ApprovalResolved)
        text = answer.note if answer is not None and answer.decision == "answer" else message.text
        return Principal(message.sender, scopes=message.scopes), Send(text, settings, message.attachments)
    for event in batch:
        match event:
            case e.RunPaused(by=by):
                return _anybody(by), Pause()
            case e.ApprovalResolved(decision="answer", by=by, note=note) if changed or resumed:
                return _anybody(by), Send(note, settings)
            case e.ApprovalResolved(decision="expired"):  # it was decided too late
                return _anybody(""), Resolve(event.approval_id, "deny")
            case e.ApprovalResolved(decision="approve" | "deny" | "answer" as said, by=by):
                makes_grant = _first(batch, e.GrantMade) is not None
                return _anybody(by), Resolve(event.approval_id, said, event.note, makes_grant)
            case e.GrantRevoked(grant_id=grant_id, by=by):
                return _anybody(by), Revoke(grant_id)
    run = _first(batch, e.RunStarted)
    if run is not None and run.is_continuation:
        return Principal(run.sender, scopes=run.scopes), Continue(settings)
    if settings is not None or resumed is not None:
        return _anybody(resumed.by if resumed is not None else ""), Continue(settings)
    for event in batch:
        match event:
            case e.RunStopping(by=by, reason=reason) | e.RunStopped(by=by, reason=reason):
                return _anybody(by), Stop(reason)
    return _anybody(""), Stop()


def _of_one_event(
    state: State, told: e.Event, batch: Sequence[e.Event]
) -> tuple[Principal, CommandBody] | None:
    """Return the command about files or about the view, and who sent it; None if it was another one."""
    view = _first(batch, e.ContextCompacted)
    match told:
        case e.CompactionAsked(by=by) | e.ContextRestored(by=by):
            return _anybody(by), Compact(
                is_undo=isinstance(told, e.ContextRestored), view=view, at_seq=state.seq
            )
        case e.ContextCompacted():  # it was asked for before
            return _anybody(""), Compact(view=view, at_seq=state.seq)
        case e.FilesRestoring(by=by):
            return _anybody(by), Restore(told.why, told.messages, told.files, told.kept)
        case e.FilesRestored():
            return _anybody(""), Restored(told.why, told.restored, told.kept)
    return None


def _settings(state: State, batch: Sequence[e.Event]) -> Settings | None:
    """Return the settings that came with the command, or None if there were none or they were in force."""
    stored = _first(batch, e.SettingsStored)
    fresh = stored.groups if stored is not None else {}
    told = _first(batch, e.RunStarted) or _first(batch, e.SettingsChanged)
    if told is not None:
        return settings_by(told.settings, {**state.groups, **fresh})
    # A branch may begin right after the groups were stored.
    groups = {str(group.__struct_config__.tag): group for group in fresh.values()}
    if state.settings is not None:
        return replace(state.settings, **groups) if groups else None
    return Settings(**groups) if groups else None  # type: ignore[arg-type]


def _anybody(name: str) -> Principal:
    """Return a principal with all scopes: commands out of scope are refused before the core sees them."""
    return Principal(name, scopes=SCOPES)


def _first(batch: Sequence[e.Event], kind: type[E]) -> E | None:
    return next((event for event in batch if isinstance(event, kind)), None)


# --- prepare steps ------------------------------------------------------------------------------


def finding(step: Prepare, state: State, batch: Sequence[e.Event], *, is_costed_anew: bool) -> Finding | None:
    """Return what a prepare step found, or None if its events do not fit the step.

    The price of a request is computed again from its recorded size, so a smaller budget refuses it. With
    `is_costed_anew` an affordable request also gets today's numbers, otherwise it keeps the recorded ones.
    """
    if not isinstance(step, Admit):
        found: Found | None = _request(step, state, batch[0], is_costed_anew)
    else:
        found = _judged(step, state, batch)
    return None if found is None else Finding(step, found, aside=_aside(batch))


def _request(
    step: PrepareRequest | PrepareSide, state: State, told: e.Event, is_costed_anew: bool
) -> (
    Built
    | Request
    | e.ContextCompacted
    | e.SummaryDiscarded
    | Unaffordable
    | Unready
    | BudgetNear
    | CircuitMet
    | None
):
    def afford(
        size_bytes: int, fresh_bytes: int, kinds: Kinds, left: int = -1
    ) -> budget.Grant | Unaffordable:
        if isinstance(step, PrepareSide):
            return side_calls.afford(state, step.purpose, size_bytes, fresh_bytes, kinds)
        left = left if left >= 0 else budget.UNLIMITED
        sizes = size_bytes, fresh_bytes, kinds
        return budget.afford(state, *sizes, is_last_pass=step.is_last_pass, left_microusd=left)

    match told:
        case e.ModelCallStarted(request=request):
            size_bytes = request.size_bytes - len(request.tail.encode())
            grant = afford(size_bytes, request.fresh_bytes, request.kinds, request.left_microusd)
            if isinstance(grant, Unaffordable):
                return grant
            return replace(request, **asdict(grant)) if is_costed_anew else request
        case e.ModelCallUnaffordable(reason=reason, message=message) if reason in _REACHED:  # by others too
            return Unaffordable(reason, message, told.size_bytes, told.fresh_bytes, told.kinds)
        case e.NoteAdded(about=about, text=text) if about in _REACHED:
            return BudgetNear(convert(about, Reached), text)
        case e.ModelCallUnaffordable(size_bytes=size_bytes, fresh_bytes=fresh_bytes, kinds=kinds):
            grant = afford(size_bytes, fresh_bytes, kinds)
            return grant if isinstance(grant, Unaffordable) else None
        case e.ModelCallUnready(failure=failure, retry_at_ms=retry_at_ms, waits_for=waits_for):
            return Unready(failure, retry_at_ms, waits_for)
        case e.CircuitChanged(name=name, state=met, reason=why):
            return CircuitMet(name, met, why)
        case e.ContextCompacted() | e.SummaryDiscarded():
            return told
        case e.HooksDue(reason=reason):  # the view that would have been is not recorded, and not needed
            return e.ContextCompacted(convert(reason, Reason), (), 0, (), "data", 0, 0, 0, 0)
        case e.PromptBuilt(sections=sections, blob=blob, tools=tools):
            return Built(sections, blob, tools)
    return None


def _judged(step: Admit, state: State, batch: Sequence[e.Event]) -> Admission | Probed | Lost | None:
    match batch[0]:
        case e.ApprovalRequested() as asked:
            return Asked(
                decisions=asked.decisions,
                arguments=asked.arguments,
                source=asked.source,
                seal=asked.seal,
                cwd=asked.cwd,
                binary=asked.binary,
                reach=asked.reach,
                offer=asked.offer,
                no_offer=asked.no_offer,
                lapsed=asked.lapsed.id if asked.lapsed is not None else "",
                question=asked.question,
                options=asked.options,
                resources=asked.resources,
            )
        case e.ToolCallQueued(resources=resources):
            return Allowed(arguments=step.call.arguments, resources=resources)
        case e.ToolCallRefused() as refused:
            return _refused(refused)
        case e.ToolCallFinished():
            return Probed("yes")
        case e.ToolCallAbandoned(is_lost=True):
            return Lost()
        case e.ToolCallAbandoned(refused=refused, text=text):
            return Probed("unknown", seen_in(text)) if refused is None else _refused(refused)
    started = _first(batch, e.ToolCallStarted)
    if started is None:
        told = _first(batch, e.ToolCallTold)
        return _said(state, told, batch) if told is not None else None
    return Allowed(
        started.decisions,
        arguments=started.arguments or step.call.arguments,
        seal="not recorded" if started.is_masked else "",
        effect=started.effect,
        on_interrupt=started.on_interrupt,
        timeout_s=started.timeout_s,
        expects=started.expects,
        resources=started.resources,
        likeness=started.likeness,
        walled=started.walled,
    )


def _said(state: State, told: e.ToolCallTold, batch: Sequence[e.Event]) -> Told | None:
    """Return what a call said that the core took. The record has what came of its arguments."""
    given = _first(batch, e.AnswerGiven)
    if given is not None:
        return Told(given.answer, told.decisions, verdict=given.verdict)
    changed = _first(batch, e.PlanChanged)
    plan = changed.plan if changed is not None else state.plan.plan
    if plan is None:
        return None
    return Told(PlanUpdate(plan.steps, plan.goal, changed.note if changed else ""), told.decisions)


def _refused(told: e.ToolCallRefused) -> Refused | Asked:
    """Return what the gates said: `nobody_for` means that they asked, and that nobody was there to decide."""
    if not told.nobody_for:
        return Refused(told.failure, told.decisions)
    return Asked(told.decisions, question="?" if told.nobody_for == "question" else "", resources=())
