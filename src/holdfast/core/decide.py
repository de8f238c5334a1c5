"""Turns a cause into events: first those of the cause itself (`_meaning`), then those that the rules add, until no
rule adds any.

Refusals, failures and stops are events like any other; nothing here raises for what may happen.
"""

from __future__ import annotations

from holdfast.core import (
    approvals,
    background,
    files,
    hook_answers,
    model_calls,
    notifying,
    side_calls,
    tool_calls,
)
from holdfast.core.causes import Attach, Cause, Commanded, Due, Finding, Outcome
from holdfast.core.closing import abandoned
from holdfast.core.draft import Draft
from holdfast.core.ending import give_up, stop, stop_at_wall
from holdfast.core.opening import change_settings, start_run
from holdfast.core.prompted import built, differs
from holdfast.core.rules import follow_up
from holdfast.core.state import (
    TIMER,
    Proposed,
    Started,
    State,
    has_begun,
    open_model_calls,
    open_run,
    started_calls,
    starts_of,
)
from holdfast.core.wanted import Admit, PrepareSide, Wait, is_wanted, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import (
    Compact,
    Continue,
    Pause,
    Principal,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Send,
    Stop,
)
from holdfast.protocol.hooks import HookAnswer
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.notify import Notified
from holdfast.protocol.outcomes import BudgetNear, Built, CircuitMet, Lost, Probed, Unaffordable, Unready
from holdfast.protocol.request import Request
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import Allowed, Asked, CallResult, Refused, Told
from holdfast.protocol.zone import Zone, head_at

CONTINUE_NOTE = "The last run ended before the work was done. Go on from where it stopped."
RIVAL_NOTE = (
    "The process that worked on this before stopped answering, and it may still be alive. What it had begun may "
    "still take effect, or take effect once more: {calls}. Look at the state of the world before you rely on it."
)
WITH_THE_ANSWER = "This came with the answer to your question."
_STOPS = {
    "hangup": "Stopped: the terminal of {by} was closed",
    "terminated": "Stopped: the process of {by} was told to end",
}
"""What happened when a signal and no person stopped a run, by its reason."""
MAX_INTERRUPTIONS = 3
"""A call that was interrupted this many times does not run again: the call itself may crash the process."""


def decide(state: State, cause: Cause, now_ms: int, awake_ms: int) -> list[e.Event]:
    """Return the events that follow from the cause; none if it means nothing, or comes too late."""
    return [record.event for record in decision(state, cause, now_ms, awake_ms).records]


def decision(state: State, cause: Cause, now_ms: int, awake_ms: int) -> Draft:
    """Like `decide`, but returns the records, with their trigger, and the new state.

    Args:
        state: The state of the session before the cause.
        cause: What happened.
        now_ms: The calendar's time.
        awake_ms: The time by the driver's clock, as in `Record.awake_ms`; 0 for a visitor.
    """
    # Why two steps? `_meaning` says only what the cause itself brings, for example `Responded`. What follows
    # from the new state (the run is done, a limit is reached) is the same no matter which cause led there, so
    # the rules say it once. An example: the outcome of model call m2 is "All tests pass." without tool calls.
    # `_meaning` adds Responded. Then the rule "answer" finds an answer and no unread message, and adds
    # RunStopped(done). Both are one commit.
    #
    # An attach and a command bring the epoch under which they are decided. All other causes come from the driver
    # that attached last, so they count under its epoch.
    epoch = cause.epoch if type(cause) is Attach or type(cause) is Commanded else state.epoch
    draft = Draft(state, now_ms, awake_ms, epoch, trigger(cause))
    _meaning(draft, cause)
    if cause.aside:
        draft.add(e.NoteAdded("aside", cause.aside))
    follow_up(draft)
    notifying.add_due(draft)
    return draft


def trigger(cause: Cause) -> e.Trigger:
    """Return the kind and name of the cause, for the records that follow from it."""
    match cause:
        case Outcome(key=key):
            return e.Trigger("outcome", key)
        case Finding(step=step):
            return e.Trigger("finding", step.key)
        case Attach():
            return e.Trigger("attach")
        case Commanded(command=command):
            return e.Trigger("command", command.id)
        case Due(key=key):
            return e.Trigger("timer", key)


