"""The fold of a run: words and notes, settings, pauses, limits, and its end."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core import plan, progress, prompted, waited
from holdfast.core.changes import labelled, narrowed, with_models, with_run
from holdfast.core.evolve_side import of_next_run
from holdfast.core.measure import UNLEARNT, Measure, learnt_with
from holdfast.core.progress import Progress
from holdfast.core.reflecting import Reflecting
from holdfast.core.state import (
    TIMER,
    Run,
    State,
    Stopping,
    Turn,
    Unsaid,
    facts,
    has_begun,
    open_run,
)
from holdfast.core.totals import Totals
from holdfast.protocol import events as e
from holdfast.protocol.budgets import REACHED
from holdfast.protocol.commands import Principal
from holdfast.protocol.flags import flags_after
from holdfast.protocol.limits import Limits
from holdfast.protocol.settings import SettingsRef, settings_by
from holdfast.protocol.trust import Label

TITLE_CHARS = 80
_ONCE = frozenset({"cost", "tokens", "cap", *REACHED.values()})
"""The subjects of notes that a run gets once."""


def of_run(state: State, event: e.RunEvent) -> State:
    match event:
        case e.MessageReceived():
            return _message(state, event)
        case e.NoteAdded():
            return _noted(state, event)
        case e.SettingsStored(groups=groups):
            return replace(state, groups={**state.groups, **groups})
        case e.RunStarted():
            return _run_started(state, event)
        case e.SettingsChanged():
            return _changed(state, event)
        case e.RunPaused(question=question):
            return with_run(state, is_paused=True, question=question)
        case e.RunResumed(by=by):
            return _resumed(state, by)
        case e.RunLanding(reason=reason, message=message):
            return with_run(state, landing=reason, message=message)
        case e.RunStopping():
            return _stopping(state, event)
        case e.RunStopped():
            return _stopped(state, event)
        case e.Reflected():
            return state


def _message(state: State, event: e.MessageReceived) -> State:
    """Store the message as unsaid, and set the title and the principal. If the words of several people are pending,
    only the rights that all of them have remain."""
    title = state.title or " ".join(event.text.split())[:TITLE_CHARS]
    principal = Principal(event.sender, scopes=event.scopes)
    if open_run(state) is not None or state.unsaid.last_words_seq:  # others spoke in this run too
        principal = narrowed(principal, state.principal)
    unsaid = replace(state.unsaid, words_seq=state.unsaid.words_seq or state.seq, last_words_seq=state.seq)
    spoken = labelled(state, Label("user", "user"))
    for each in event.attachments:
        spoken = labelled(spoken, Label(each.origin, each.trust))
    run = state.run
    return replace(
        spoken,
        run=replace(run, cut=()) if run is not None and run.cut else run,
        title=title,
        taint=flags_after(state.taint, state.seq, event),
        principal=principal,
        unsaid=unsaid,
        plan=plan.after_words(state.plan),
        progress=progress.spoken(state.progress),
    )


def _run_started(state: State, event: e.RunStarted) -> State:
    before = state.before + state.run.totals if state.run is not None else state.before
    state = _set(_waits_no_more(state), event.settings)
    last = state.run
    goal_seq = last.goal_seq if event.is_continuation and last is not None else state.unsaid.words_seq
    run = Run(
        event.run, started_ms=state.at_ms, goal_seq=goal_seq, totals=Totals(is_unpriced=_is_unpriced(state))
    )
    principal = state.principal
    if event.is_continuation:
        principal = narrowed(Principal(event.sender, scopes=event.scopes), principal)
    return replace(
        state,
        run=run,
        before=before,
        principal=principal,
        prompt=prompted.due(state.prompt, "a run opened", state.seq),
        turn=Turn(state.turn.number),
        reflecting=Reflecting(),
        models=replace(state.models, failed_attempts=0),
        plan=plan.of_next_run(state.plan, is_continuation=event.is_continuation),
        progress=_progress_of_run(state, event),
        side=replace(state.side, tallies=of_next_run(state)) if state.side.started else state.side,
    )


def _progress_of_run(state: State, event: e.RunStarted) -> Progress:
    """What a new task brings counts as new, also if the session has seen it before. A continuation begins with the
    evidence of the run that it continues."""
    before = progress.changed(state.progress)
    seen = before.seen if event.is_continuation else ()
    return Progress(seen=seen, written=before.written, is_partial=before.is_partial, failures=before.failures)


def _changed(state: State, event: e.SettingsChanged) -> State:
    before, state = state.settings, _set(state, event.settings)
    run = state.run
    if not state.prompt.due and prompted.reads_otherwise(before, state.settings):
        state = replace(state, prompt=prompted.due(state.prompt, "the settings changed", state.seq))
    if run is None:
        return state
    if before is not None and state.settings is not None and before.limits != state.settings.limits:
        is_last_pass = state.models.open is not None and state.models.open.is_last_pass
        run = _under_new_limits(run, before.limits, state.settings.limits, is_last_pass=is_last_pass)
    if _is_unpriced(state):
        run = replace(run, totals=replace(run.totals, is_unpriced=True))
    return replace(state, run=run)


def _under_new_limits(run: Run, before: Limits, after: Limits, *, is_last_pass: bool) -> Run:
    """Warn anew. If the limit that was reached is higher now, the run goes on, unless its last pass has begun."""
    run = replace(run, warned=tuple(name for name in run.warned if name == "cap"))
    is_raised = {
        "turns": after.turns > before.turns,
        "tokens": after.tokens > before.tokens,
        "cost": after.cost_microusd > before.cost_microusd,
        "tool_calls": after.tool_calls > before.tool_calls,
    }
    if run.landing and not is_last_pass and not run.has_landed and is_raised.get(run.landing, True):
        return replace(run, landing="", message="")
    return run


def _is_unpriced(state: State) -> bool:
    return facts(state).price == "unknown"


def _set(state: State, ref: SettingsRef) -> State:
    """Take other settings. Another model counts tokens in its own way and has its own window."""
    changed = replace(state, settings=settings_by(ref, state.groups) or state.settings)
    if state.progress.written and _workspace(changed) != _workspace(
        state
    ):  # other files have these names there
        changed = replace(changed, progress=replace(state.progress, written=()))
    before, after = facts(state), facts(changed)
    if after.name != before.name:  # the new one is not the one that has to be waited for
        learnt = learnt_with(state.models.learnt, before.name, state.models.measure.rates)
        return with_models(
            changed,
            measure=Measure(rates=learnt.get(after.name, UNLEARNT)),
            learnt=learnt,
            learnt_window_tokens=0,
            retry_at_ms=0,
            failed_attempts=0,
        )
    if after.context_tokens != before.context_tokens:
        return with_models(changed, learnt_window_tokens=0)
    return changed


def _workspace(state: State) -> str:
    return state.settings.tools.workspace if state.settings is not None else ""


def _resumed(state: State, by: str) -> State:
    """End the pause. If the run is not paused, end the wait for the next attempt of a model call."""
    if state.run is not None and state.run.is_paused:
        return with_run(state, is_paused=False, question="")
    if by != TIMER and state.models.retry_at_ms:
        state = with_models(state, insists=True)
    return _waits_no_more(state)


def _waits_no_more(state: State) -> State:
    """Stop waiting for the next attempt of a model call."""
    if not state.models.retry_at_ms:
        return state
    if state.run is not None:
        left_ms = max(state.models.retry_at_ms - state.at_ms, 0)
        state = with_run(state, waited=waited.ended(state.run.waited, left_ms))
    return with_models(state, retry_at_ms=0)


def _stopping(state: State, event: e.RunStopping) -> State:
    stopping = Stopping(event.status, event.reason, event.message, event.grace_until_ms, event.by)
    return _waits_no_more(with_run(state, stopping=stopping, is_paused=False, question=""))


def _stopped(state: State, event: e.RunStopped) -> State:
    ended = with_run(
        state,
        ended_ms=state.at_ms,
        status=event.status,
        reason=event.reason,
        message=event.message,
        stopping=None,
        is_paused=False,
        question="",
    )
    return replace(
        ended,
        turn=replace(state.turn, calls=()),
        deferred=(),
        background=(),
        models=replace(state.models, retry_at_ms=0, failed_attempts=0),
        unsaid=_unsaid_after(state, event),
    )


def _unsaid_after(state: State, event: e.RunStopped) -> Unsaid:
    """A stop also drops the pending words: they open no run. If the run had sent a request, the next request still
    brings them."""
    # An example: the user sends "Delete the logs", and stops the run before its first request. The next task
    # must not contain these words. If a request had carried them, the model knows them, and later requests keep
    # the history whole.
    if event.status != "interrupted":
        return state.unsaid
    return replace(
        state.unsaid, words_seq=0, last_words_seq=state.unsaid.last_words_seq if has_begun(state) else 0
    )


def _noted(state: State, event: e.NoteAdded) -> State:
    run = state.run
    if run is not None and event.about in _ONCE:
        run = replace(run, warned=(*run.warned, event.about))
    if run is not None and event.about == "output":
        run = replace(run, repairs=run.repairs + 1)
    if run is not None and event.about == "answer":
        run = replace(run, was_asked_to_call=True)
    if run is not None and event.about == "length":
        run = replace(run, cut=(*run.cut, run.answer_seq))
    unsaid = replace(state.unsaid, notes=(*state.unsaid.notes, event.about))
    planned = plan.after_asking(state.plan) if event.about == "plan" else state.plan
    noted = replace(state, run=run, unsaid=unsaid, plan=planned)
    if event.about == "stall":
        return replace(noted, progress=replace(state.progress, is_told=True))
    if event.about == "workspace":
        return replace(noted, progress=replace(state.progress, is_partial=True))
    return noted
