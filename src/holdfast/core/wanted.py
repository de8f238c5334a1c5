"""What should be in flight now, from the state alone: prepare steps, attempts and timers, each with a key.

Only attempts that this epoch recorded as started are wanted, so nothing runs that its driver did not record.
"""

from __future__ import annotations

import msgspec

from holdfast.core import hooking, pace
from holdfast.core.hooked import NOTHING, Occurred
from holdfast.core.side import due
from holdfast.core.state import (
    Call,
    ModelCall,
    Phase,
    Run,
    State,
    ToolAttempt,
    Waiting,
    action_key,
    admissible,
    next_key,
    next_side_key,
    open_run,
    phase,
    started_calls,
)
from holdfast.protocol.hooks import Hook
from holdfast.protocol.notify import NotificationDue
from holdfast.protocol.request import SidePurpose


class PrepareRequest(msgspec.Struct, frozen=True):
    """Render and estimate the next request."""

    key: str
    is_last_pass: bool
    basis: tuple[object, ...] = ()
    """What the request is made from. If one changes, this is another step."""


class PrepareSide(msgspec.Struct, frozen=True):
    """Render and estimate the request of a side call."""

    key: str
    purpose: SidePurpose
    basis: tuple[object, ...] = ()
    """What the request is made from. If one changes, this is another step."""


class Admit(msgspec.Struct, frozen=True):
    """Put a call before the gates; look first whether an interrupted attempt of it happened."""

    key: str
    call: Call
    basis: tuple[object, ...] = ()
    """What the gates judge by, beside the call. If one changes, this is another step."""


class CallModel(msgspec.Struct, frozen=True, gc=False):
    """Send the request that was recorded."""

    key: str
    model_call: ModelCall


class RunTool(msgspec.Struct, frozen=True, gc=False):
    """Run the attempt that was recorded."""

    key: str
    call: Call
    attempt: ToolAttempt


class RunHook(msgspec.Struct, frozen=True, gc=False):
    """Ask a hook about something, or tell it of it. The record of what happened is the intent: it is run again after
    a crash."""

    key: str
    hook: Hook
    occurred: Occurred


class Notify(msgspec.Struct, frozen=True, gc=False):
    """Notify somebody of what is recorded. Who runs it makes sure that this happens once, also after a crash."""

    key: str
    due: NotificationDue


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A timer: at this time the driver passes `Due(key)` to the core."""

    key: str
    at_ms: int
    is_driven: bool = False
    """Whether the time is on the driver's clock (`Record.awake_ms`); otherwise it is calendar time."""


Prepare = PrepareRequest | PrepareSide | Admit
Attempt = CallModel | RunTool | RunHook | Notify
Action = Prepare | Attempt | Wait


def wanted(state: State) -> list[Action]:
    """Return all actions that should be in flight, in a stable order."""
    run = open_run(state)
    told: list[Action] = [] if state.hooking is NOTHING else [_hook(*each) for each in hooking.telling(state)]
    if state.notifications:
        told += [Notify(f"notify {each.key}", each) for each in state.notifications]
    if run is None:
        return [*told]
    now = phase(state)
    if now == "stopping":
        return [*_grace(run), *told]
    # A side call is prepared first, so that a commit that begins both ends with the intent of the work, where
    # snapshots are made. It runs last, so that the task of the work goes on with the work.
    return [*_side_steps(state, now), *_of_work(state, run, now), *_side_calls(state), *told]


def _of_work(state: State, run: Run, now: Phase) -> list[Action]:
    match now:
        case "idle" | "paused" | "stopping":
            return []
        case "calling":
            # An attempt of another epoch is never adopted, because this driver did not record its intent. A
            # branch has such attempts until its first driver attaches and closes them.
            model_call = state.models.open
            attempts: list[Action] = []
            if model_call is not None and model_call.epoch == state.epoch:
                attempts.append(CallModel(model_call.key, model_call))
            return [*attempts, *_wall(state, run)]
        case "acting":
            running = [
                RunTool(action_key(call), call, attempt)
                for call, attempt in started_calls(state)
                if attempt.epoch == state.epoch
            ]
            # Calls that touch different files run side by side, so while some run, others may go before the
            # gates.
            return [*running, *_admissions(state, run), *_deadlines(state), *_wall(state, run)]
        case "admitting":
            return [*_admissions(state, run), *_deadlines(state), *_wall(state, run)]
        case "waiting":
            return _deadlines(state)
        case "backing_off":
            # No wall timer here: the driver's clock stops while the session backs off or waits for people.
            return [Wait("retry", state.models.retry_at_ms)]
        case "preparing":
            if state.settings is not None and state.settings.policy.hooks:
                asked = hooking.asking(state, next_key(state))
                if asked is not None:
                    return [_hook(*asked), *_wall(state, run)]
            return [*_requests(state, run), *_wall(state, run)]


