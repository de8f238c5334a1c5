"""Decisions about model calls: what the finding of a prepare step means, and the outcome of an attempt."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core import budget, retry, side_calls
from holdfast.core.answers import is_answered_anyway
from holdfast.core.causes import Outcome
from holdfast.core.circuits import verdict_of
from holdfast.core.draft import Draft
from holdfast.core.ending import stop, stop_answered
from holdfast.core.hooking import may_compact
from holdfast.core.refs import own_refs
from holdfast.core.state import ModelCall, Run, State, facts, open_model_call, open_run
from holdfast.core.totals import Totals
from holdfast.protocol import events as e
from holdfast.protocol.budgets import REACHED
from holdfast.protocol.evidence import PARTIAL
from holdfast.protocol.failures import Failure, in_full
from holdfast.protocol.ids import call_id
from holdfast.protocol.messages import Finish, ModelReply, Part, ToolCall, calls_of
from holdfast.protocol.outcomes import ModelCut, ModelFailure, ModelResult, Unaffordable, Unready
from holdfast.protocol.request import Request
from holdfast.protocol.settings import Settings

_REACHED = frozenset(REACHED.values())
MAX_TOOL_CALLS = 128
"""The most tool calls that one response may make. A response with more is a model's mistake."""
TOO_MANY_TOOL_CALLS = (
    "Your response had {count:,} calls. Only the first {taken} were taken; the others were refused and do not run. "
    "Make those that you still need again, at most {taken} in one response."
)

TOO_MANY_RETRIES = "The run has tried model calls again {count:,} times, as often as [retry] per_run allows."
TOO_MANY_FILES = (
    "The workspace has too many files to look at all of them. Whether a command changed something is judged by the "
    "files that your file tools wrote."
)
OVER_CAP = "Your last response has {tokens:,} tokens, more than the {cap:,} allowed. It is charged in full."


def take_finding(
    draft: Draft,
    key: str,
    found: Request | e.ContextCompacted | e.SummaryDiscarded | Unaffordable | Unready,
) -> None:
    """Record the intent of an attempt, or why none starts: a limit, or a provider that is not ready."""
    run, settings = open_run(draft.state), draft.state.settings
    if run is None or settings is None:
        return
    match found:  # what every turn brings first: to ask for a class takes its time
        case Request() as request:
            state = draft.state
            draft.add(
                e.ModelCallStarted(
                    key=key,
                    epoch=draft.epoch,
                    turn=next_turn(state, run),
                    attempt=state.models.failed_attempts + 1,
                    model=facts(state).name,
                    request=request,
                    is_last_pass=bool(run.landing),
                )
            )
        case e.ContextCompacted() as view if not may_compact(draft.state, key):
            draft.add(e.HooksDue("before_compaction", key, view.reason))
        # The step is still wanted, for the view that this leaves.
        case e.ContextCompacted() | e.SummaryDiscarded():
            draft.add(found)
        case Unaffordable(reason=reason, message=message) as short:
            # Three cases. The last pass itself is too dear: the run ends without it. The messages that must
            # stay do not fit the window: no shorter request exists, so the run fails. Otherwise the run lands:
            # one last pass follows.
            # If a side call is open, its reservation may be what is missing: nothing is concluded until it ends.
            sizes = (short.size_bytes, short.fresh_bytes)
            draft.add(e.ModelCallUnaffordable(key, reason, message, *sizes, kinds=short.kinds))
            if draft.state.models.is_short:
                return
            if run.landing:
                stop(draft, "limit", run.landing, message)
            elif is_answered_anyway(draft, run, settings):
                stop_answered(draft, run)
            elif reason == "context":
                stop(draft, "failed", "context_overflow", message)
            elif (
                reason in _REACHED and not run.totals.model_calls
            ):  # nothing was done that an answer could say
                stop(draft, "limit", reason, message)
            else:
                draft.land(reason, message)
        case Unready(failure=failure, until_ms=until_ms, waits_for=waits_for):
            tries, most = draft.state.models.failed_attempts + 1, settings.model.model_attempts
            seed = f"{draft.state.session} {key}"
            retry_at = retry.ready_at_ms(until_ms, tries, most, seed, draft.now_ms)
            if failure.code == "budget_exhausted":
                retry_at = retry.parked_until_ms(until_ms, draft.now_ms)
            if waits_for:
                retry_at = retry.waits_until_ms(until_ms, draft.now_ms)
            is_attempt = not waits_for
            retry_at, why = _within_limits(draft, run, settings, failure, retry_at, is_attempt=is_attempt)
            draft.add(e.ModelCallUnready(key, failure, retry_at, waits_for=waits_for))
            if not retry_at:
                stop(draft, "failed", failure.code, why)


