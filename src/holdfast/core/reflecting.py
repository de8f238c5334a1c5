"""What the state remembers for reflections."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Reflecting(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What may call for a reflection."""

    failures: int = 0
    """The calls that failed in a row, since the last reflection was asked for."""


def after_call(reflecting: Reflecting, *, is_failed: bool) -> Reflecting:
    """Update after a tool call has its result."""
    # A success between two failures ends the row: the model has found a way by itself.
    if is_failed:
        return replace(reflecting, failures=reflecting.failures + 1)
    return Reflecting() if reflecting.failures else reflecting
