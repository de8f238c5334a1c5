"""Gives the arguments of a text call the types that its schema names: many formats write everything as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.providers.text_blocks import RawCall, value_of

_MAX_DEPTH = 16
_MAX_TYPES = 64
_WRAPPERS = ("arguments", "input", "parameters")
_OTHER_NAMES = {"float": "number", "double": "number", "int": "integer", "bool": "boolean", "str": "string"}
"""What some schemas call a type."""
_PYTHON = {"True": True, "False": False, "None": None}


def fitted(call: RawCall, schema: Mapping[str, Any] | None) -> RawCall:
    """Return the call with typed arguments. Without a schema, a text is what it most plainly is."""
    properties = (schema or {}).get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    values = {_key(key, known): value for key, value in _unwrapped(call.arguments, known).items()}
    for key, value in values.items():
        if key in known:
            values[key] = _typed(value, known[key], 0)
        elif key in call.texts and isinstance(value, str):
            values[key] = _PYTHON.get(value.strip(), value_of(value))
    return RawCall(call.name, values)


def _unwrapped(arguments: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments. Some models put all of them, as one object, into an argument that there is not."""
    if len(arguments) == 1 and known and (only := next(iter(arguments))) in _WRAPPERS and only not in known:
        value = arguments[only]
        inner = value_of(value) if isinstance(value, str) else value
        if isinstance(inner, dict):
            return inner
    return arguments


def _key(key: str, known: Mapping[str, Any]) -> str:
    """Return the argument that a value without a name is: the only one there is."""
    return next(iter(known)) if not key and len(known) == 1 else key


def _typed(value: Any, schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return value
    types = _types_of(schema, depth)
    if isinstance(value, str):
        value = _meant(value, types)
    if isinstance(value, dict) and isinstance(schema.get("properties"), Mapping):
        return {key: _typed(each, schema["properties"].get(key), depth + 1) for key, each in value.items()}
    if isinstance(value, list) and "items" in schema:
        return [_typed(each, schema["items"], depth + 1) for each in value]
    return value


def _types_of(schema: Mapping[str, Any], depth: int) -> set[str]:
    """Return the types that a schema allows; none if it does not say."""
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {each for each in named or () if isinstance(each, str)}
    types = {_OTHER_NAMES.get(each, each) for each in types}
    for keyword in ("anyOf", "oneOf"):
        for each in (schema.get(keyword) or ())[:_MAX_TYPES]:
            if isinstance(each, Mapping) and depth < _MAX_DEPTH:
                types |= _types_of(each, depth + 1)
    for option in (schema.get("enum") or ())[:_MAX_TYPES]:
        if not named and isinstance(option, str):
            types.add("string")
    return types


def _meant(text: str, types: set[str]) -> Any:
    """Return what a text is, if one of the types says so; else the text."""
    plain = text.strip()
    value = _PYTHON.get(plain, value_of(plain)) if plain else text
    if isinstance(value, str):
        return text
    kinds = {"null"} if value is None else _kinds(value)
    return value if not types or kinds & types else text


def _kinds(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"integer", "number"} if value.is_integer() else {"number"}
    return {"object"} if isinstance(value, dict) else {"array"}
