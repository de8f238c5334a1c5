"""Reads what a docstring says about a function and its parameters, in Google, NumPy or Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from itertools import takewhile

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?:(?:\s+(.*))?")
_NUMPY = re.compile(r"(?:Other )?Parameters")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_RULE = re.compile(r"-{3,}")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
_FIELD = re.compile(r":\w+[^:]*:(?:\s|$)")


def docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph as one line, and what is said about each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    about: dict[str, str] = {}
    for name, words in (*_google(lines), *_numpy(lines), *_sphinx(lines)):
        text = " ".join(word for line in words for word in line.split())
        if text:
            about.setdefault(name, text)
    return " ".join(" ".join(_summary(lines)).split()), about


def _summary(lines: list[str]) -> Iterator[str]:
    for at, line in enumerate(lines):
        is_heading = bool(_GOOGLE.fullmatch(line.strip())) or _is_ruled(lines, at)
        if not line.strip() or is_heading or _FIELD.match(line):
            return
        yield line


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for at, line in enumerate(lines):
        if _GOOGLE.fullmatch(line.strip()):
            section = list(_deeper(lines[at + 1 :], _indent(line)))
            first = next(filter(str.strip, section), "")
            for place, each in enumerate(section):
                entry = _GOOGLE_ENTRY.fullmatch(each.strip())
                if entry is not None and _indent(each) == _indent(first):
                    yield entry[1], [entry[2] or "", *_deeper(section[place + 1 :], _indent(each))]


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for at, line in enumerate(lines):
        if not (_NUMPY.fullmatch(line.strip()) and _is_ruled(lines, at)):
            continue
        rest = lines[at + 2 :]
        length = next((place for place in range(len(rest)) if _is_ruled(rest, place)), len(rest))
        for place, each in enumerate(rest[:length]):
            entry = _NUMPY_ENTRY.fullmatch(each.strip())
            if entry is not None and each.strip() and _indent(each) == _indent(line):
                words = list(_deeper(rest[place + 1 : length], _indent(each)))
                yield from ((name.strip().lstrip("*"), words) for name in entry[1].split(","))


def _sphinx(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    for at, line in enumerate(lines):
        if field := _SPHINX.fullmatch(line.strip()):
            more = takewhile(lambda each: each.strip() and not _FIELD.match(each.strip()), lines[at + 1 :])
            yield field[1], [field[2], *more]


def _deeper(lines: list[str], indent: int) -> Iterator[str]:
    """Yield the lines up to the first one that is indented no further."""
    return takewhile(lambda line: not line.strip() or _indent(line) > indent, lines)


def _is_ruled(lines: list[str], at: int) -> bool:
    """Return whether a line is a heading in NumPy style: underlined."""
    return bool(lines[at].strip()) and at + 1 < len(lines) and bool(_RULE.fullmatch(lines[at + 1].strip()))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
