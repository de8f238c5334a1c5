"""How the cost of something grows with its length, on a machine where others work too."""

from __future__ import annotations

import time
from collections.abc import Callable

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
        if often <= MOST * max(once, _LEAST_S):
            return True
    return False


def _cost_s(work: Callable[[int], object], length: int) -> float:
    began_s = time.process_time()
    work(length)
    return time.process_time() - began_s
