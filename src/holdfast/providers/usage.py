"""The tokens of a call as its server reports them, read without trust: missing, as text, in fractions, or absurd.

What stands for a part that is not plainly reported is the core's business (`core.budget`).
"""

from __future__ import annotations

import math

import msgspec

from holdfast.protocol.messages import Estimated, Usage, UsagePart

TOKENS_MAX = 10**9
"""No call has as many: a server that says so errs."""


class Reported(msgspec.Struct, frozen=True):
    """What a server said so far."""

    usage: Usage = Usage()
    estimated: Estimated = ("input", "output")
    """The parts that it did not name, or not as a plain number."""


NOTHING_REPORTED = Reported()


class Count(msgspec.Struct, frozen=True):
    """A number of tokens, and whether it was written as one."""

    tokens: int = 0
    is_plain: bool = False


_NO_COUNT = Count()


def count(value: object) -> Count:
    """The number of tokens that a server wrote: a fraction is rounded up, and what no call can have is none."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return _NO_COUNT
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return _NO_COUNT  # Python would take both for numbers
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _NO_COUNT
    if not 0 <= number < TOKENS_MAX:
        return _NO_COUNT
    return Count(math.ceil(number), not isinstance(value, str) and number.is_integer())


def plain(value: object) -> int:
    """The number where it is written as one, else 0: for counts that make a call cheaper, or are only shown."""
    counted = count(value)
    return counted.tokens if counted.is_plain else 0


def reported(usage: Usage, read: Count, written: Count) -> Reported:
    """The usage, marked where the counts of what was read and written are no plain numbers."""
    parts: tuple[tuple[UsagePart, Count], ...] = (("input", read), ("output", written))
    return Reported(usage, tuple(part for part, counted in parts if not counted.is_plain))