def _meaning(draft: Draft, cause: Cause) -> None:
    match cause:
        case Outcome(key=key, result=result):
            if type(result) is ModelReply:  # the usual one; `isinstance` takes long to say no to a struct
                model_calls.take_outcome(draft, cause, result)
            elif isinstance(result, CallResult):
                tool_calls.take_outcome(draft, key, result)
            elif isinstance(result, Notified):
                notifying.take_outcome(draft, key.partition(" ")[2], result)
            elif isinstance(result, HookAnswer):
                hook_answers.take_outcome(draft, key, result, cause.duration_ms)
            else:
                model_calls.take_outcome(draft, cause, result)
        case Finding():
            _prepared(draft, cause)
        case Attach():
            _attach(draft, cause)
        case Commanded():
            _command(draft, cause)
        case Due(key=key):
            _due(draft, key)


def _attach(draft: Draft, cause: Attach) -> None:
    """Take over the session. Close what an older epoch left open, or put it before the gates again."""
    # Make the notes before `Attached` is added: after it, no call counts as started by the old driver.
    notes = _rival_notes(draft.state) if cause.is_contested else []
    # The first driver of a branch: what its parent started is not its own.
    is_branch = bool(draft.state.parent) and not draft.state.epoch
    notes += background.notes(draft.state.background, cause.background, is_branch=is_branch)
    draft.add(e.Attached(cause.epoch, cause.holder, cause.background))
    for note in notes:
        draft.add(note)
    # A model call has no effect outside, so it is closed here and sent again under a new key. Nobody knows
    # whether the provider charged it: its reservation stays held.
    for model_call in open_model_calls(draft.state):
        if model_call.epoch != cause.epoch:
            draft.add(e.ModelCallAbandoned(model_call.key, model_call.purpose))
    for call in draft.state.turn.calls:
        # Still `Started` after `Attached`: the tool declared `unknown`, so the call must neither run again nor
        # be probed. A call that may run again or be probed is `Proposed` by now (`evolve._attached`), and goes
        # before the gates.
        if isinstance(call.stage, Started) and call.stage.attempt.epoch != cause.epoch:
            draft.add(abandoned(call, "the process that ran it was interrupted"))
        elif isinstance(call.stage, Proposed) and starts_of(call) >= MAX_INTERRUPTIONS:
            draft.add(abandoned(call, f"each of its {starts_of(call)} attempts was interrupted"))


def _rival_notes(state: State) -> list[e.NoteAdded]:
    """Notes that warn the model: the previous driver may still be alive, and may finish these calls."""
    begun = [
        f"{call.name} ({call.call_id})" for call, attempt in started_calls(state) if attempt.effect != "read"
    ]
    return [e.NoteAdded("takeover", RIVAL_NOTE.format(calls=", ".join(begun)))] if begun else []


# --- commands -----------------------------------------------------------------------------------


def _command(draft: Draft, cause: Commanded) -> None:
    command = cause.command
    for note in _rival_notes(draft.state) if cause.is_contested else []:
        draft.add(note)
    if draft.is_visit:  # a run that was stopping ends first, so that words open the next one
        follow_up(draft)
    by = command.principal.label
    match command.body:
        case Send():
            _send(draft, command.principal, command.body, cause.zone)
        case Continue(settings=settings):
            _continue(draft, command.principal, settings)
        case Resolve():
            approvals.resolve(draft, command.body, command.principal)
        case Revoke(grant_id=name):
            approvals.revoke(draft, name, command.principal)
        case Pause():
            run = open_run(draft.state)
            if run is not None and not run.is_paused and run.stopping is None:
                draft.add(e.RunPaused(by))
        case Restore():
            files.restore(draft, command.body, by)
        case Restored():
            files.restored(draft, command.body)
        case Compact():
            _compact(draft, command.body, by)
        case Stop(reason=reason):
            stop(draft, "interrupted", reason, _stopped(draft.state, reason, by), by)


def _compact(draft: Draft, asked: Compact, by: str) -> None:
    """Compact the view, or bring everything back. A view that is there already counts if nothing happened since."""
    state = draft.state
    if asked.is_undo and (state.compaction.seq or state.compaction.is_asked):
        draft.add(e.ContextRestored(by))
    elif not asked.is_undo and not state.compaction.is_asked:
        draft.add(e.CompactionAsked(by))
    if asked.view is not None and asked.at_seq == state.seq and open_run(state) is None:
        draft.add(asked.view)


def _stopped(state: State, reason: str, by: str) -> str:
    """Return the message for the user. The words of a run that sent no request are not part of the next task."""
    what = _STOPS.get(reason, "Stopped by {by}").format(by=by)
    return f"{what}." if has_begun(state) else f"{what} before it began; the next task is without it."


