"""What a cause means: the events that it brings, with all that follows from them, to a fixed point.

`_meaning` reads the cause; `_consequences` says what follows from the state alone. Refusals, failures and
stops are events like any other; nothing here raises for what may happen.
"""

from __future__ import annotations

from holdfast.core import approvals, budget, model_calls, tool_calls
from holdfast.core.causes import Attach, Cause, Commanded, Due, Outcome, Prepared
from holdfast.core.closing import abandoned, not_run
from holdfast.core.draft import LAST_PASS, Draft
from holdfast.core.guard import longest
from holdfast.core.state import Run, State, open_run, phase, started_calls
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Command, Continue, Pause, Principal, Resolve, Send, Stop
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import Settings
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.outcomes import ModelCut, ModelFailure

STOP_GRACE_MS = 1_000
MAX_EMPTY_REPLIES = 3

CONTINUE_NOTE = "The last run ended before the work was done. Go on from where it stopped."
EMPTY_NOTE = "Your last response was empty. Answer in words, or call a tool."
REPEAT_NOTE = (
    "You have made the same call with the same arguments {count} turns in a row, and its result did not "
    "change. Try something else, or say what keeps you from going on."
)


def decide(state: State, cause: Cause, now_ms: int) -> list[e.Event]:
    """The events that the cause brings; empty when it means nothing (any more)."""
    return [record.event for record in decision(state, cause, now_ms).records]


def decision(state: State, cause: Cause, now_ms: int, name: str = "") -> Draft:
    """The same as records that name their cause, with the state that they fold to."""
    epoch = cause.epoch if isinstance(cause, Attach | Commanded) else state.epoch
    draft = Draft(state, now_ms, epoch, name)
    _meaning(draft, cause)
    _settle(draft)
    return draft


def _meaning(draft: Draft, cause: Cause) -> None:
    match cause:
        case Attach():
            _attach(draft, cause)
        case Commanded(command=command):
            _command(draft, command)
        case Outcome(result=ModelReply() | ModelFailure() | ModelCut()):
            model_calls.settle(draft, cause)
        case Outcome():
            tool_calls.settle(draft, cause)
        case Prepared():
            _prepared(draft, cause)
        case Due(key=key):
            _due(draft, key)


def _attach(draft: Draft, cause: Attach) -> None:
    """Take over: what an older epoch had in flight is nobody's now."""
    draft.add(e.Attached(cause.epoch, cause.holder, cause.reads))
    call = draft.state.model_call
    if call is not None and call.epoch != cause.epoch:
        draft.add(e.ModelCallAbandoned(call.key))
    for orphan in started_calls(draft.state):
        if orphan.epoch != cause.epoch:
            draft.add(abandoned(orphan, "the process that ran it was interrupted"))


# --- commands -----------------------------------------------------------------------------------


def _command(draft: Draft, command: Command) -> None:
    if draft.is_visit:  # a run that was stopping ends first, so that words open the next one
        _settle(draft)
    by = command.principal.label
    match command.body:
        case Send():
            _send(draft, command.principal, command.body)
        case Continue(settings=settings):
            _continue(draft, by, settings)
        case Resolve():
            approvals.resolve(draft, command.body, by)
        case Pause():
            run = open_run(draft.state)
            if run is not None and not run.is_paused and run.stopping is None:
                draft.add(e.RunPaused(by))
        case Stop(reason=reason):
            stop(draft, "interrupted", reason, f"Stopped by {by}.")


def _send(draft: Draft, principal: Principal, words: Send) -> None:
    """Words open a run, join the open one, or answer the question that is open."""
    run, by = open_run(draft.state), principal.label
    if run is not None:
        _change(draft, words.settings)
        if run.is_paused:
            draft.add(e.RunResumed(by))
        question = approvals.open_question(draft.state)
        if question is not None and "answer" in principal.scopes:
            draft.add(e.ApprovalResolved(question.approval_id, "answer", by, words.text))
            return
    if "speak" not in principal.scopes:  # the question was answered by somebody else meanwhile
        return
    draft.add(e.MessageReceived(words.text, by))
    settings = words.settings or draft.state.settings
    if run is None and settings is not None:
        draft.add(e.RunStarted(_next_run(draft.state), settings))


def _continue(draft: Draft, by: str, settings: Settings | None) -> None:
    """End a pause or a wait; after a run that was not done, open another one."""
    run = open_run(draft.state)
    if run is not None:
        _change(draft, settings)
        if run.is_paused or draft.state.retry_at_ms:
            draft.add(e.RunResumed(by))
        return
    last, settings = draft.state.run, settings or draft.state.settings
    if last is None or last.status == "done" or settings is None:
        return
    draft.add(e.RunStarted(_next_run(draft.state), settings, is_continuation=True))
    draft.add(e.NoteAdded("continue", CONTINUE_NOTE))


def _change(draft: Draft, settings: Settings | None) -> None:
    if settings is not None and settings != draft.state.settings:
        draft.add(e.SettingsChanged(settings))


def _next_run(state: State) -> int:
    return state.run.number + 1 if state.run is not None else 1


# --- prepare steps and timers -------------------------------------------------------------------


def _prepared(draft: Draft, cause: Prepared) -> None:
    """A prepare step's finding counts only while the step is still wanted."""
    if cause.key == f"m{draft.state.model_calls + 1}":
        if phase(draft.state) == "preparing":
            model_calls.start(draft, cause)
    else:
        tool_calls.admit(draft, cause)


