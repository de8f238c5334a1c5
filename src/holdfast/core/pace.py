"""How many calls a session started lately: a sum over stretches of five minutes, so that it needs little room."""

from __future__ import annotations

from collections.abc import Sequence

STRETCH_MS = 300_000
_HOUR = 12
"""How many stretches an hour has."""

Starts = tuple[tuple[int, int], ...]
"""The number of a stretch, and how many calls started in it, oldest first."""


def after_start(starts: Starts, at_ms: int) -> Starts:
    """Return the starts with one more. What is older than an hour is dropped, and what a clock set back has left."""
    # An example: calls started at 12:01, 12:03 and 12:07. The stretches are those of 12:00 with two starts and of
    # 12:05 with one. At 13:06 the first two no longer count.
    now = at_ms // STRETCH_MS
    if starts and starts[-1][0] == now:
        return (*starts[:-1], (now, starts[-1][1] + 1))
    return (*[each for each in starts if now - _HOUR <= each[0] < now], (now, 1))


def started(starts: Sequence[tuple[int, int]], now_ms: int) -> int:
    """Return how many calls started within the last hour. The stretch in which it began counts as a whole."""
    now = now_ms // STRETCH_MS
    return sum([count for stretch, count in starts if now - _HOUR <= stretch <= now])
