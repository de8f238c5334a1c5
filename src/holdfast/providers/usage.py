"""Reads the token counts of an untrusted server: missing, as text, as fractions, or absurd.

The core fills in sides that are not plainly reported (`core.budget`).
"""

from __future__ import annotations

import math

import msgspec

from holdfast.protocol.messages import Estimated, Usage, UsageSide

TOKENS_MAX = 10**9
"""No request has as many tokens: such a count is wrong."""


class Reported(msgspec.Struct, frozen=True):
    """What a server has reported so far."""

    usage: Usage = Usage()
    estimated: Estimated = ("input", "output")
    """The sides that it did not report as a plain number."""


NOTHING_REPORTED = Reported()


class Count(msgspec.Struct, frozen=True):
    """A number of tokens, and whether it was a plain number."""

    tokens: int = 0
    is_plain: bool = False


_NO_COUNT = Count()


def count(value: object) -> Count:
    """Return the number of tokens that a server wrote. A fraction is rounded up; an absurd number is missing."""
    if type(value) is int:  # as nearly all write it
        return Count(value, True) if 0 <= value < TOKENS_MAX else _NO_COUNT
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return _NO_COUNT
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return _NO_COUNT  # Python would accept both as numbers
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _NO_COUNT
    if not 0 <= number < TOKENS_MAX:
        return _NO_COUNT
    return Count(math.ceil(number), not isinstance(value, str) and number.is_integer())


def plain(value: object) -> int:
    """Return the number if it is plain, otherwise 0: for counts that make a request cheaper, or are only shown."""
    if value is None:
        return 0
    counted = count(value)
    return counted.tokens if counted.is_plain else 0


def reported(usage: Usage, read: Count, written: Count) -> Reported:
    """Return the usage, marked if the counts of input and output are not plain numbers."""
    if read.is_plain and written.is_plain:
        return Reported(usage, ())
    sides: tuple[tuple[UsageSide, Count], ...] = (("input", read), ("output", written))
    return Reported(usage, tuple(side for side, counted in sides if not counted.is_plain))
