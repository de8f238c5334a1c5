"""Counts tool calls that fail in the same way, one response after the other.

`rules` ends the run at the limit. Nothing here knows the rest of the state.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.failures import CLASSES, Failure, FailureClass

WORDS: dict[FailureClass, str] = {
    "unknown_tool": "called a tool that does not exist",
    "invalid_json": "made a call whose arguments are not JSON",
    "schema": "made a call whose arguments do not fit the tool",
    "timeout": "made a call that ran into its time limit",
    "policy_denied": "made a call that was denied",
    "execution": "made a call that failed",
}


class Failing(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The failures of one class in a row."""

    kind: FailureClass | Literal[""] = ""
    times: int = 0
    turn: int = 0
    """The last turn that counted."""


NOT_FAILING = Failing()


def after_call(failing: Failing, failure: Failure | None, turn: int) -> Failing:
    """Count the failure of a call; None if it succeeded.

    The calls of one response count once: the model wrote them before it read what was wrong with the first.
    """
    if failure is None:
        return NOT_FAILING
    kind = CLASSES.get(failure.code)
    if kind is None or (kind, turn) == (failing.kind, failing.turn):
        return failing
    return Failing(kind, failing.times + 1 if kind == failing.kind else 1, turn)
