"""Calls that tell Holdfast something: the core takes them itself, in the commit that judges them.

No attempt starts, so a crash leaves such a call taken or not judged yet.
"""

from __future__ import annotations

from holdfast.core import answers, plan
from holdfast.core.closing import will_not_run
from holdfast.core.draft import Draft
from holdfast.core.state import Call
from holdfast.protocol import events as e
from holdfast.protocol.answers import Answer
from holdfast.protocol.failures import Failure
from holdfast.protocol.plan import PlanUpdate
from holdfast.protocol.tools import CallResult, Told

PLANNED = "The plan is recorded as revision {revision}: {progress}. The ids of its steps are {ids}."
AS_IT_WAS = "The plan is as it was, revision {revision}: {progress}."


def take(draft: Draft, call: Call, told: Told) -> None:
    """Take what the call says, or refuse it with the reason."""
    match told.said:
        case PlanUpdate() as update:
            _change_plan(draft, call, told, update)
        case Answer() as answer:
            answers.take(draft, call, told, answer)


def _change_plan(draft: Draft, call: Call, told: Told, update: PlanUpdate) -> None:
    settings, before = draft.state.settings, draft.state.plan
    if settings is None:
        return
    found = plan.revised(before, update, settings.conduct.max_replans)
    if isinstance(found, str):
        draft.add(will_not_run(call, Failure("tool_execution", found), told.decisions))
        return
    draft.add(e.ToolCallTold(call.call_id, call.name, told.decisions))
    progress = plan.progress_of(found)
    if found is before.plan:
        text = AS_IT_WAS.format(revision=found.revision, progress=progress)
    else:
        draft.add(e.PlanChanged(call.call_id, found, update.note))
        ids = ", ".join(step.id for step in found.steps)
        text = PLANNED.format(revision=found.revision, progress=progress, ids=ids)
    draft.add(e.ToolCallFinished(call.call_id, CallResult("ok", text, trust="assistant")))
