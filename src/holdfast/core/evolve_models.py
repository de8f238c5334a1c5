"""The fold of model calls: what they used, what they taught about the model, and the turn that a response begins."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.core import measure, prompted, waited
from holdfast.core.changes import (
    attempt_of,
    charged,
    held,
    labelled,
    with_models,
    with_run,
    with_usage,
)
from holdfast.core.evolve_side import side_abandoned, side_ended, side_refused, side_started, side_unready
from holdfast.core.measure import Measure
from holdfast.core.progress import looked
from holdfast.core.refs import known_after
from holdfast.core.state import (
    Call,
    ModelCall,
    State,
    Turn,
    Unsaid,
    facts,
)
from holdfast.protocol import events as e
from holdfast.protocol.flags import flags_after
from holdfast.protocol.messages import calls_of, text_of
from holdfast.protocol.request import quoted_in
from holdfast.protocol.trust import Label

_NOTHING = Unsaid()
SHRINK_SHARE = 0.7
"""The share of the window that is still assumed after a provider refused a request as too long and named no size."""
LEAST_WINDOW_TOKENS = 1_024
"""The smallest window that a refusal can teach. A run could do nothing in a smaller one."""


def of_model(state: State, event: e.ModelEvent) -> State:
    match event:
        case e.ModelCallStarted(purpose=purpose):
            return _started(state, event) if purpose == "work" else side_started(state, event, purpose)
        case e.Responded():
            return _responded(state, event)
        case e.PromptBuilt():
            return _built(state, event)
        case e.ModelCallFailed():
            return _failed(state, event)
        case e.ModelCallUnready(purpose=purpose):
            return _unready(state, event) if purpose == "work" else side_unready(state, event, purpose)
        case e.CircuitChanged(name=name, state=met):
            others = {each: known for each, known in state.models.circuits.items() if each != name}
            return with_models(state, circuits=others if met == "closed" else {**others, name: met})
        case e.ModelCallUnaffordable():
            return _unaffordable(state, event)
        case e.ModelCallCut():
            return _cut(state, event)
        case e.ModelCallAbandoned(purpose=purpose):
            return _abandoned(state) if purpose == "work" else side_abandoned(state, purpose)
        case e.SideCallEnded():
            return side_ended(state, event)


def _built(state: State, event: e.PromptBuilt) -> State:
    flags = flags_after(state.taint, state.seq, event)
    state = replace(state, prompt=prompted.after_built(event), taint=flags)
    for trust in {each.trust: None for each in event.sections if each.trust != "user"}:
        state = labelled(state, Label("prompt", trust))
    return state


def _started(state: State, event: e.ModelCallStarted) -> State:
    request, models, run = event.request, state.models, state.run
    if run is not None:
        run = replace(run, reply="", totals=replace(run.totals, model_calls=run.totals.model_calls + 1))
    compaction = state.compaction
    if compaction.is_asked:  # otherwise there was nothing to leave out
        compaction = replace(compaction, is_asked=False)
    anew_seq, quoted = models.anew_seq, models.quoted
    if not request.keep:
        anew_seq, quoted = state.seq, tuple([each for each in quoted_in(request) if isinstance(each, int)])
    return replace(
        state,
        run=run,
        models=replace(
            models,
            anew_seq=anew_seq,
            quoted=quoted,
            open=attempt_of(state, event, facts(state)),
            started=models.started + 1,
            measure=measure.after_request(models.measure, request.fresh_bytes),
            base=request.base,
            base_bytes=request.kinds.base,
            model=event.model,
            size_bytes=request.size_bytes,
            is_short=False,
            insists=False,
        ),
        prompt=prompted.after_request(state.prompt, event),
        turn=Turn(event.turn, (), state.turn.repeats),
        unsaid=_NOTHING,
        compaction=compaction,
    )


def _responded(state: State, event: e.Responded) -> State:
    model_call = state.models.open
    asked = calls_of(event.parts)
    has_words = bool(text_of(event.parts).strip())
    run, models = state.run, state.models
    if run is not None:
        # The last pass is not a turn: a run with a limit of 25 turns may make 26 model calls, and reports 25.
        is_turn = model_call is not None and not model_call.is_last_pass
        kind = _reply_kind(event, bool(asked))
        # A model that is asked to go on, and has nothing more to say, has answered.
        kind = "answer" if kind == "empty" and run.cut else kind
        run = replace(
            run,
            totals=with_usage(run.totals, event, turns=run.totals.turns + is_turn),
            reply=kind,
            answer_seq=state.seq if has_words else run.answer_seq,
            cut=run.cut if is_turn and kind in ("answer", "cut_answer") else (),
            empty_replies=run.empty_replies + 1 if kind == "empty" else 0,
            verdict=event.verdict,
            has_landed=model_call is not None and model_call.is_last_pass,
        )
    calls = tuple([Call(p.call_id, p.ref, p.name, p.arguments, p.is_masked) for p in asked])
    has_changed = False
    if event.workspace:
        state, has_changed = _looked(state, event.workspace)
    repeats = state.turn.repeats if asked and not has_changed else ()
    return replace(
        state,
        run=run,
        turn=replace(state.turn, calls=calls, repeats=repeats),
        models=replace(
            models,
            open=None,
            outcomes=models.outcomes + 1,
            failed_attempts=0,
            measure=_measured(state, model_call, event),
            refs=known_after(models.refs, asked) if asked else models.refs,
        ),
    )


def _looked(state: State, workspace: str) -> tuple[State, bool]:
    """Take the state of the workspace after the last turn. Return whether that turn changed it to a new one: then its
    calls do not count as repeats."""
    progress, is_new = looked(state.progress, workspace, state.turn.number - 1)
    return replace(state, progress=progress), is_new


def _is_of_next(state: State, model_call: ModelCall | None) -> bool:
    """Return whether the next model call is for the same model. Otherwise what this one taught does not count."""
    if model_call is None:
        return False
    of_next = facts(state)
    return model_call.facts is of_next or model_call.facts.name == of_next.name


def _measured(state: State, model_call: ModelCall | None, event: e.Responded) -> Measure:
    """What the counts of a response teach about the next request."""
    if model_call is None or not _is_of_next(state, model_call):
        return state.models.measure
    return measure.after_response(
        state.models.measure,
        model_call.size_bytes,
        model_call.kinds,
        model_call.facts.context_tokens,
        event.usage,
        event.estimated,
        event.parts,
    )


def _reply_kind(event: e.Responded, has_calls: bool) -> Any:
    if has_calls:
        return "calls"
    if event.finish == "refusal":
        return "refusal"
    if not text_of(event.parts).strip():
        return "empty"
    return "cut_answer" if event.finish == "length" else "answer"


def _failed(state: State, event: e.ModelCallFailed) -> State:
    model_call, run = state.models.open, state.run
    window, said = state.models.learnt_window_tokens, state.models.overflow_said
    if event.failure.code == "context_overflow":
        run = replace(run, overflows=run.overflows + 1) if run is not None else None
        # Providers disagree about what they name: the window, the size of the request, or nothing. A number
        # counts only if it makes the window smaller. An example: a window of 200,000 tokens was assumed, the
        # refusal names none, so the next request must fit into 140,000.
        if _is_of_next(state, model_call):
            assumed, named = window or facts(state).context_tokens, event.failure.tokens or 0
            smaller = named if 0 < named < assumed else int(assumed * SHRINK_SHARE)
            window, said = max(smaller, LEAST_WINDOW_TOKENS), event.failure.said
    state = _waiting(_close_and_charge(replace(state, run=run), event), event.retry_at_ms, is_attempt=True)
    return with_models(
        state,
        outcomes=state.models.outcomes + 1,
        failed_attempts=model_call.attempt if model_call is not None else state.models.failed_attempts,
        retry_at_ms=event.retry_at_ms,
        learnt_window_tokens=window,
        overflow_said=said,
    )


def _unready(state: State, event: e.ModelCallUnready) -> State:
    # A wait for a budget, a circuit or a rate does not count as a failed attempt.
    is_attempt = event.failure.code != "budget_exhausted" and not event.waits_for
    failed_attempts = state.models.failed_attempts + is_attempt
    if event.failure.code != "budget_exhausted":
        state = _waiting(state, event.retry_at_ms, is_attempt=is_attempt)
    return with_models(state, retry_at_ms=event.retry_at_ms, failed_attempts=failed_attempts)


def _waiting(state: State, retry_at_ms: int, *, is_attempt: bool) -> State:
    """Count a wait for the next attempt of a model call against the limits of the run."""
    run, settings = state.run, state.settings
    if run is None or settings is None or not retry_at_ms:
        return state
    wait_ms = max(retry_at_ms - state.at_ms, 0)
    now = waited.begun(run.waited, wait_ms, settings.model.patience_s, is_attempt=is_attempt)
    return with_run(state, waited=now)


def _unaffordable(state: State, event: e.ModelCallUnaffordable) -> State:
    if event.purpose != "work":
        return side_refused(state, event.purpose)
    # The reservation of the open side call may be all that is missing. The next request waits until it is known
    # what that call really costs.
    return with_models(state, is_short=state.side.open is not None and event.reason != "context")


def _cut(state: State, event: e.ModelCallCut) -> State:
    cut = _close_and_charge(state, event)
    return with_run(cut, answer_seq=state.seq) if event.text.strip() else cut


def _abandoned(state: State) -> State:
    # The process died during the model call. The provider may have charged it in full, or never seen it. So the whole
    # reservation stays held: it counts against the limits, but is shown apart from what was spent.
    if state.models.open is not None:
        state = held(state, state.models.open)
    return with_models(state, open=None)


def _close_and_charge(state: State, ended: e.ModelCallFailed | e.ModelCallCut) -> State:
    """Close the open attempt. What it used replaces its reservation."""
    return with_models(charged(state, ended), open=None)
