"""The fold of side calls: what they used, and when the next one may be."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core import compaction, guard
from holdfast.core.changes import attempt_of, charged, held, with_models
from holdfast.core.reflecting import Reflecting
from holdfast.core.retry import SIDE_ATTEMPTS
from holdfast.core.state import State, Tally, facts_for
from holdfast.protocol import events as e
from holdfast.protocol.request import SidePurpose


def side_started(state: State, event: e.ModelCallStarted, purpose: SidePurpose) -> State:
    run, model = state.run, facts_for(state, purpose)
    if run is not None:
        is_unpriced = run.totals.is_unpriced or model.price == "unknown"
        totals = replace(run.totals, side_calls=run.totals.side_calls + 1, is_unpriced=is_unpriced)
        run = replace(run, totals=totals)
    # Further attempts ask the same again. They count for money, and not against the most side calls of a run.
    asked = state.side.tally(purpose).asked + (event.attempt == 1)
    state = _tallied(replace(state, run=run), purpose, asked=asked)
    if purpose == "reflection":
        state = _reflected(state)
    else:
        state = replace(state, compaction=compaction.after_asking(state.compaction, state.at_ms, state.seq))
    return replace(
        state, side=replace(state.side, started=state.side.started + 1, open=attempt_of(state, event, model))
    )


def side_ended(state: State, event: e.SideCallEnded) -> State:
    """Close the open attempt. What it used replaces its reservation."""
    model_call, tally = state.side.open, state.side.tally(event.purpose)
    # A cut attempt has no outcome: a scripted model says the same to the next one.
    outcomes = tally.outcomes + (event.status != "cut")
    spent = tally.spent_microusd + event.cost_microusd
    state = _tallied(charged(state, event), event.purpose, outcomes=outcomes, spent_microusd=spent)
    if event.purpose == "summary":
        text = event.text if event.status == "responded" else ""
        by = model_call.facts.name if model_call is not None else event.model
        after = compaction.after_answer(
            state.compaction, text, event.key, by, event.cost_microusd, state.turn.number
        )
        state = replace(state, compaction=after)
    # A further attempt asks the same under the next key, and the tally of the purpose says when.
    if event.retry_at_ms and model_call is not None:
        failed = {"failed_attempts": model_call.attempt, "retry_at_ms": event.retry_at_ms}
        return _closed(_tallied(state, event.purpose, **failed))
    return _closed(side_over(state, event.purpose))


def side_abandoned(state: State, purpose: SidePurpose) -> State:
    """Close the open attempt. Nobody knows what it cost, so its reservation stays held."""
    model_call, tally = state.side.open, state.side.tally(purpose)
    if model_call is None:
        return state
    spent = tally.spent_microusd + model_call.reserved_microusd
    state = _tallied(held(state, model_call), purpose, spent_microusd=spent)
    # An attempt that kills its process again and again must not be made for ever.
    if model_call.attempt < SIDE_ATTEMPTS:
        return _closed(_tallied(state, purpose, failed_attempts=model_call.attempt))
    return _closed(side_over(state, purpose))


def side_unready(state: State, event: e.ModelCallUnready, purpose: SidePurpose) -> State:
    if not event.retry_at_ms:
        return side_refused(state, purpose)
    failed = state.side.tally(purpose).failed_attempts + (not event.waits_for)
    return _tallied(state, purpose, failed_attempts=failed, retry_at_ms=event.retry_at_ms)


def side_over(state: State, purpose: SidePurpose) -> State:
    """A side call has its answer, or is given up. In this turn there is no other one."""
    # An example: asked in turn 10, given up in turn 11. Ten turns later, in turn 21, the model is asked again.
    turns = state.run.totals.turns if state.run is not None else -1
    state = _tallied(state, purpose, turns=turns, failed_attempts=0, retry_at_ms=0)
    return _reflected(state) if purpose == "reflection" else state


def side_refused(state: State, purpose: SidePurpose) -> State:
    """A side call cannot be made: there is no provider, or it costs too much. It is not tried again in each turn."""
    # A reflection is not due again for some turns anyway.
    if purpose == "summary":
        state = replace(state, compaction=compaction.after_discard(state.compaction, state.turn.number))
    return side_over(state, purpose)


def _reflected(state: State) -> State:
    """Whatever called for a reflection has been heard."""
    has_reflected = state.progress.has_reflected or guard.wants_reflection(state)
    progress = replace(state.progress, has_reflected=has_reflected)
    return replace(state, reflecting=Reflecting(), progress=progress)


def of_next_run(state: State) -> dict[SidePurpose, Tally]:
    """Return the tallies at the beginning of a run: what the last run asked does not count."""
    return {purpose: Tally(tally.outcomes) for purpose, tally in state.side.tallies.items()}


def _tallied(state: State, purpose: SidePurpose, **changes: Any) -> State:
    tally = replace(state.side.tally(purpose), **changes)
    return replace(state, side=replace(state.side, tallies={**state.side.tallies, purpose: tally}))


def _closed(state: State) -> State:
    # Work that waited for this end may be affordable now: it is prepared again.
    return with_models(replace(state, side=replace(state.side, open=None)), is_short=False)
