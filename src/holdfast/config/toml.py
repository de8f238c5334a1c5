"""Reads one TOML file into dotted keys, each with its line. It does not know the meaning of keys."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.config.files import Missing, Unreadable, read_file

Dotted = tuple[str, ...]

FILE_MAX_BYTES = 1_000_000
DEPTH_MAX = 20
"""Deeper nesting than any key has."""
_SEGMENTS_MAX = 100
"""The most segments of a dotted key: the cost of reading one grows with the square of them."""
_ONE_SEGMENT = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.){0,200}"|'[^'\n]*')[ \t]*\.[ \t]*"""
_TOO_MANY_SEGMENTS = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_ONE_SEGMENT}){{{_SEGMENTS_MAX}}}")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_MULTILINE_QUOTES = ('"""', "'''")


class Entry(NamedTuple):
    """One value of a file."""

    key: Dotted
    value: Any
    lines: tuple[int, ...]
    """The line where each part of the key is first named: the sections around the value, then the value; 0 if
    unknown.
    """


class Table(NamedTuple):
    """The content of one file."""

    entries: list[Entry]
    """The entries of the file in order, with tables resolved into dotted keys."""
    sha256: str
    """The hash of exactly the bytes that were read."""


class NotToml(Exception):
    """The file is not valid TOML. The message names it and the line."""


def read_toml(path: Path) -> Table | None:
    """Return the values of a file; None if there is no such file.

    Raises:
        NotToml: it is not a regular file, not readable, too large, not UTF-8 or not TOML.
    """
    try:
        raw = read_file(path, FILE_MAX_BYTES)
    except Missing:
        return None
    except Unreadable as error:
        raise NotToml(f"{path}: {error}") from None
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotToml(f"{path}:{line}: is not UTF-8 text") from None
    if found := _TOO_MANY_SEGMENTS.search(content):
        line = content.count("\n", 0, found.start()) + 1
        raise NotToml(f"{path}:{line}: names a key of more than {_SEGMENTS_MAX} segments")
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(_at_line(path, str(error))) from None
    except RecursionError:
        raise NotToml(f"{path}: is nested too deeply") from None
    except ValueError:  # with thousands of digits
        raise NotToml(f"{path}: has a number that is too long") from None
    return Table(flatten(table, _lines(content)), hashlib.sha256(raw).hexdigest())


def flatten(table: Mapping[str, Any], lines: Mapping[Dotted, int] | None = None) -> list[Entry]:
    """Return the values of nested tables with their dotted keys. An empty table is a value itself, and so is a table
    that is nested deeper than any key.
    """
    return list(_flatten((), table, lines or {}))


def _flatten(above: Dotted, table: Mapping[str, Any], lines: Mapping[Dotted, int]) -> Iterator[Entry]:
    for name, value in table.items():
        key = (*above, str(name))
        if isinstance(value, Mapping) and value and len(key) < DEPTH_MAX:
            yield from _flatten(key, value, lines)
        else:
            yield Entry(key, value, _lines_of(key, lines))


def _lines_of(key: Dotted, lines: Mapping[Dotted, int]) -> tuple[int, ...]:
    """Return the line of each part. A value in an inline table has the line of that table."""
    found: list[int] = []
    line = 0
    for depth in range(1, len(key) + 1):
        line = lines.get(key[:depth], line)
        found.append(line)
    return tuple(found)


def _lines(content: str) -> dict[Dotted, int]:
    """Return the line where each key and table, and each table around it, is first named. The text is valid TOML."""
    lines: dict[Dotted, int] = {}
    table: Dotted = ()
    closing = ""
    for number, line in enumerate(content.splitlines(), start=1):
        if closing:
            closing = "" if closing in line else closing
            continue
        stripped = line.strip()
        if stripped.startswith("["):
            named = table = _dotted(stripped.lstrip("["), "]") or table
        elif key := _dotted(stripped, "="):
            named = (*table, *key)
            closing = next((quotes for quotes in _MULTILINE_QUOTES if line.count(quotes) == 1), "")
        else:
            continue
        for depth in range(1, min(len(named), DEPTH_MAX) + 1):
            lines.setdefault(named[:depth], number)
    return lines


def _dotted(line: str, end: str) -> Dotted:
    """Return the dotted key at the beginning of the line, up to `end`; empty without one."""
    segments: list[str] = []
    at = 0
    while match := _PART.match(line, at):
        segments.append(next(each for each in match.groups() if each is not None))
        at = match.end()
        if line.startswith(end, at):
            return tuple(segments)
        if not line.startswith(".", at):
            return ()
        at += 1
    return ()


def _at_line(path: Path, message: str) -> str:
    match = re.search(r"\(at line (\d+), column (\d+)\)", message)
    if not match:
        return f"{path}: is not valid TOML: {message}"
    what = message[: match.start()].strip()
    return f"{path}:{match[1]}: is not valid TOML: {what} (column {match[2]})"
