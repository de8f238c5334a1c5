"""Changes to one part of the state, for the folds of several subjects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core.state import NO_EPOCH, ModelCall, Run, State
from holdfast.core.totals import Totals
from holdfast.protocol import events as e
from holdfast.protocol.commands import Principal
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.trust import Label


def attempt_of(state: State, event: e.ModelCallStarted, facts: ModelFacts) -> ModelCall:
    """Return the attempt that the event opens."""
    request = event.request
    return ModelCall(
        event.key,
        event.epoch,
        event.attempt,
        request.size_bytes,
        request.expected_tokens,
        request.output_cap_tokens,
        request.reserved_microusd,
        request.reserved_tokens,
        event.is_last_pass,
        facts,
        event.purpose,
        request.kinds,
        state.at_ms,
        state.principal.name,
    )


def with_run(state: State, **changes: Any) -> State:
    return replace(state, run=replace(state.run, **changes)) if state.run is not None else state


def with_models(state: State, **changes: Any) -> State:
    return replace(state, models=replace(state.models, **changes))


def with_call(state: State, call_id: str, **changes: Any) -> State:
    calls = tuple([replace(c, **changes) if c.call_id == call_id else c for c in state.turn.calls])
    return replace(state, turn=replace(state.turn, calls=calls))


def labelled(state: State, label: Label) -> State:
    return state if label in state.labels else replace(state, labels=(*state.labels, label))


def charged(state: State, ended: e.ModelCallFailed | e.ModelCallCut | e.SideCallEnded) -> State:
    """Charge the run what an attempt used."""
    run = state.run
    return (
        replace(state, run=replace(run, totals=with_usage(run.totals, ended))) if run is not None else state
    )


def with_usage(
    totals: Totals, ended: e.Responded | e.ModelCallFailed | e.ModelCallCut | e.SideCallEnded, **changes: Any
) -> Totals:
    """Add what an attempt used."""
    return replace(
        totals,
        usage=totals.usage + ended.usage,
        cost_microusd=totals.cost_microusd + ended.cost_microusd,
        is_estimated=totals.is_estimated or bool(ended.estimated),
        **changes,
    )


def with_reservation(run: Run, model_call: ModelCall | None) -> Run:
    """Return the run with the whole reservation of an attempt held."""
    if model_call is None:
        return run
    totals = replace(
        run.totals,
        held_microusd=run.totals.held_microusd + model_call.reserved_microusd,
        held_tokens=run.totals.held_tokens + model_call.reserved_tokens,
    )
    return replace(run, totals=totals)


def held(state: State, model_call: ModelCall) -> State:
    """Hold the whole reservation of an attempt that is given up."""
    # The reservation counts against the limits of the run. But what a parent had in flight is in the parent's books,
    # and not in those of its branch.
    run, inherited = state.run, state.inherited
    if run is not None:
        run = with_reservation(run, model_call)
    if model_call.epoch == NO_EPOCH:
        held_microusd = inherited.held_microusd + model_call.reserved_microusd
        inherited = replace(inherited, held_microusd=held_microusd)
    return replace(state, run=run, inherited=inherited)


def narrowed(principal: Principal, other: Principal) -> Principal:
    """Return the first principal, with only the scopes that both have."""
    # An example: ann may speak and configure, bob may only speak. A run in which both spoke may only speak:
    # bob's words could have asked for what only ann may do.
    return replace(principal, scopes=tuple(scope for scope in principal.scopes if scope in other.scopes))
