"""The plan of a task, as `update_plan` gives it and as `PlanChanged` records it.

`core.plan` decides whether a plan is taken.
"""

from __future__ import annotations

from typing import Literal

import msgspec

UPDATE_PLAN = "update_plan"
"""The tool."""
MAX_STEPS = 50
MAX_STEP_CHARS = 300
MAX_GOAL_CHARS = 1_000
MAX_NOTE_CHARS = 300
MAX_ID_CHARS = 40

StepStatus = Literal["pending", "in_progress", "done", "dropped"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One step of a plan."""

    text: str
    status: StepStatus = "pending"
    id: str = ""
    """Every step of a recorded plan has one. In a call it may be empty."""
    note: str = ""

    @property
    def is_open(self) -> bool:
        """Whether there is still something to do."""
        return self.status in ("pending", "in_progress")


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The whole plan."""

    steps: tuple[Step, ...]
    goal: str = ""
    revision: int = 1
    """Counts from 1: the plan was recorded that often."""


class PlanUpdate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call of `update_plan` says: the whole plan as it is to be."""

    steps: tuple[Step, ...]
    goal: str | None = None
    """None keeps the goal."""
    note: str = ""
    """Why the plan changes."""
