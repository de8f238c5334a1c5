"""Sentences about what the runtime and people did in a session: limits, failures, approvals, pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.protocol.circuits import CircuitState
from holdfast.protocol.events import (
    AnswerGiven,
    ApprovalRequested,
    ApprovalResolved,
    CircuitChanged,
    CompactionAsked,
    ContextCompacted,
    ContextRestored,
    FilesRestored,
    FilesRestoring,
    GrantMade,
    GrantRevoked,
    HookEnded,
    ModelCallAbandoned,
    ModelCallCut,
    ModelCallFailed,
    ModelCallUnready,
    NoteAdded,
    NotificationEnded,
    Record,
    Reflected,
    Resolution,
    RunLanding,
    RunPaused,
    RunResumed,
    SessionForked,
    SessionImported,
    SessionRenamed,
    SettingsChanged,
    SideCallEnded,
    SummaryDiscarded,
    ToolCallStarted,
)
from holdfast.protocol.failures import in_full
from holdfast.protocol.hooks import CHANGED, HOOK
from holdfast.protocol.reflection import Reflection
from holdfast.protocol.request import Stretch, names_of
from holdfast.protocol.settings import Group, Settings, settings_by
from holdfast.protocol.tools import Offer
from holdfast.views.lines import local, moment, took

_NOTES = {
    "repeat": "the model repeats a call that brings the same result, and was told so",
    "stall": "the last turns brought nothing new, and the model was told so",
    "empty": "the response was empty, and the model is asked again",
    "continue": "continues what the last run left",
    "length": "the answer reached the output limit, and the model goes on with it",
    "output": "the answer does not match the schema, and the model is asked to repair it",
    "plan": "a step of the plan failed, and the model is asked to revise the plan",
    "answer": "the model answered in plain words, and is asked for the call of `answer`",
    "reflection": "asked how the task is going, the model did not answer as asked",
    "reflected": "",
    "calls": "the response had too many calls; those beyond the limit were refused",
}
"""What people read in place of a note that speaks to the model."""
_ASIDE = {
    "summary": "there is no summary",
    "reflection": "the model was not asked how the task is going",
}
"""What follows when a call beside the work fails, by its purpose."""
_CUT: Mapping[type[object], str] = {
    ModelCallAbandoned: "a model call was open when its process ended; its cost stays reserved",
    ModelCallCut: "the response was cut off",
}
_CIRCUITS: Mapping[CircuitState, str] = {
    "open": "{service} failed again and again, so nobody calls it for a while",
    "half_open": "this call finds out whether {service} is back",
    "closed": "{service} is back",
}
"""What a session meets, by the state of a circuit."""
_DECIDED: Mapping[Resolution, str] = {
    "approve": "approved by {by}",
    "deny": "denied by {by}",
    "answer": "answered by {by}",
    "expired": "the approval expired: nobody decided in time",
    "withdrawn": "the approval was withdrawn: the run ended",
}


def notice(record: Record, groups: Mapping[str, Group]) -> str:
    """Return the sentence about a record; empty for words, calls and everything that needs none.

    Args:
        groups: The groups of settings of the journal, by name.
    """
    match record.event:
        case Reflected(answer=answer):
            return _reflected(answer)
        case NoteAdded(about=about, text=text):
            return _NOTES.get(about, text)
        case RunLanding(message=message):
            return message
        case SettingsChanged(settings=ref):
            return _changed(settings_by(ref, groups))
        case ModelCallFailed() | ModelCallUnready() | SideCallEnded() | CircuitChanged() as told:
            return _about_services(told, record.at_ms)
        case ApprovalRequested() | ApprovalResolved() | GrantMade() | GrantRevoked() as told:
            return _about_permission(told)
        case ModelCallAbandoned() | ModelCallCut() as told:
            return _CUT[type(told)]
        case NotificationEnded(notified=notified) if notified.problem:
            return f"you were not notified for certain: {notified.problem}"
        case AnswerGiven(answer=answer, is_doubted=True):
            return f"the model's confidence is only {answer.confidence:g}, so it has to look again"
        case RunPaused() | RunResumed() as told:
            return _about_pause(told)
        case ContextCompacted() | SummaryDiscarded() | CompactionAsked() | ContextRestored() as told:
            return _about_view(told)
        case FilesRestoring() | FilesRestored() as told:
            return _about_files(told)
        case SessionForked() | SessionRenamed() | SessionImported() as told:
            return _about_origin(told)
        case ToolCallStarted() | HookEnded() as told:
            return _about_hooks(told)
    return ""


def _about_permission(told: ApprovalRequested | ApprovalResolved | GrantMade | GrantRevoked) -> str:
    match told:
        case ApprovalRequested():
            return _asked(told)
        case ApprovalResolved(decision=decision, by=by, note=note):
            return decided(decision, by) + (f": {note}" if note else "")
        case GrantMade(grant=grant, by=by):
            return f"{by} granted {offer_told(grant.offer)} until {local(grant.until_ms)} ({grant.id})"
        case GrantRevoked(grant_id=grant_id, by=by):
            return f"{by} revoked the grant {grant_id}"


def _about_hooks(told: ToolCallStarted | HookEnded) -> str:
    """What hooks did to a call, and that a hook failed. A denial is the end of the run, which says it."""
    if isinstance(told, HookEnded):
        return f"hook:{told.hook} ({told.event}): {told.reason}" if told.status == "failed" else ""
    changed = [each.rule for each in told.decisions if each.by == HOOK and each.reason == CHANGED]
    if not changed:
        return ""
    return f"{' and '.join(dict.fromkeys(changed))} changed the arguments of {told.name} ({told.call_id})"


def _about_pause(told: RunPaused | RunResumed) -> str:
    if isinstance(told, RunResumed):
        return f"resumed by {told.by}" if told.by != "timer" else ""
    return f"the agent asks: {told.question}" if told.question else f"paused by {told.by}"


def _reflected(answer: Reflection) -> str:
    next_ = f" Next: {answer.next}" if answer.next and answer.decision != "ask" else ""  # the pause says it
    judged = f"{answer.progress}, {answer.decision}. {answer.reason}{next_}"
    return f"asked how the task is going, the model said: {judged}"


def _about_services(
    told: ModelCallFailed | ModelCallUnready | SideCallEnded | CircuitChanged, at_ms: int
) -> str:
    if isinstance(told, CircuitChanged):
        return _CIRCUITS[told.state].format(service=told.name.partition("#")[0])
    return _failed(told, at_ms)


def _failed(told: ModelCallFailed | ModelCallUnready | SideCallEnded, at_ms: int) -> str:
    failure, retry_at_ms = told.failure, told.retry_at_ms
    if failure is None or (isinstance(told, SideCallEnded) and told.purpose == "reflection"):
        return ""  # without a reflection nothing changes
    if not isinstance(told, ModelCallFailed) and told.purpose != "work":
        return f"{_ASIDE[told.purpose]}: {in_full(failure)}"
    if not retry_at_ms:  # the end of the run says why, or a shorter request follows
        is_long = failure.code == "context_overflow"
        return "the request was too long for the model" if is_long else "the model call failed"
    wait = took(max(retry_at_ms - at_ms, 0))
    return f"{in_full(failure)} Next attempt in {wait}, at {moment(retry_at_ms, at_ms)}."


def _about_origin(told: SessionForked | SessionRenamed | SessionImported) -> str:
    match told:
        case SessionImported():
            return "imported from a file"
        case SessionForked(parent=parent, at_seq=at_seq):
            return f"branched off {parent} after record {at_seq}"
        case SessionRenamed(key="", other=other):
            return f"{other} took over the name"
        case SessionRenamed(key=key, other=other):
            return f"took over the name {key} from {other}"


def _about_view(told: ContextCompacted | SummaryDiscarded | CompactionAsked | ContextRestored) -> str:
    if isinstance(told, SummaryDiscarded):
        return f"the summary is not used: {told.problem}"
    if isinstance(told, CompactionAsked):
        return f"{told.by} asked for a compaction of the view"
    return left_out(told.left_out if isinstance(told, ContextCompacted) else ())


def _about_files(told: FilesRestoring | FilesRestored) -> str:
    if isinstance(told, FilesRestoring):
        what = "" if told.why in ("accept", "discard") else " of edits"
        return f"{told.why}{what}, asked for by {told.by}"
    if told.why == "discard":
        return "the copy of the workspace was discarded"
    left = ", ".join(each.path for each in told.kept)
    put = "accepted" if told.why == "accept" else "put back"
    return f"{put} {', '.join(told.restored) or 'no file'}" + (f"; left as they are: {left}" if left else "")


def _asked(asked: ApprovalRequested) -> str:
    if asked.question:
        options = f" One of: {', '.join(asked.options)}." if asked.options else ""
        return f"{asked.name} asks: {asked.question}{options} ({asked.approval_id})"
    program = f", begins with {asked.binary}" if asked.binary else ""
    return f"{asked.name}: {asked.reason} ({asked.approval_id}, in {asked.workspace}{program})"


def _changed(settings: Settings | None) -> str:
    if settings is None:  # their record was erased
        return "settings changed"
    model, place = settings.model.facts.name, settings.tools.workspace
    return f"settings changed: {model} in {place}, {settings.posture.autonomy}"


def left_out(ranges: Sequence[Stretch]) -> str:
    """Return the sentence about the records whose messages a request leaves out."""
    if not ranges:
        return "the model sees the whole conversation again"
    return f"the view was compacted: the model no longer sees {names_of(ranges)}"


def decided(decision: Resolution, by: str) -> str:
    """Return how an approval ended, and who decided it: `approved by cli:ann`."""
    return _DECIDED[decision].format(by=by)


def offer_told(offer: Offer) -> str:
    """Return the rule of a grant."""
    return f"{offer.rule} with exactly these arguments" if offer.arguments else offer.rule
