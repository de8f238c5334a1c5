"""What a model answers when it is asked how it gets on."""

from __future__ import annotations

from typing import Literal

import msgspec

Progress = Literal["good", "slow", "stuck", "regressing"]
Course = Literal["continue", "adjust", "pivot", "ask", "stop"]


class Reflection(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The answer, as the model writes it."""

    progress: Progress
    decision: Course
    reason: str
    next: str = ""
    """What it does next; its question where it asks."""
