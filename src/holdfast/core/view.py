"""Decides which messages the next request carries if not all of them fit. The conversation encodes them.

The task of the open run always stays: the words that opened it, and what people said since. The last turns stay too,
as many as leave room to work. Calls stay together with their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.state import State

CUT_TO_SHARE = 0.6
"""The share of the window that is still filled after a cut. It is low enough that the next cut is many turns away."""


class Item(Protocol):
    """An encoded message of the conversation."""

    @property
    def mark(self) -> str:
        """The kind of the message, as in `request.Fresh`."""
        ...

    @property
    def seq(self) -> int:
        """The record that made the message whole."""
        ...

    @property
    def size(self) -> int:
        """The size of the message in bytes."""
        ...


def cut(items: Sequence[Item], state: State, other_bytes: int, fits: Callable[[int], bool]) -> list[int]:
    """Return the places of the messages that stay, in order. The task of the run always stays.

    Args:
        items: All messages that may be left out, in order.
        other_bytes: What stays in any case beside them.
        fits: Whether a body of so many bytes is within the window.
    """
    # An example: ten messages of 1,000 bytes each, and a window that takes 8,000 bytes. Message 3 is the task.
    # The cut must leave the window only 60 % full, which is 4,800 bytes. So the task and the last three
    # messages stay: a fourth would make 5,000. If the first of the three is a tool's result, it goes too,
    # because its call goes.
    goal_seq = state.run.goal_seq if state.run is not None else 0
    is_task = [item.mark == "u" and item.seq >= goal_seq for item in items]
    size = other_bytes + sum(item.size + 1 for item, stays in zip(items, is_task, strict=True) if stays)
    first = len(items)
    for place in range(len(items) - 1, -1, -1):
        if not is_task[place]:
            size += items[place].size + 1
        if not fits(int(size / CUT_TO_SHARE)):
            break
        if items[place].mark != "t":  # the results of calls do not stay without the calls
            first = place
    return [place for place, stays in enumerate(is_task) if stays or place >= first]
