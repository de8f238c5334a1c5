"""Reads arguments leniently where their meaning is unambiguous: `"1"` for an integer, one value for a list, JSON text
for an object.

Only a value whose type does not fit its schema is converted, and only if it has exactly one reading that fits. The
schema gate checks the outcome like any other arguments, and records it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.protocol.untrusted import decode_exact

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS: dict[str, dict[str, bool | None]] = {
    "boolean": {"true": True, "false": False},
    "null": {"null": None},
}
_NAMES = {str: "text", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_MAX_VALUES = 10_000
_MAX_DEPTH = 48
_MAX_BRANCHES = 32
_MAX_NOTES = 8
_encode = msgspec.json.Encoder(order="sorted").encode


class Converted(msgspec.Struct, frozen=True):
    """A value in its only reading."""

    value: Any
    notes: tuple[str, ...] = ()
    """What was read as what, by path, without the values. Empty if nothing was converted."""


class _TooMuch(Exception):
    """The value has too many parts to be read leniently."""


def converted(schema: Mapping[str, Any], value: Any) -> Converted | None:
    """Return the value as its schema means it; None if nothing can be converted. The caller checks the outcome."""
    try:
        found = _Reader(schema).read(schema, value, "", 0)
    except _TooMuch:
        return None
    if len(found.notes) > _MAX_NOTES:
        rest = len(found.notes) - _MAX_NOTES
        return Converted(found.value, (*found.notes[:_MAX_NOTES], f"{rest} more in the same way"))
    return found if found.notes else None


class _Reader:
    """Reads the values of one call. It gives up after a fixed amount of work."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MAX_VALUES
        self._kinds: dict[int, set[str]] = {}
        """The types of the branches that were met, by identity: one may list many options."""

    def read(self, schema: Any, value: Any, path: str, depth: int, *, is_whole: bool = True) -> Converted:
        """Return the only reading of a value, or the value itself.

        Args:
            is_whole: The model wrote the value in this place. A part of a JSON text, or what becomes the only item
                of a list, is not converted in these ways again.
        """
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise _TooMuch
        branches = self._branches(schema)
        fitting = [branch for branch in branches if _kind(value) in self._kinds_of(branch)]
        if len(fitting) == 1:
            return self._inside(fitting[0], value, path, depth, is_whole=is_whole)
        if fitting:
            return Converted(value)
        readings = [each for branch in branches for each in self._as(branch, value, path, depth, is_whole)]
        different = {_encode(each.value): each for each in readings}
        return next(iter(different.values())) if len(different) == 1 else Converted(value)

    def _as(
        self, branch: Mapping[str, Any], value: Any, path: str, depth: int, is_whole: bool
    ) -> Iterator[Converted]:
        """Yield the readings of a value as one of the types of a branch."""
        kinds = self._kinds_of(branch)
        if isinstance(value, str):
            for kind in kinds:
                yield from (Converted(each, (_note(path, value, kind),)) for each in _scalars(kind, value))
            decoded = _decoded(value) if is_whole and kinds & {"object", "array"} else None
            if decoded is not None and _kind(decoded) in kinds:
                inner = self._inside(branch, decoded, path, depth, is_whole=False)
                yield Converted(
                    inner.value, (_note(path, value, f"JSON of an {_kind(decoded)}"), *inner.notes)
                )
        if "array" in kinds and is_whole and not isinstance(value, list) and value not in ("", None):
            items = branch.get("items", True)
            item = self.read(items, value, path, depth + 1, is_whole=False)
            if any(_kind(item.value) in self._kinds_of(each) for each in self._branches(items)):
                yield Converted([item.value], (*item.notes, _note(path, value, "the only item of an array")))

    def _inside(
        self, branch: Mapping[str, Any], value: Any, path: str, depth: int, *, is_whole: bool
    ) -> Converted:
        """Return an object or a list with its parts read; any other value as it is."""
        notes: list[str] = []

        def part(schema: Any, each: Any, step: str) -> Any:
            found = self.read(schema, each, f"{path}{step}", depth + 1, is_whole=is_whole)
            notes.extend(found.notes)
            return found.value

        if isinstance(value, dict):
            properties, others = branch.get("properties", {}), branch.get("additionalProperties", True)
            value = {
                name: part(properties.get(name, others), each, f".{name}") for name, each in value.items()
            }
        elif isinstance(value, list):
            places, others = branch.get("prefixItems", ()), branch.get("items", True)
            value = [
                part(places[at] if at < len(places) else others, each, f"[{at}]")
                for at, each in enumerate(value)
            ]
        return Converted(value, tuple(notes))

    def _kinds_of(self, branch: Mapping[str, Any]) -> set[str]:
        known = self._kinds.get(id(branch))
        if known is None:
            known = self._kinds[id(branch)] = _kinds(branch)
        return known

    def _branches(self, schema: Any) -> list[Mapping[str, Any]]:
        """Return the alternatives of a schema, with references followed."""
        found: list[Mapping[str, Any]] = []
        rest = [schema]
        for _ in range(_MAX_BRANCHES):
            if not rest:
                return found
            each = rest.pop(0)
            if not isinstance(each, Mapping):
                found.append(_ANYTHING)
            elif isinstance(ref := each.get("$ref"), str):
                rest.append(self._target(ref))
            elif isinstance(among := each.get("anyOf", each.get("oneOf")), list):
                rest += among
            else:
                found.append(each)
        raise _TooMuch

    def _target(self, ref: str) -> Any:
        node: Any = self._root
        for name in ref.removeprefix("#").split("/")[1:]:
            node = node.get(name, True) if isinstance(node, Mapping) else True
        return node if ref.startswith("#") else True


def _kinds(branch: Mapping[str, Any]) -> set[str]:
    """Return the types that a branch allows."""
    told = branch.get("type")
    if told is None:
        options = branch["enum"] if "enum" in branch else [branch["const"]] if "const" in branch else None
        return {_kind(each) for each in options} if isinstance(options, list) else _ALL
    kinds = {told} if isinstance(told, str) else set(told)
    return kinds | {"integer"} if "number" in kinds else kinds


_ANYTHING: Mapping[str, Any] = {}
_ALL = {"string", "integer", "number", "boolean", "null", "array", "object"}


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer():
        return "integer"
    kind = _NAMES[type(value)]
    return "string" if kind == "text" else kind


def _scalars(kind: str, text: str) -> Iterator[Any]:
    match kind:
        case "integer" if _INTEGER.fullmatch(text):
            yield int(text)
        case "number" if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            yield int(text) if _INTEGER.fullmatch(text) else float(text)
        case "boolean" | "null" if text.casefold() in _LITERALS[kind]:
            yield _LITERALS[kind][text.casefold()]


def _decoded(text: str) -> dict[str, Any] | list[Any] | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = decode_exact(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return value if isinstance(value, dict | list) else None


def _note(path: str, value: object, reading: str) -> str:
    place = f"`{path.lstrip('.')}`" if path else "the arguments"
    return f"{place}: {_NAMES.get(type(value), 'null')} read as {reading}"