def next_turn(state: State, run: Run) -> int:
    """Return the turn of the next attempt."""
    is_retry = run.totals.model_calls > 0 and not run.reply  # the attempt before brought no response
    return state.turn.number if is_retry else state.turn.number + 1


def take_outcome(draft: Draft, cause: Outcome, result: ModelResult) -> None:
    """Record the outcome of the open attempt. Any other outcome comes too late and means nothing. If a limit is
    exceeded now, end the run."""
    model_call, before = open_model_call(draft.state, cause.key), open_run(draft.state)
    if model_call is None:
        return
    purpose = model_call.purpose
    match result:
        case _ if purpose != "work":
            side_calls.take_outcome(draft, cause, model_call, purpose, result)
        case ModelReply() as reply:
            _responded(draft, cause, model_call, reply)
            _probed(draft, result)
        case ModelFailure() as failed:
            _failed(draft, cause, model_call, failed)
            _probed(draft, result)
        case ModelCut() as cut:
            _cut(draft, cause, model_call, cut)
    # A reservation cannot be exceeded by a provider that keeps to the cap. One that does not ends the run here,
    # with the model call that exceeded the limit, and never later.
    run, settings = open_run(draft.state), draft.state.settings
    if run is not None and settings is not None and budget.is_exceeded(run, settings.limits):
        is_overcharged = before is not None and _is_overcharged(model_call, before.totals, run.totals)
        stop(draft, "limit", *budget.excess(run, settings.limits, is_overcharged=is_overcharged))


def _probed(draft: Draft, result: ModelResult) -> None:
    """Record what a probe found out about its circuit. What other calls make of theirs is met with the next one."""
    probed = [name for name, state in draft.state.models.circuits.items() if state == "half_open"]
    for name in probed:
        verdict = verdict_of(result)
        if verdict == "works":
            draft.add(e.CircuitChanged(name, "closed"))
        elif verdict == "fails" and isinstance(result, ModelFailure):
            draft.add(e.CircuitChanged(name, "open", result.failure.message))


def _is_overcharged(model_call: ModelCall, before: Totals, after: Totals) -> bool:
    """Whether the model call cost more than was reserved for it."""
    tokens = after.usage.total_tokens - before.usage.total_tokens
    return (
        after.cost_microusd - before.cost_microusd > model_call.reserved_microusd
        or tokens > model_call.reserved_tokens
    )


def _responded(draft: Draft, cause: Outcome, model_call: ModelCall, reply: ModelReply) -> None:
    charge, calls = budget.charge(model_call, reply), calls_of(reply.parts)
    count, most = len(calls), most_tool_calls(reply.finish)
    draft.add(
        e.Responded(
            key=cause.key,
            parts=_taken(reply.parts, calls, most, draft.state),
            usage=charge.usage,
            cost_microusd=charge.cost_microusd,
            finish=reply.finish,
            model=reply.model,
            request_ref=reply.request_ref,
            duration_ms=cause.duration_ms,
            first_delta_ms=cause.first_delta_ms,
            estimated=charge.estimated,
            calls_refused=max(count - most, 0),
            verdict=reply.verdict,
            workspace=reply.workspace,
        )
    )
    if reply.workspace and reply.workspace.startswith(PARTIAL) and not draft.state.progress.is_partial:
        draft.add(e.NoteAdded("workspace", TOO_MANY_FILES))
    if count > most > 0:
        draft.add(e.NoteAdded("calls", TOO_MANY_TOOL_CALLS.format(count=count, taken=MAX_TOOL_CALLS)))
    run, tokens, cap = draft.state.run, charge.usage.output_tokens, model_call.output_cap_tokens
    if tokens > cap and run is not None and not run.status and "cap" not in run.warned:
        draft.add(e.NoteAdded("cap", OVER_CAP.format(tokens=tokens, cap=cap)))