def _due(draft: Draft, key: str) -> None:
    """A timer counts only while the state still waits for it, and never before its time."""
    waits = (action for action in wanted(draft.state) if isinstance(action, Wait) and action.key == key)
    if not any(wait.at_ms <= draft.now_ms for wait in waits):
        return
    name, _, subject = key.partition(" ")
    if name == "retry":
        draft.add(e.RunResumed("timer"))
    elif name == "wall" and draft.state.settings is not None:
        _stop_at_wall(draft, draft.state.settings)
    elif name == "approval":
        approvals.expire(draft, subject)
    elif name == "grace":
        _give_up(draft)


def _stop_at_wall(draft: Draft, settings: Settings) -> None:
    stop(draft, "limit", "wall", f"The time limit of {settings.limits.wall_s:g} s is reached.")


def _give_up(draft: Draft) -> None:
    """The grace is over: what still has no outcome is abandoned."""
    if draft.state.model_call is not None:
        draft.add(e.ModelCallAbandoned(draft.state.model_call.key))
    for call in started_calls(draft.state):
        draft.add(abandoned(call, "it did not end when the run was stopped"))


def stop(draft: Draft, status: e.RunStatus, reason: str, message: str) -> None:
    """End the open run: at once, or as soon as nothing is open any more."""
    run = open_run(draft.state)
    if run is None or run.stopping is not None:
        return
    if draft.state.model_call is None and all(call.status == "done" for call in draft.state.calls):
        draft.add(e.RunStopped(run.number, status, reason, message))
    else:
        draft.add(e.RunStopping(status, reason, message, draft.now_ms + STOP_GRACE_MS))


# --- consequences -------------------------------------------------------------------------------


def _settle(draft: Draft) -> None:
    """Let everything follow that follows."""
    while _consequences(draft):
        pass


def _consequences(draft: Draft) -> bool:
    """Add what follows from the state alone; whether anything did."""
    before = len(draft.records)
    run, settings = open_run(draft.state), draft.state.settings
    if run is None or settings is None:
        return False
    if run.stopping is not None:
        _wind_down(draft, run)
    elif draft.state.model_call is None:
        _after_response(draft, run, settings)
        if len(draft.records) == before and phase(draft.state) in ("preparing", "admitting"):
            _check_time(draft, run, settings)
    return len(draft.records) > before


def _check_time(draft: Draft, run: Run, settings: Settings) -> None:
    """Nothing is started for which no time is left."""
    if run.driven_ms >= settings.limits.wall_s * 1000:
        _stop_at_wall(draft, settings)


def _wind_down(draft: Draft, run: Run) -> None:
    """Close what never started; when nothing is open, write the terminal record."""
    assert run.stopping is not None
    if draft.is_visit:  # a visitor holds the lease, so nothing that was started can still be running
        _give_up(draft)
    for call in draft.state.calls:
        if call.status == "asked":
            draft.add(e.ApprovalResolved(call.approval_id, "withdrawn", "runtime"))
        if call.status in ("proposed", "asked", "answered", "denied", "expired"):
            draft.add(not_run(call, Failure("cancelled", "The run was stopped before this call started.")))
    if draft.state.model_call is None and not started_calls(draft.state):
        ending = run.stopping
        draft.add(e.RunStopped(run.number, _status(ending.status), ending.reason, ending.message))


def _status(text: str) -> e.RunStatus:
    return text  # type: ignore[return-value]  # a Stopping is only made from a RunStopping


def _after_response(draft: Draft, run: Run, settings: Settings) -> None:
    """The turn goes on, is complete, or the run ends with an answer."""
    if approvals.act_on_answers(draft):
        return
    if run.has_landed:
        tool_calls.refuse_all(draft)
    if any(call.status != "done" for call in draft.state.calls):
        return
    _warn(draft, run, settings)
    if run.has_landed:
        stop(draft, "limit", run.landing, run.message.removesuffix(LAST_PASS))
    elif run.landing or not run.reply:
        return
    elif run.reply == "calls":
        _after_turn(draft, run, settings)
    elif run.reply == "empty":
        _after_nothing(draft, run, settings)
    elif draft.state.is_unanswered:
        _go_on(draft, run, settings)
    else:
        _end(draft, run)


def _go_on(draft: Draft, run: Run, settings: Settings) -> None:
    """There is more to say: in another turn if one is left, else in a last pass."""
    if run.totals.turns >= settings.limits.turns:
        draft.land("turns", f"The limit of {settings.limits.turns} turns is reached.")


def _end(draft: Draft, run: Run) -> None:
    if run.reply == "cut_answer":
        stop(draft, "done", "length", "The answer ends at the output limit of one model call.")
    else:
        stop(draft, "done", run.reply, "")


def _warn(draft: Draft, run: Run, settings: Settings) -> None:
    if not run.landing:
        for name, text in budget.warnings(run, settings):
            draft.add(e.NoteAdded("cost" if name == "cost" else "tokens", text))


def _after_turn(draft: Draft, run: Run, settings: Settings) -> None:
    """All calls of the turn have results: is the agent still getting anywhere, may it go on?"""
    count = longest(draft.state.repeats)
    if count >= settings.repeat_stop:
        message = f"The same call brought the same result {count} turns in a row."
        stop(draft, "stuck", "repeat", message)
    elif count == settings.repeat_note and "repeat" not in draft.state.notes:
        draft.add(e.NoteAdded("repeat", REPEAT_NOTE.format(count=count)))
    else:
        _go_on(draft, run, settings)


def _after_nothing(draft: Draft, run: Run, settings: Settings) -> None:
    if run.empty_replies >= MAX_EMPTY_REPLIES:
        stop(draft, "failed", "empty_response", f"The model answered with nothing {run.empty_replies} times.")
    elif run.totals.turns < settings.limits.turns and "empty" not in draft.state.notes:
        draft.add(e.NoteAdded("empty", EMPTY_NOTE))
    else:
        _go_on(draft, run, settings)
