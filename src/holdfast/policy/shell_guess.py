"""Guesses what an expansion of a shell becomes: `${NAME:-.env}`, `${name/x/y}`.

A word with one stays unknown, so no guess loosens a verdict. It only shows files that the text names in this way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase, translate
from types import MappingProxyType

from holdfast.policy.simple import Word

_PARTS = re.compile(
    r"\$\{(!?)([A-Za-z_]\w*)(?:\[[0-9@*]+\])?(:?[-+=?]|##?|%%?|//?|:|\^\^?|,,?|)(.*)\}", re.ASCII | re.DOTALL
)
_MAX_CHARS = 120
"""A longer expansion or value is not looked at."""
_SLICE = re.compile(r" *(-?[0-9]+)(?:: *(-?[0-9]+))?")


def guess(text: str, value_of: Callable[[str], Word | None]) -> str:
    """Return what an expansion most likely becomes; empty if nothing says it.

    Args:
        text: The expansion, with `${` and `}`.
        value_of: Returns the value of a variable, if it is known.
    """
    found = _PARTS.fullmatch(text)
    if found is None or len(text) > _MAX_CHARS:
        return ""
    is_indirect, name, operator, rest = found.groups()
    word = value_of(name)
    if is_indirect and word is not None:
        word = value_of(word.text)
    value = word.text if word is not None and word.is_known else ""
    if operator.lstrip(":") in ("-", "=", "?"):
        return value or rest
    if operator.lstrip(":") == "+":
        return rest
    return _changed(value, operator, rest) if len(value) <= _MAX_CHARS else ""


def _changed(value: str, operator: str, rest: str) -> str:
    if operator in _CASES:
        return _CASES[operator](value)
    match operator[:1]:
        case "#":
            ends = [at for at in range(len(value) + 1) if fnmatchcase(value[:at], rest)]
            return value[(ends[0] if operator == "#" else ends[-1]) :] if ends else value
        case "%":
            starts = [at for at in range(len(value) + 1) if fnmatchcase(value[at:], rest)]
            return value[: starts[-1] if operator == "%" else starts[0]] if starts else value
        case "/":
            return _replaced(value, rest, is_once=operator == "/")
        case ":":
            at = _SLICE.fullmatch(rest)
            value = value[int(at[1]) if at else 0 :]
            return value[: int(at[2])] if at and at[2] else value
        case _:
            return value


def _replaced(value: str, rest: str, *, is_once: bool) -> str:
    pattern, _, new = rest.partition("/")
    if not pattern:
        return value
    return re.sub(
        translate(pattern).removesuffix("\\Z").removesuffix("\\z"), lambda _: new, value, count=is_once
    )


_CASES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "^": lambda value: value[:1].upper() + value[1:],
        "^^": str.upper,
        ",": lambda value: value[:1].lower() + value[1:],
        ",,": str.lower,
    }
)