def most_tool_calls(finish: Finish) -> int:
    """Return how many calls of a response are taken. A filter may have ended a refused one anywhere, so none of its
    calls runs."""
    return 0 if finish == "refusal" else MAX_TOOL_CALLS


def _taken(parts: tuple[Part, ...], calls: tuple[ToolCall, ...], most: int, state: State) -> tuple[Part, ...]:
    """Return the parts with only the first `most` calls, and with our ids: a provider's may be missing or double."""
    taken: list[Part] = []
    refs = own_refs(calls, state.models.refs)
    count = 0
    for part in parts:
        if type(part) is ToolCall:
            count += 1
            if count > most:
                continue
            part = replace(part, ref=refs[count - 1], call_id=call_id(state.turn.number, count))
        taken.append(part)
    return tuple(taken)


def _failed(draft: Draft, cause: Outcome, model_call: ModelCall, failed: ModelFailure) -> None:
    """Try again when that may help; else the run fails with the reason."""
    run, settings = open_run(draft.state), draft.state.settings
    if run is None or settings is None:
        return
    failure = failed.failure
    seed = f"{draft.state.session} {cause.key}"
    retry_at = retry.retry_at_ms(
        failure, model_call.attempt, settings.model.model_attempts, seed, draft.now_ms
    )
    retry_at, why = _within_limits(draft, run, settings, failure, retry_at, is_attempt=True)
    # Too long: waiting does not help, but a shorter request may. The fold has learnt a smaller window from this
    # failure, so the next request leaves out more.
    is_shortened = failure.code == "context_overflow" and run.overflows < retry.MAX_OVERFLOWS
    charge = budget.charge_broken(model_call, failed)
    draft.add(
        e.ModelCallFailed(
            key=cause.key,
            failure=failure,
            retry_at_ms=retry_at,
            usage=charge.usage,
            cost_microusd=charge.cost_microusd,
            duration_ms=cause.duration_ms,
            estimated=charge.estimated,
        )
    )
    if not retry_at and not is_shortened:
        reason = failure.code if failure.code != "cancelled" else "provider_transient"
        stop(draft, "failed", reason, why)


def _within_limits(
    draft: Draft, run: Run, settings: Settings, failure: Failure, retry_at_ms: int, *, is_attempt: bool
) -> tuple[int, str]:
    """Return when the next attempt is due, 0 if the run has waited or tried enough; and what the failure is then."""
    said = in_full(failure)
    if not retry_at_ms or failure.code == "budget_exhausted":
        return retry_at_ms, said
    if is_attempt and run.waited.retries >= settings.model.run_retries:
        return 0, f"{said} {TOO_MANY_RETRIES.format(count=run.waited.retries)}"
    why = retry.too_long(failure, retry_at_ms, run, settings.model, draft.now_ms)
    return (0, f"{said} {why}") if why else (retry_at_ms, said)


def _cut(draft: Draft, cause: Outcome, model_call: ModelCall, cut: ModelCut) -> None:
    charge = budget.charge_broken(model_call, cut)
    draft.add(
        e.ModelCallCut(
            key=cause.key,
            text=cut.text,
            usage=charge.usage,
            cost_microusd=charge.cost_microusd,
            duration_ms=cause.duration_ms,
            estimated=charge.estimated,
        )
    )
