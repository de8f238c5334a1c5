"""Judges how a value looks: random like a key, or invented to show where a key would be.

It does not look at the value's place.
"""

from __future__ import annotations

from itertools import pairwise
from operator import ne

COUNTED_MIN_CHARS = 12
"""A run like `abcdef` or `123456` of this length is not random."""

_COUNTED = "".join(map(chr, range(128))) + " 567890123456789012345"
"""Whatever counts up, in ASCII."""
_SEEN_CHARS = 256
"""A longer value is judged by its beginning."""
_DISTINCT_MIN = 7
_SEPARATORS_SHARE = 0.15
_CHANGES_SHARE = 0.4
"""Neighbours of different kinds, if both cases are used: six of ten in random text, one or two in words."""
_DIGITS_SHARE = 0.1
"""The least share of digits, if only one case is used: three of ten in random text."""


def is_specimen(value: str) -> bool:
    """Return whether the value only shows its shape."""
    lowered = value.lower()
    return "xxxx" in lowered or lowered.endswith("example") or "..." in value


def is_counted(value: str) -> bool:
    """Return whether a long part of the value only counts up."""
    lowered = value[:_SEEN_CHARS].lower()
    half = COUNTED_MIN_CHARS // 2
    if value.isascii() and not any(
        lowered[at : at + half] in _COUNTED for at in range(0, len(lowered), half)
    ):
        return False  # a whole half of such a run would be among these
    run = 1
    for one, next_one in pairwise(lowered):
        run = run + 1 if ord(next_one) - ord(one) == 1 or one + next_one == "90" else 1
        if run >= COUNTED_MIN_CHARS:
            return True
    return False


def is_drawn(value: str) -> bool:
    """Return whether the value may be random: not words, not a sample, nothing that counts up or repeats."""
    value = value[:_SEEN_CHARS]
    lowered = value.lower()
    if "example" in lowered or len(set(lowered)) < _DISTINCT_MIN or is_counted(value):
        return False
    length = len(value)
    separators = 0 if value.isalnum() else sum(not character.isalnum() for character in value)
    if separators > length * _SEPARATORS_SHARE:
        return False
    if value in (lowered, value.upper()):
        return sum(map(str.isdigit, value)) >= length * _DIGITS_SHARE
    kinds = value.translate(_KINDS)
    changes: int = sum(map(ne, kinds, kinds[1:]))
    return changes >= (length - 1) * _CHANGES_SHARE


def _kind(character: str) -> str:
    return str(character.isalpha() + 2 * character.isupper() + 4 * character.isdigit())


_KINDS = {code: _kind(chr(code)) for code in range(0x250)}
"""Of the letters of Latin scripts. Elsewhere, each character is a kind of its own."""
