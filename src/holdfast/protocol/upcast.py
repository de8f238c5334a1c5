"""Brings older versions of events up to date, as plain data, one step at a time.

A step is a pure function on the decoded body. Steps are kept for ever: a journal that was written once must always
load. No event has a second version yet, so there is no step yet. `events` says what a step must come with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[dict[str, Any]], dict[str, Any]]

STEPS: Mapping[tuple[str, int], Step] = {}
"""(type, v) to the function that makes a body of version v into one of version v + 1."""


def upcast(type_: str, v: int, current: int, body: dict[str, Any]) -> dict[str, Any]:
    """The body of an event of version `v` as version `current`.

    Raises:
        KeyError: a step is missing, which is a bug of this version.
    """
    for version in range(v, current):
        body = STEPS[type_, version](body)
    return body
