"""How well the token estimate of each request matched what its model counted."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from holdfast.protocol.counts import counted
from holdfast.protocol.events import Responded
from holdfast.views.story import Attempt

LEARNING_CALLS = 10
"""So many counts of a model teach the estimate. Their errors are shown, and not summed up."""


class Errors(NamedTuple):
    """The errors of one model's estimates, as shares of what it counted."""

    model: str
    calls: int
    median: float
    worst: float


def error_of(attempt: Attempt) -> float | None:
    """Return the error of the estimate as a share of what was counted; None without a count."""
    outcome, expected = attempt.outcome, attempt.started.request.expected_tokens
    if not isinstance(outcome, Responded) or "input" in outcome.estimated or not outcome.usage.input_tokens:
        return None
    return expected / outcome.usage.input_tokens - 1


def errors(attempts: Iterable[Attempt]) -> list[Errors]:
    """Return the errors of each model after its first calls."""
    found: dict[str, list[float]] = {}
    for attempt in attempts:
        error = error_of(attempt)
        if error is not None:
            found.setdefault(attempt.started.model, []).append(abs(error))
    learnt = {model: shares[LEARNING_CALLS:] for model, shares in found.items()}
    return [
        Errors(model, len(shares), median(shares), max(shares)) for model, shares in learnt.items() if shares
    ]


def sentence(each: Errors) -> str:
    """Return the errors of a model in words."""
    calls = counted(each.calls, "call")
    return (
        f"token estimate for {each.model}: median error {each.median:.1%}, worst {each.worst:.1%}"
        f" ({calls} after the first {LEARNING_CALLS})"
    )
