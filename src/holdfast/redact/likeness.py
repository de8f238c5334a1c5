"""How a value looks: drawn by lot, as keys are, or made up by somebody who shows where a key would stand.

Where the value stands is not looked at here.
"""

from __future__ import annotations

from itertools import pairwise

COUNTED_MIN_CHARS = 12
"""A run like `abcdef` or `123456` of this length comes from nobody's lot."""

_SEEN_CHARS = 256
"""A longer value is judged by its beginning."""
_DISTINCT_MIN = 7
_SEPARATORS_SHARE = 0.15
_CHANGES_SHARE = 0.4
"""Of neighbours that differ in kind, where both cases are used: by lot six of ten, in words one or two."""
_DIGITS_SHARE = 0.1
"""With one case only: by lot three of ten."""


def is_specimen(value: str) -> bool:
    """Whether the value is there only to show its shape."""
    lowered = value.lower()
    return "xxxx" in lowered or lowered.endswith("example") or "..." in value


def is_counted(value: str) -> bool:
    """Whether a long stretch of the value only counts up."""
    run = 1
    for one, next_one in pairwise(value[:_SEEN_CHARS].lower()):
        run = run + 1 if ord(next_one) - ord(one) == 1 or one + next_one == "90" else 1
        if run >= COUNTED_MIN_CHARS:
            return True
    return False


def is_drawn(value: str) -> bool:
    """Whether the value may have been drawn by lot: no words, no specimen, nothing that counts up or repeats."""
    value = value[:_SEEN_CHARS]
    lowered = value.lower()
    if "example" in lowered or len(set(lowered)) < _DISTINCT_MIN or is_counted(value):
        return False
    length = len(value)
    if sum(not character.isalnum() for character in value) > length * _SEPARATORS_SHARE:
        return False
    if value in (value.lower(), value.upper()):
        return sum(map(str.isdigit, value)) >= length * _DIGITS_SHARE
    changes = sum(_kind(one) != _kind(next_one) for one, next_one in pairwise(value))
    return changes >= (length - 1) * _CHANGES_SHARE


def _kind(character: str) -> int:
    return character.isalpha() + 2 * character.isupper() + 4 * character.isdigit()
