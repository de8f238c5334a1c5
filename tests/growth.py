"""How the cost of something grows with its length, on a machine where others work too."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

TIMES = 8
MOST = 3 * TIMES
"""How much more something so much longer may cost. With the square of its length, it costs 64 times as much."""
_LEAST_S = 0.0005
_TRIES = 8


def grows_in_line(work: Callable[[int], object], few: int) -> bool:
    """Return whether eight times the length costs about eight times the time of the processor: the least that was
    seen of each counts, and is looked for again only if it seems too much.
    """
    once = often = float("inf")
    for _ in range(_TRIES):
        once, often = min(once, _cost_s(work, few)), min(often, _cost_s(work, TIMES * few))
        if is_in_line(once, often):
            return True
    return False


def is_in_line(once_s: float, often_s: float) -> bool:
    """Return whether that is what something costs, and something eight times as long."""
    return often_s <= MOST * max(once_s, _LEAST_S)


async def least_s(work: Callable[[], Awaitable[object]]) -> float:
    """Return the least time of the processor that was seen."""
    costs = []
    for _ in range(_TRIES):
        began_s = time.process_time()
        await work()
        costs.append(time.process_time() - began_s)
    return min(costs)


def _cost_s(work: Callable[[int], object], length: int) -> float:
    began_s = time.process_time()
    work(length)
    return time.process_time() - began_s
