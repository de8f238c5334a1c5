"""What the answer of a hook means that was asked about a run, a model call or a compaction, or told of something."""

from __future__ import annotations

from holdfast.core.draft import Draft
from holdfast.core.ending import stop
from holdfast.core.hooking import is_asked
from holdfast.core.state import open_run
from holdfast.core.wanted import RunHook, wanted
from holdfast.protocol import events as e
from holdfast.protocol.hooks import HookAnswer

DENIED = "The hook {name} ended the run{why}"


def take_outcome(draft: Draft, key: str, answer: HookAnswer, duration_ms: int) -> None:
    """Record an answer that is still waited for. A denial ends the run. Who is only informed decides nothing."""
    # A hook may answer when its call is over: the run was stopped, paused, or goes on without it. Looking it up in
    # `wanted` makes that harmless. One that was cut off by a pause is asked again when the pause ends.
    action = next((each for each in wanted(draft.state) if type(each) is RunHook and each.key == key), None)
    if action is None or answer.is_cut:
        return
    hook, occurred = action.hook, action.occurred
    decides = is_asked(occurred.event)
    # Nobody can approve a whole model call or run, so there a question is a denial.
    is_denied = decides and answer.verdict in ("deny", "ask")
    status: e.HookStatus = "denied" if is_denied else "failed" if answer.is_failure else "ok"
    reason = answer.reason if decides or answer.is_failure else ""
    draft.add(e.HookEnded(hook.name, occurred.event, occurred.subject, status, reason, duration_ms))
    run = open_run(draft.state)
    if not is_denied or run is None:
        return
    why = f": {answer.reason}" if answer.reason else "."
    message = DENIED.format(name=hook.name, why=why)
    if run.landing:  # the run is over already, without a last pass
        stop(draft, "limit", run.landing, message)
    else:
        stop(draft, "failed", hook.rule, message)