def _send(draft: Draft, principal: Principal, words: Send, zone: Zone) -> None:
    """Take the words of a sender: they open a run, join the open run, or answer an open question."""
    run, by = open_run(draft.state), principal.label
    # Words that arrive while a question is open are its answer if their sender may answer. Otherwise they are a
    # message that joins the run, and the question stays open.
    question = approvals.open_question(draft.state) if run is not None else None
    # The timer of the deadline may fire after these words. They must not answer a question that is already too
    # old.
    if question is not None and draft.now_ms >= question.deadline_ms:
        approvals.expire(draft, question.approval_id)
        question = None
    is_answer = question is not None and "answer" in principal.scopes
    if not is_answer and "speak" not in principal.scopes:  # meant as an answer, but the question is closed
        return
    settings = _allowed(principal, words.settings)
    if run is not None:
        if settings is not None:
            change_settings(draft, settings)
        if run.is_paused and "speak" in principal.scopes:
            draft.add(e.RunResumed(by))
    if question is not None and is_answer:
        draft.add(e.ApprovalResolved(question.approval_id, "answer", by, words.text, principal.scopes))
        if words.attachments:
            draft.add(e.MessageReceived(WITH_THE_ANSWER, by, principal.scopes, words.attachments))
        return
    # The message comes before `RunStarted`: the run takes the words that no request has carried as its task.
    head = head_at(draft.now_ms, zone)
    draft.add(e.MessageReceived(words.text, by, principal.scopes, words.attachments, head))
    settings = settings or draft.state.settings
    if run is None and settings is not None:
        start_run(draft, settings)


def _continue(draft: Draft, principal: Principal, settings: Settings | None) -> None:
    """End a pause or a wait; after a run that was not done, open another one."""
    run, settings = open_run(draft.state), _allowed(principal, settings)
    if run is not None:
        if settings is not None:
            change_settings(draft, settings)
        if run.is_paused:
            draft.add(e.RunResumed(principal.label))
        # A person who continues does not want to wait for the timer, so the next attempt starts now.
        if draft.state.models.retry_at_ms:
            draft.add(e.RunResumed(principal.label))
        return
    last, settings = draft.state.run, settings or draft.state.settings
    if last is None or last.status == "done" or settings is None:
        return
    start_run(draft, settings, continued_by=principal)
    draft.add(e.NoteAdded("continue", CONTINUE_NOTE))


def _allowed(principal: Principal, settings: Settings | None) -> Settings | None:
    """The settings, if the principal may configure. The controller has refused others already."""
    return settings if "configure" in principal.scopes else None


# --- prepare steps and timers -------------------------------------------------------------------


def _prepared(draft: Draft, cause: Finding) -> None:
    """Act on a finding. Ignore it if the state has changed so that another step is wanted."""
    # A slow step works on an older state. Say the gates judge a call for 3 s, and the user lowers the autonomy
    # meanwhile. The step's basis (settings, principal, labels) then differs from what is wanted now, so the
    # finding is dropped, and the driver takes the step again.
    if cause.at is not draft.state and not is_wanted(cause.step, draft.state):
        return
    match cause.result:  # those of every turn first: to ask for a class takes its time
        case Request() | Unaffordable() | Unready() as found:
            if type(cause.step) is PrepareSide:
                side_calls.take_finding(draft, cause.step, found)
            else:
                model_calls.take_finding(draft, cause.step.key, found)
        case Allowed() | Asked() | Told() | Refused() | Probed() | Lost() as found:
            assert isinstance(cause.step, Admit)
            tool_calls.take_finding(draft, cause.step.call, found)
        case Built() as found:
            if draft.state.prompt.due or differs(draft.state.prompt, found):
                draft.add(built(draft.state.prompt, found))
        case BudgetNear(reason=reason, message=message):
            draft.add(e.NoteAdded(reason, message))
        case CircuitMet(name=name, state=state, reason=reason):
            draft.add(e.CircuitChanged(name, state, reason))
        case e.ContextCompacted() | e.SummaryDiscarded() as view:
            model_calls.take_finding(draft, cause.step.key, view)


def _due(draft: Draft, key: str) -> None:
    """Act on a timer. It counts only while the state still waits for it, and never before its time."""
    # Timers fire late, twice, or for a wait that is over. Looking it up in `wanted` makes all of that harmless.
    waits = (action for action in wanted(draft.state) if isinstance(action, Wait) and action.key == key)
    if not any(wait.at_ms <= (draft.awake_ms if wait.is_driven else draft.now_ms) for wait in waits):
        return
    name, _, subject = key.partition(" ")
    if name == "retry":
        draft.add(e.RunResumed(TIMER))
    elif name == "wall" and draft.state.settings is not None:
        stop_at_wall(draft, draft.state.settings)
    elif name == "approval":
        approvals.expire(draft, subject)
    elif name == "grace":
        give_up(draft)