def _hook(hook: Hook, occurred: Occurred) -> RunHook:
    return RunHook(f"hook {occurred.event} {occurred.subject} {hook.name}", hook, occurred)


def is_wanted(step: Prepare, state: State) -> bool:
    """Whether exactly this step is wanted. Does not look at what else is."""
    run = open_run(state)
    if run is None:
        return False
    now = phase(state)
    if type(step) is PrepareSide:
        return step in _side_steps(state, now)
    if now == "preparing":
        return step in _requests(state, run)
    return now in ("acting", "admitting") and step in _admissions(state, run)


def _requests(state: State, run: Run) -> list[Action]:
    # The request did not fit beside a side call. When that call ends, `is_short` is gone, and it is tried again.
    if state.models.is_short:
        return []
    settings = state.settings
    if settings is not None and settings.policy.hooks and hooking.delays(state, next_key(state)):
        return []
    basis = (state.settings, state.unsaid, run.number, state.compaction.seq)
    return [PrepareRequest(next_key(state), bool(run.landing), basis)]


def _side_steps(state: State, now: Phase) -> list[Action]:
    purpose = due(state, now)
    if purpose is None:
        return []
    return [PrepareSide(next_side_key(state), purpose, (state.settings, state.models.started))]


def _side_calls(state: State) -> list[Action]:
    # As with the work, an attempt of another epoch is never adopted.
    model_call = state.side.open
    if model_call is None or model_call.epoch != state.epoch:
        return []
    return [CallModel(model_call.key, model_call)]


def _admissions(state: State, run: Run) -> list[Action]:
    if run.is_paused:
        return []
    calls = [*admissible(state)]
    if not calls:
        return []
    basis = (
        state.settings, state.principal, state.labels, state.taint, run.covered, state.plan.is_made,
        state.grants, state.deferred, _has_many_starts(state),
    )  # fmt: skip
    return [Admit(action_key(call), call, basis) for call in calls]


def _has_many_starts(state: State) -> bool:
    """Whether the calls of the last hour have reached their limit. What was judged before that is judged again: slow
    gates judge several calls at once."""
    most = state.settings.policy.actions_per_hour if state.settings is not None else 0
    return most > 0 and pace.started(state.starts, state.at_ms) >= most


def _deadlines(state: State) -> list[Action]:
    of_turn: list[Action] = [
        Wait(f"approval {call.stage.approval_id}", call.stage.deadline_ms)
        for call in state.turn.calls
        if type(call.stage) is Waiting
    ]
    if not state.deferred:
        return of_turn
    aside = [each for each in state.deferred if not each.is_approved]
    return [*of_turn, *[Wait(f"approval {each.id}", each.deadline_ms) for each in aside]]


def _wall(state: State, run: Run) -> list[Action]:
    if state.settings is None:
        return []
    # `driven_ms` counts over all drivers, `awake_ms` only for this one. An example: a limit of 7,200 s, of
    # which earlier drivers used 7,000 s. This driver has worked for 50 s, so 150 s are left, and the timer is
    # at 50 + 150 = 200 s of its own clock.
    left_ms = int(state.settings.limits.wall_s * 1000) - run.driven_ms
    at_ms = state.awake_ms + left_ms if left_ms > 0 else state.awake_ms
    return [Wait("wall", at_ms, is_driven=True)]


def _grace(run: Run) -> list[Action]:
    if run.stopping is None:
        return []
    return [Wait("grace", run.stopping.grace_until_ms, is_driven=True)]
