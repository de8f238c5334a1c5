"""Decisions about side calls: what the finding of a prepare step means, and the outcome of an attempt."""

from __future__ import annotations

from typing import Any

from holdfast.core import budget, retry
from holdfast.core.causes import Outcome
from holdfast.core.draft import Draft
from holdfast.core.side import KINDS
from holdfast.core.state import ModelCall, State, facts_for
from holdfast.core.wanted import PrepareSide
from holdfast.protocol import events as e
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.messages import ModelReply, calls_of, text_of
from holdfast.protocol.outcomes import ModelCut, ModelFailure, ModelResult, Unaffordable, Unready
from holdfast.protocol.request import Request, SidePurpose
from holdfast.protocol.settings import Settings


def afford(
    state: State, purpose: SidePurpose, size_bytes: int, fresh_bytes: int, kinds: Kinds
) -> budget.Grant | Unaffordable:
    """Return what a side call with a request of this size reserves, or which limit it would break."""
    # Two limits: what the purpose may cost in a run, and what the work leaves. The second one is in `budget`, with
    # everything else about reservations.
    assert state.run is not None
    assert state.settings is not None
    kind, spent = KINDS[purpose], state.side.tally(purpose).spent_microusd
    most = left_microusd(purpose, state.settings, spent)
    model = facts_for(state, purpose)
    return budget.afford_side(state, model, size_bytes, fresh_bytes, kinds, kind.output_tokens, most)


def left_microusd(purpose: SidePurpose, settings: Settings, spent_microusd: int) -> int:
    """Return what the next one may cost, from what the others of the run cost."""
    return int(settings.limits.cost_microusd * KINDS[purpose].cost_share(settings)) - spent_microusd


def take_finding(draft: Draft, step: PrepareSide, found: Request | Unaffordable | Unready) -> None:
    """Record the intent of an attempt, or why none starts. Nothing else follows: the run goes on without it."""
    state, key, purpose = draft.state, step.key, step.purpose
    tally = state.side.tally(purpose)
    match found:
        case Unaffordable(reason=reason, message=message) as short:
            told = (key, reason, message, short.size_bytes, short.fresh_bytes, purpose, short.kinds)
            draft.add(e.ModelCallUnaffordable(*told))
        case Unready(failure=failure, until_ms=until_ms, waits_for=waits_for):
            tries, seed = tally.failed_attempts + 1, f"{state.session} {key}"
            # A few tries, each with a record of its own. A provider that stays away must not keep the run busy.
            retry_at = retry.ready_at_ms(until_ms, tries, retry.SIDE_ATTEMPTS, seed, draft.now_ms)
            if waits_for:
                retry_at = retry.waits_until_ms(until_ms, draft.now_ms)
            draft.add(e.ModelCallUnready(key, failure, retry_at, purpose, waits_for))
        case Request() as request:
            draft.add(
                e.ModelCallStarted(
                    key=key,
                    epoch=draft.epoch,
                    turn=state.turn.number,
                    attempt=tally.failed_attempts + 1,
                    model=facts_for(state, purpose).name,
                    request=request,
                    purpose=purpose,
                )
            )


def take_outcome(
    draft: Draft, cause: Outcome, model_call: ModelCall, purpose: SidePurpose, result: ModelResult
) -> None:
    """Record the outcome of the open side call, and what follows from its answer."""
    ended = _ended(draft, cause, model_call, purpose, result)
    draft.add(ended)
    if ended.status == "responded":
        KINDS[ended.purpose].take(draft, ended)


def _ended(
    draft: Draft, cause: Outcome, model_call: ModelCall, purpose: SidePurpose, result: ModelResult
) -> e.SideCallEnded:
    key, duration_ms = cause.key, cause.duration_ms
    if isinstance(result, ModelReply):
        charge = budget.charge(model_call, result)
        return e.SideCallEnded(
            key,
            purpose,
            "responded",
            text_of(result.parts),
            len(calls_of(result.parts)),
            result.is_masked,
            usage=charge.usage,
            cost_microusd=charge.cost_microusd,
            estimated=charge.estimated,
            finish=result.finish,
            model=result.model,
            request_ref=result.request_ref,
            duration_ms=duration_ms,
            first_delta_ms=cause.first_delta_ms,
        )
    charge = budget.charge_broken(model_call, result)
    used: dict[str, Any] = {
        "usage": charge.usage,
        "cost_microusd": charge.cost_microusd,
        "estimated": charge.estimated,
    }
    # Only the end of a run cuts a side call. Half an answer is of no use, so its words are not stored.
    if isinstance(result, ModelCut):
        return e.SideCallEnded(key, purpose, "cut", finish="cancelled", duration_ms=duration_ms, **used)
    return e.SideCallEnded(
        key,
        purpose,
        "failed",
        finish="other",
        failure=result.failure,
        retry_at_ms=_retry_at_ms(draft, key, model_call, result),
        duration_ms=duration_ms,
        **used,
    )


def _retry_at_ms(draft: Draft, key: str, model_call: ModelCall, failed: ModelFailure) -> int:
    seed = f"{draft.state.session} {key}"
    return retry.retry_at_ms(failed.failure, model_call.attempt, retry.SIDE_ATTEMPTS, seed, draft.now_ms)
