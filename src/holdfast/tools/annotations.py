"""Reads the annotations of a tool's parameters: schemas and conversion of types that msgspec does not know (paths,
pydantic's types), descriptions, and what a parameter means to the gates.

It never imports pydantic: code that annotates with its types has imported it.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_CLOSE = 0.7
"""How alike a single word and a known one are, if one was probably meant as the other."""


class _Adapted:
    """Stands in a shape for an annotation that a pydantic `TypeAdapter` describes and converts, and has a value."""

    adapter: Any

    def __init__(self, value: object) -> None:
        self.value = value


def words_of(hint: Any) -> Iterator[str]:
    """Yield the texts that an annotation contains, anywhere in the type: in a list's items, in a union's members."""
    yield from (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, str))
    if get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from words_of(inner)


def check_words(hint: Any, known: tuple[str, ...], subject: str) -> None:
    """Check that no text is a known word, misspelled: policy would not judge that parameter.

    Raises:
        TypeError: it probably is. The message says which word was meant.
    """
    for word in words_of(hint):
        near = get_close_matches(word.casefold(), known, n=1, cutoff=_CLOSE) if word not in known else []
        if near and len(word.split()) == 1:
            raise TypeError(
                f"{subject} has the annotation {word!r}: write {near[0]!r}, or describe it in several words"
            )


def described(hint: Any, known: tuple[str, ...]) -> Any:
    """Return the annotation as `msgspec` reads it: with texts as descriptions, and pydantic's types wrapped."""
    if _is_of_pydantic(hint):
        return _wrapped(hint, known)
    return _translated(hint, known)


def _translated(hint: Any, known: tuple[str, ...]) -> Any:
    if hint is datetime:
        return Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        plain = _translated(hint.__origin__, known)
        said = [_meta(each) for each in hint.__metadata__ if not isinstance(each, str) or each not in known]
        return Annotated[(plain, *said)] if said else plain
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, [_translated(each, known) for each in inner])
    if origin is None or origin is Literal or not inner or isinstance(inner[0], list):
        return hint
    translated = tuple(each if each is ... else _translated(each, known) for each in inner)
    if translated == inner:
        return hint
    return hint.copy_with(translated) if hasattr(hint, "copy_with") else origin[translated]


def _meta(said: Any) -> Any:
    return msgspec.Meta(description=said) if isinstance(said, str) else said


def _wrapped(hint: Any, known: tuple[str, ...]) -> Any:
    said = [each for each in words_of(hint) if each not in known]
    wrapper = type("Adapted", (_Adapted,), {"adapter": _adapter(hint)})
    return Annotated[wrapper, msgspec.Meta(description=said[0])] if said else wrapper


def _is_of_pydantic(hint: Any) -> bool:
    """Return whether the annotation contains one of pydantic's types or fields."""
    if any(
        type(each).__module__.partition(".")[0] == "pydantic" for each in getattr(hint, "__metadata__", ())
    ):
        return True
    if isinstance(hint, type) and _has_validator(hint):
        return True
    return any(_is_of_pydantic(each) for each in get_args(hint) if get_origin(hint) is not Literal)


def _has_validator(type_: type) -> bool:
    return hasattr(type_, "__pydantic_validator__") or hasattr(type_, "__get_pydantic_core_schema__")


def _adapter(hint: Any) -> Any:
    return sys.modules["pydantic"].TypeAdapter(hint)


# --- types that msgspec does not know -------------------------------------------------------------


def schema_of(type_: type) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not know. This is a schema hook of msgspec."""
    if issubclass(type_, PurePath):
        return {"type": "string"}
    adapter = _adapter_of(type_)
    if adapter is None:
        raise TypeError(f"JSON has nothing like the type {type_.__qualname__}")
    schema: dict[str, Any] = adapter.json_schema()
    return schema


def value_of(type_: type, value: Any) -> Any:
    """Return a value as a type that msgspec does not know. This is a decoding hook of msgspec."""
    if issubclass(type_, PurePath):
        return type_(value)
    adapter = _adapter_of(type_)
    if adapter is None:
        raise NotImplementedError
    try:
        made = adapter.validate_json(msgspec.json.encode(value))
    except ValueError as error:  # pydantic's own shows what was given, and an address of its documentation
        raise ValueError(_problems(error)) from None
    return type_(made) if issubclass(type_, _Adapted) else made


def typed(value: Any, type_: Any) -> Any:
    """Return a value that matches the schema of a type as that type.

    Raises:
        msgspec.ValidationError: it is not what the type takes: no date, refused by a validator.
    """
    try:
        return msgspec.convert(value, type_, dec_hook=value_of, str_keys=True)
    except msgspec.ValidationError:
        with suppress(msgspec.ValidationError):  # to the schema, 1.0 is an integer
            return msgspec.convert(_with_integers(value), type_, dec_hook=value_of, str_keys=True)
        raise


def _with_integers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_with_integers(each) for each in value]
        case dict():
            return {name: _with_integers(each) for name, each in value.items()}
    return value


def placed(error: msgspec.ValidationError) -> str:
    """Return what is wrong and where, as the schema gate says it: without msgspec's own path."""
    said, _, path = str(error).rpartition(" - at `")
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    return f"`{path}`: {said}" if said and path else said or str(error)


def unwrapped(value: object) -> Any:
    """Return a converted argument as the function takes it."""
    return value.value if isinstance(value, _Adapted) else value


def plain_default(value: object) -> Any:
    """Return the default of a parameter as the schema shows it. Raises what `msgspec` raises if JSON lacks it."""
    return msgspec.to_builtins(value, enc_hook=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise NotImplementedError


def _adapter_of(type_: type) -> Any:
    if issubclass(type_, _Adapted):
        return type_.adapter
    return _adapter(type_) if _has_validator(type_) else None


def _problems(error: ValueError) -> str:
    listed: Callable[..., list[dict[str, Any]]] | None = getattr(error, "errors", None)
    if listed is None:
        return str(error)
    told = listed(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in told[:5]
    )


def hoisted(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Return the schema without definitions inside, which move to `definitions`. References lead to the root."""
    inner = schema.get("$defs")
    if isinstance(inner, dict):
        names = {name: _free(name, each, definitions) for name, each in inner.items()}
        schema = {key: _renamed(each, names) for key, each in schema.items() if key != "$defs"}
        for name, each in inner.items():
            definitions[names[name]] = hoisted(_renamed(each, names), definitions)
    return {key: _hoisted_part(each, definitions) for key, each in schema.items()}


def _hoisted_part(part: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        return hoisted(part, definitions)
    return [_hoisted_part(each, definitions) for each in part] if isinstance(part, list) else part


def _free(name: str, schema: Any, definitions: dict[str, Any]) -> str:
    number, free = 1, name
    while free in definitions and definitions[free] != schema:
        number += 1
        free = f"{name}_{number}"
    return free


def _renamed(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, list):
        return [_renamed(each, names) for each in part]
    if not isinstance(part, dict):
        return part
    ref = part.get("$ref")
    name = ref.removeprefix("#/$defs/") if isinstance(ref, str) else ""
    changed = {key: _renamed(each, names) for key, each in part.items()}
    return {**changed, "$ref": f"#/$defs/{names[name]}"} if name in names else changed
