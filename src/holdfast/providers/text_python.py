"""Reads calls that are written like Python: `f(path='a', depth=2)`. Nothing is ever evaluated."""

from __future__ import annotations

import math
import re
from typing import Any

from holdfast.providers.text_blocks import Broken, Cut, RawCall, name_in, refuse_depth, skip_space

_NAME = re.compile(r"[^\W\d][\w.\-]*")
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{0,300})?(?:[eE][+-]?\d{1,3})?")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS: dict[str, Any] = {
    "True": True, "true": True, "False": False, "false": False, "None": None, "null": None,
}  # fmt: skip
_STRING_PART = re.compile(r"[^\\'\"]+|\\.|['\"]", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "0": "\0", "b": "\b"}
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


def calls_at(text: str, at: int) -> tuple[tuple[RawCall, ...], int]:
    """Return the calls of a list like `[f(x=1), g()]`, and the position after it."""
    at = _take(text, at, "[")
    calls: list[RawCall] = []
    while True:
        call, at = call_at(text, at)
        calls.append(call)
        mark, at = _mark(text, at)
        if mark == "]":
            return tuple(calls), at
        if mark != ",":
            raise Broken(at, "the list of calls is not closed")


def call_at(text: str, at: int) -> tuple[RawCall, int]:
    """Return one call, and the position after it."""
    at = skip_space(text, at)
    found = _NAME.match(text, at)
    if found is None:
        raise Cut if at == len(text) else Broken(at, "a call has no name")
    name = name_in(found[0], at)
    at = _take(text, found.end(), "(")
    arguments: dict[str, Any] = {}
    mark, after = _mark(text, at)
    if mark == ")":
        return RawCall(name, arguments), after
    while True:
        key, at = _key(text, at)
        if key in arguments:
            raise Broken(at, "an argument comes twice")
        arguments[key], at = _value(text, at, 0)
        mark, at = _mark(text, at)
        if mark == ")":
            return RawCall(name, arguments), at
        if mark != ",":
            raise Broken(at, "the arguments are not readable")


def _key(text: str, at: int) -> tuple[str, int]:
    at = skip_space(text, at)
    found = _NAME.match(text, at)
    if found is None:
        raise Cut if at == len(text) else Broken(at, "an argument has no name")
    return found[0], _take(text, found.end(), "=")


def _mark(text: str, at: int) -> tuple[str, int]:
    at = skip_space(text, at)
    if at == len(text):
        raise Cut
    return text[at], at + 1


def _take(text: str, at: int, mark: str) -> int:
    found, after = _mark(text, at)
    if found != mark:
        raise Broken(at, f"{mark} is missing")
    return after


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    refuse_depth(depth, at)
    mark, after = _mark(text, at)
    at = after - 1
    if mark in "'\"":
        return _string(text, after, mark)
    if mark in "[(":
        return _items(text, after, _CLOSERS[mark], depth)
    if mark == "{":
        return _braces(text, after, depth)
    number = _NUMBER.match(text, at)
    if number is not None:
        if number.end() == len(text):
            raise Cut
        return _number(number[0], at), number.end()
    word = _WORD.match(text, at)
    if word is not None and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    if word is not None and word.end() == len(text):
        raise Cut
    raise Broken(at, "a value is not readable")


def _number(written: str, at: int) -> int | float:
    value = float(written) if any(char in written for char in ".eE") else int(written)
    if isinstance(value, float) and not math.isfinite(value):
        raise Broken(at, "a number is too large")
    return value


def _string(text: str, at: int, quote: str) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        found = _STRING_PART.match(text, at)
        if found is None:
            raise Cut
        part, at = found[0], found.end()
        if part == quote:
            return "".join(parts), at
        if part[0] == "\\":
            part, at = _escape(text, part, at)
        parts.append(part)


def _escape(text: str, part: str, at: int) -> tuple[str, int]:
    if part[1] not in "xuU":
        return _ESCAPES.get(part[1], part), at
    digits = {"x": 2, "u": 4, "U": 8}[part[1]]
    written = text[at : at + digits]
    if len(written) < digits:
        raise Cut
    try:
        char = chr(int(written, 16))
        char.encode()
    except (ValueError, OverflowError):
        raise Broken(at, "an escape is not readable") from None
    return char, at + digits


def _items(text: str, at: int, closer: str, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        mark, after = _mark(text, at)
        if mark == closer:
            return items, after
        item, at = _value(text, at, depth + 1)
        items.append(item)
        mark, after = _mark(text, at)
        if mark == closer:
            return items, after
        if mark != ",":
            raise Broken(at, "a list is not closed")
        at = after


def _braces(text: str, at: int, depth: int) -> tuple[Any, int]:
    """Return a dict, or the items of a set."""
    members: dict[str, Any] = {}
    items: list[Any] = []
    while True:
        mark, after = _mark(text, at)
        if mark == "}":
            return items or members, after
        item, at = _value(text, at, depth + 1)
        mark, after = _mark(text, at)
        if mark == ":":
            if not isinstance(item, str) or item in members or items:
                raise Broken(at, "a key is not readable")
            members[item], at = _value(text, after, depth + 1)
            mark, after = _mark(text, at)
        elif members:
            raise Broken(at, "a key has no value")
        else:
            items.append(item)
        if mark == "}":
            return items or members, after
        if mark != ",":
            raise Broken(at, "an object is not closed")
        at = after
