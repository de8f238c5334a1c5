"""The update_plan tool: the model tells the plan of its task. `core.plan` says which changes are taken."""

from __future__ import annotations

from typing import Any, get_args

from holdfast.protocol.plan import (
    MAX_GOAL_CHARS,
    MAX_ID_CHARS,
    MAX_NOTE_CHARS,
    MAX_STEP_CHARS,
    MAX_STEPS,
    UPDATE_PLAN,
    PlanUpdate,
    StepStatus,
)
from holdfast.tools.schema import arguments_object
from holdfast.tools.telling import Telling

_DESCRIPTION = (
    "Make or change the plan of a task with several steps. Always send the whole plan: every step that is done, and "
    "what is left. Mark the one step that you work on as in_progress, and a step as done as soon as it is. A step "
    f"that turns out to be needless or impossible is dropped. A plan has at most {MAX_STEPS} steps: to add more, "
    "leave out the first done ones."
)


class UpdatePlan(Telling[PlanUpdate]):
    """update_plan."""

    def __init__(self) -> None:
        super().__init__(UPDATE_PLAN, _DESCRIPTION, _parameters(), PlanUpdate)

    def said(self, values: dict[str, Any]) -> PlanUpdate:
        """Return what a call says. Many models count the ids of their steps, so a number is an id too."""
        steps = [{**step, "id": str(step.get("id", ""))} for step in values["steps"]]
        return super().said({**values, "steps": steps})


def _parameters() -> dict[str, Any]:
    step = arguments_object(
        required=["text", "status"],
        id={
            "type": ["string", "integer"],
            "maxLength": MAX_ID_CHARS,
            "maximum": 9_999,
            "minimum": 0,
            "description": "Keeps a step the same when its text changes. Default: Holdfast gives it a number.",
        },
        text={"type": "string", "minLength": 1, "maxLength": MAX_STEP_CHARS},
        status={"type": "string", "enum": list(get_args(StepStatus))},
        note={"type": "string", "maxLength": MAX_NOTE_CHARS},
    )
    return arguments_object(
        required=["steps"],
        steps={"type": "array", "items": step, "minItems": 1, "maxItems": MAX_STEPS},
        goal={
            "type": "string",
            "maxLength": MAX_GOAL_CHARS,
            "description": "What is to be reached. Default: as it was.",
        },
        note={"type": "string", "maxLength": MAX_NOTE_CHARS, "description": "Why the plan changes."},
    )
