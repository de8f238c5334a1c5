"""How a run ends: at once, or as soon as all open calls are closed."""

from __future__ import annotations

from holdfast.core.closing import abandoned, will_not_run
from holdfast.core.draft import Draft
from holdfast.core.opening import start_run
from holdfast.core.state import (
    Answered,
    Denied,
    Expired,
    Proposed,
    Run,
    Waiting,
    is_complete,
    open_model_calls,
    open_run,
    started_calls,
)
from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.settings import Settings

STOP_GRACE_MS = 1_000


def stop(draft: Draft, status: e.RunStatus, reason: str, message: str, by: str = "") -> None:
    """End the open run. `by`: who asked for it; empty for the runtime."""
    run = open_run(draft.state)
    if run is None or run.stopping is not None:
        return
    # Nothing is open: the run ends in this commit. Otherwise `RunStopping` comes first. From then on `wanted`
    # has no attempts, so the driver cancels them; their outcomes, or the end of the grace, close them; then
    # "wind down" ends the run. A killed process finds `RunStopping` in the journal, and its successor ends the
    # run in the same way.
    if not open_model_calls(draft.state) and is_complete(draft.state.turn):
        _end(draft, run, e.RunStopped(run.number, status, reason, message, by))
    else:
        draft.add(e.RunStopping(status, reason, message, draft.awake_ms + STOP_GRACE_MS, by))


def stop_answered(draft: Draft, run: Run) -> None:
    """End the run with the answer that it has."""
    if run.reply == "cut_answer":
        stop(draft, "done", "length", "The answer ends at the output limit of the model.")
    else:
        stop(draft, "done", "answer", "")


def stop_at_wall(draft: Draft, settings: Settings) -> None:
    """End the run, because the time limit is reached."""
    stop(draft, "limit", "wall", f"The time limit of {settings.limits.wall_s:g} s is reached.")


def give_up(draft: Draft) -> None:
    """Abandon every call that still has no outcome: the grace is over."""
    for model_call in open_model_calls(draft.state):
        draft.add(e.ModelCallAbandoned(model_call.key, model_call.purpose))
    for call, _ in started_calls(draft.state):
        draft.add(abandoned(call, "it did not end when the run was stopped"))


def wind_down(draft: Draft) -> None:
    """Close the calls that never started. When no call is open, write the terminal record."""
    run = open_run(draft.state)
    if run is None or run.stopping is None:
        return
    if draft.is_visit:  # a visitor has the lease, so nothing that was started can still be running
        give_up(draft)
    for call in draft.state.turn.calls:
        if isinstance(call.stage, Waiting):
            draft.add(e.ApprovalResolved(call.stage.approval_id, "withdrawn", "runtime"))
        if isinstance(call.stage, Proposed | Waiting | Answered | Denied | Expired):
            draft.add(
                will_not_run(call, Failure("cancelled", "The run was stopped before this call started."))
            )
    if not open_model_calls(draft.state) and not started_calls(draft.state):
        ending = run.stopping
        _end(draft, run, e.RunStopped(run.number, ending.status, ending.reason, ending.message, ending.by))


def _end(draft: Draft, run: Run, stopped: e.RunStopped) -> None:
    """Write the terminal record. If somebody said more during the run, and no request has carried it, it opens the
    next run. After a stop it does not."""
    # `goal_seq` is the message that opened this run. Only a later one is new work: otherwise a run that failed
    # before its first request would open itself again, for ever.
    for each in draft.state.deferred:
        if not each.is_approved:
            draft.add(e.ApprovalResolved(each.id, "withdrawn", "runtime"))
    draft.add(stopped)
    settings = draft.state.settings
    if (
        stopped.status != "interrupted"
        and draft.state.unsaid.words_seq > run.goal_seq
        and settings is not None
    ):
        start_run(draft, settings)
