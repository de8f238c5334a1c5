"""The plan of a session, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from holdfast.core.plan import (
    Planned,
    after_asking_people,
    after_change,
    after_deciding,
    in_progress,
    is_waiting,
    of_next_run,
    progress_of,
)
from holdfast.protocol.events import ApprovalRequested, ApprovalResolved, PlanChanged, Record, RunStarted
from holdfast.protocol.plan import Plan, StepStatus
from holdfast.views.lines import Line, Span, neutral

_MARKS: Mapping[StepStatus, Span] = {
    "pending": Span("·", "dim"), "in_progress": Span("▸", "cyan"), "done": Span("✓", "green"),
    "dropped": Span("✗", "yellow"),
}  # fmt: skip


def plan_in(records: Iterable[Record]) -> Planned:
    """Return the plan that is in force after these records."""
    planned = Planned()
    for record in records:
        match record.event:
            case PlanChanged(plan=plan):
                planned = after_change(planned, plan)
            case ApprovalRequested(approval_id=approval, step=step):
                planned = after_asking_people(planned, approval, step)
            case ApprovalResolved(approval_id=approval):
                planned = after_deciding(planned, approval)
            case RunStarted(is_continuation=is_continuation):
                planned = of_next_run(planned, is_continuation=is_continuation)
    return planned


def plan_lines(planned: Planned) -> Iterator[Line]:
    """Return the plan, a line for each step."""
    plan = planned.plan
    if plan is None:
        yield ["No plan."]
        return
    if plan.goal:
        yield [Span(neutral(plan.goal), "bold")]
    whose = " · of an earlier task" if planned.is_earlier else ""
    yield [Span(f"{progress_of(plan)} · revision {plan.revision}{whose}", "dim")]
    width = max(len(neutral(step.id)) for step in plan.steps)
    for step in plan.steps:
        note = Span(f"  {neutral(step.note)}", "dim") if step.note else ""
        style = "dim" if step.status == "dropped" else "bold" if step.status == "in_progress" else ""
        yield [
            "  ",
            _MARKS[step.status],
            f" {neutral(step.id):<{width}}  ",
            Span(neutral(step.text), style),
            note,
            Span("  waits for a person", "yellow") if is_waiting(planned, step) else "",
        ]


def plan_row(planned: Planned) -> dict[str, Any]:
    """Return the object that `show --plan --json` prints. Without a plan its revision is 0."""
    plan = planned.plan or Plan((), revision=0)
    steps = [
        {name: asdict(step)[name] for name in ("id", "text", "status", "note")}
        | ({"waits": True} if is_waiting(planned, step) else {})
        for step in plan.steps
    ]
    return {"goal": plan.goal, "revision": plan.revision, "steps": steps}


def plan_told(plan: Plan) -> str:
    """Return the plan in one line: how far it is, and the step at work."""
    step = in_progress(plan)
    return progress_of(plan) + (f": {step.text}" if step is not None else "")
