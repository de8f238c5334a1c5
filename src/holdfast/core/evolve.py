"""The fold: computes the state after each event. It never validates, and never raises on a known event.

It decides nothing. An event about an unknown call changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from msgspec.structs import replace

from holdfast.core import background, compaction, hooking, ledger, plan, progress, prompted
from holdfast.core.evolve_models import of_model
from holdfast.core.evolve_run import of_run
from holdfast.core.evolve_tools import of_approval, of_tool
from holdfast.core.hooked import NOTHING
from holdfast.core.state import (
    NO_EPOCH,
    RESTING,
    Answered,
    Call,
    Denied,
    Done,
    Expired,
    ModelCall,
    Proposed,
    Run,
    Stage,
    Started,
    State,
    ToolAttempt,
    Waiting,
    phase,
)
from holdfast.protocol import events as e
from holdfast.protocol.commands import Restoring

_DONE_TO_FILES: Mapping[Restoring, str] = {
    "undo": "took back the edits of {}",
    "redo": "made again the edits of {}",
    "rewind": "",
    "accept": "accepted the changes of {}",
    "discard": "discarded all changes in the copy of the workspace",
}
"""What a person did to files, as the ledger says it."""


def evolve(state: State, record: e.Record) -> State:
    """The state after the record."""
    run, passed_ms = state.run, record.awake_ms - state.awake_ms
    # The time since the last record in which this very driver was at work, by its clock.
    if run is not None and passed_ms > 0 and record.epoch == state.epoch and phase(state) not in RESTING:
        run = replace(run, driven_ms=run.driven_ms + passed_ms)
    # Time between two drivers does not count: the epochs differ, and so do the clocks that they were measured
    # by.
    here = replace(state, seq=record.seq, at_ms=record.at_ms, awake_ms=record.awake_ms, run=run)
    folded = _FOLDS[type(record.event)](here, record.event)
    if folded.settings is None or not (folded.settings.policy.hooks or folded.hooking is not NOTHING):
        return folded
    return hooking.after(here, folded, record.event)


def fold(records: list[e.Record], state: State | None = None) -> State:
    """The state after many records."""
    state = state or State()
    for record in records:
        state = evolve(state, record)
    return state


# --- session ------------------------------------------------------------------------------------


def _of_session(state: State, event: e.SessionEvent) -> State:
    match event:
        case e.SessionOpened(session=session, key=key):
            return replace(state, session=session, key=key, created_ms=state.at_ms)
        case e.SessionForked():
            return _forked(state, event)
        case e.SessionRenamed(key=key):
            return replace(state, key=key)
        case e.SessionImported():
            return _imported(state)
        case e.Attached():
            return _attached(state, event)


def _forked(state: State, event: e.SessionForked) -> State:
    """A branch has its own name, its own epochs, and asks its own approvals: a permission that its parent was
    given is not its own, and a grant neither. What its parent had in flight no driver of the branch started."""
    calls = tuple(_of_a_branch(call) for call in state.turn.calls)
    return replace(
        state,
        session=event.session,
        key="",
        parent=event.parent,
        run=_without_scopes(state.run),
        inherited=state.before + state.run.totals if state.run is not None else state.before,
        grants=(),
        notifications=(),
        deferred=(),
        plan=plan.without_waiting(state.plan),
        epoch=0,
        turn=replace(state.turn, calls=calls),
        models=replace(state.models, open=_of_nobody(state.models.open)),
        side=replace(state.side, open=_of_nobody(state.side.open)),
    )


def _without_scopes(run: Run | None) -> Run | None:
    """What approvals of others cover is not covered here."""
    return replace(run, covered=()) if run is not None else None


def _of_nobody(model_call: ModelCall | None) -> ModelCall | None:
    """No driver here has started it."""
    return replace(model_call, epoch=NO_EPOCH) if model_call is not None else None


def _of_a_branch(call: Call) -> Call:
    match call.stage:
        case Started(attempt):
            return replace(call, stage=Started(replace(attempt, epoch=NO_EPOCH)), permission=None)
        case Done():
            return call
        case Proposed() | Waiting() | Answered() | Denied() | Expired():
            return replace(call, stage=Proposed(), permission=None)


def _imported(state: State) -> State:
    """What a file says that people allowed, nobody allowed here. A call that waits for a person still does."""
    calls = tuple(
        _of_a_branch(call) if isinstance(call.stage, Started) else replace(call, permission=None)
        for call in state.turn.calls
    )
    return replace(
        state,
        run=_without_scopes(state.run),
        turn=replace(state.turn, calls=calls),
        models=replace(state.models, open=_of_nobody(state.models.open)),
        side=replace(state.side, open=_of_nobody(state.side.open)),
        grants=(),
        notifications=(),
        deferred=tuple([replace(each, is_approved=False) for each in state.deferred]),
        restoring_seq=0,
    )


def _attached(state: State, event: e.Attached) -> State:
    """A new driver has the session: attempts of older epochs are not running. Those that may be probed or run again
    go before the gates."""
    # `interrupted` remembers the attempt, so that its number goes on counting, and a probe knows what to look
    # for. A call whose tool declares `unknown` stays `Started`: `decide._attach` abandons it.
    calls = tuple(
        replace(
            call, stage=Proposed(), interrupted=attempt, arguments=call.written or call.arguments, written=""
        )
        if (attempt := _cut_off(call.stage, event.epoch)) is not None and attempt.on_interrupt != "unknown"
        else call
        for call in state.turn.calls
    )
    turn = replace(state.turn, calls=calls)
    still = background.after_attach(state.background, event)
    return replace(state, epoch=event.epoch, turn=turn, background=still)


def _cut_off(stage: Stage, epoch: int) -> ToolAttempt | None:
    """The attempt that an older epoch left open."""
    return stage.attempt if isinstance(stage, Started) and stage.attempt.epoch != epoch else None


def _of_files(state: State, event: e.FileEvent) -> State:
    match event:
        case e.FilesRestoring():
            return replace(state, restoring_seq=state.seq)
        case e.FilesRestored(why=why, restored=restored):
            return _put_back(replace(state, restoring_seq=0), why, restored)


def _put_back(state: State, why: Restoring, paths: Sequence[str]) -> State:
    """A person put files back. Otherwise the ledger would go on telling that they are written."""
    if why == "rewind" or not (paths or why == "discard"):  # a rewind is of a branch, which knows of no edit
        return state
    what = _DONE_TO_FILES[why].format(", ".join(paths))
    noted = ledger.noted(state.ledger, "decision", what, state.seq)
    return replace(state, ledger=noted, progress=progress.changed(state.progress))


def _of_context(state: State, event: e.ContextEvent) -> State:
    match event:
        case e.ContextCompacted():
            compacted = compaction.after(state.compaction, state.seq, state.turn.number, event)
            due = prompted.due(state.prompt, "a compaction landed", state.seq)
            return replace(state, compaction=compacted, prompt=due)
        case e.CompactionAsked():
            return replace(state, compaction=replace(state.compaction, is_asked=True))
        case e.SummaryDiscarded():
            discarded = compaction.after_discard(state.compaction, state.turn.number)
            return replace(state, compaction=discarded)
        case e.ContextRestored():
            restored = compaction.after_restoring(state.compaction, state.turn.number)
            return replace(state, compaction=restored)


def _folds(
    kind: Any, fold: Callable[[State, Any], State]
) -> dict[type[e.Event], Callable[[State, Any], State]]:
    return dict.fromkeys(get_args(kind), fold)


def _of_notification(state: State, event: e.NotifyEvent) -> State:
    if isinstance(event, e.NotificationEnded):
        left = tuple([each for each in state.notifications if each.key != event.key])
        return replace(state, notifications=left)
    seen = state.approvals if event.about == "waiting" else state.noticed_approvals
    pending = (*state.notifications, event)
    return replace(state, notifications=pending, notices=state.notices + 1, noticed_approvals=seen)


def _of_hooks(state: State, event: e.HookFact) -> State:
    """`hooking.after` folds what hooks have to hear, of all events."""
    return state


_FOLDS = {
    **_folds(e.SessionEvent, _of_session),
    **_folds(e.RunEvent, of_run),
    **_folds(e.ModelEvent, of_model),
    **_folds(e.ContextEvent, _of_context),
    **_folds(e.ToolEvent, of_tool),
    **_folds(e.ApprovalEvent, of_approval),
    **_folds(e.FileEvent, _of_files),
    **_folds(e.HookFact, _of_hooks),
    **_folds(e.NotifyEvent, _of_notification),
}
"""The fold of each type of event. A look-up by type is faster than asking each group in turn."""
