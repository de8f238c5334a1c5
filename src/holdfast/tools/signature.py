"""Describes a Python function to the model: a JSON Schema of its parameters, and text from its docstring.

`function` calls it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from holdfast.protocol.ports import CallContext
from holdfast.protocol.tools import ParameterKind
from holdfast.protocol.trust import Trust

_ARGS_HEADING = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_ARGS_ENTRY = re.compile(r"^(\s+)(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


_SHAPE = "Arguments_of_a_call"
_KINDS: tuple[ParameterKind, ...] = get_args(ParameterKind)
TOOL_TRUST: tuple[Trust, ...] = ("data", "untrusted")
"""The trust that a function may declare for its result. It never has the trust of a person or of the model."""
W = TypeVar("W", bound=str)


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a function."""

    schema: dict[str, Any]
    description: str
    shape: type[msgspec.Struct]
    """Convert plain arguments to the annotated types."""
    rest: Any
    """Convert all further arguments, as `**name` is annotated. Without `**name` there are none."""
    context_name: str
    """The parameter that takes a `CallContext`; empty if there is none."""
    kinds: dict[str, ParameterKind]
    """What the parameters mean to the gates, from `Annotated[str, "path"]`."""
    trust: Trust | None
    """The trust of the result, from `-> Annotated[str, "untrusted"]`; None if it is not declared."""


def describe(function: Callable[..., object]) -> Signature:
    """Describe a function by its annotations and its docstring.

    The first paragraph of the docstring is the description. Its `Args:` section describes the parameters.

    Raises:
        TypeError: a parameter cannot be described. The message says which and why.
    """
    name = getattr(function, "__name__", repr(function))
    hints = _hints(function, name)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context_name, rest = "", None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            rest = dict[str, hints.get(parameter.name, Any)]  # type: ignore[misc]  # known only now
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: {parameter} cannot be described to a model; give each argument a name")
        if parameter.name not in hints:
            raise TypeError(f"{name}: the parameter {parameter.name!r} needs a type")
        hint = hints[parameter.name]
        if hint is CallContext:
            context_name = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    summary, about = _docstring(function)
    shape = msgspec.defstruct(_SHAPE, fields, kw_only=True, forbid_unknown_fields=True)
    schema, kinds = _schema(shape, rest, name, about), _kinds(hints, name)
    trust = next(iter(_said(hints.get("return"), TOOL_TRUST, f"{name}: its result")), None)
    return Signature(schema, summary, shape, rest or dict, context_name, kinds, trust)


def _hints(function: Callable[..., object], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: a type was not found ({error}); define it at module level") from None


def _kinds(hints: dict[str, Any], name: str) -> dict[str, ParameterKind]:
    found = {
        parameter: list(_said(hint, _KINDS, f"{name}: {parameter}"))
        for parameter, hint in hints.items()
        if parameter != "return"
    }
    return {parameter: kinds[-1] for parameter, kinds in found.items() if kinds}


def _said(hint: Any, words: tuple[W, ...], subject: str) -> Iterator[W]:
    """Return which of the words an annotation contains, anywhere in the type: in a list's items, in a union's
    members.
    """
    for word in getattr(hint, "__metadata__", ()):
        if word in words:
            yield word
        elif isinstance(word, str):
            raise TypeError(f"{subject} has the annotation {word!r}, which is not one of {', '.join(words)}")
    for inner in get_args(hint):
        yield from _said(inner, words, subject)


def _default(value: object) -> Any:
    """Return the default for the schema. The function itself fills in what the model left out."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return msgspec.field(default_factory=lambda: value)


def _schema(shape: type[msgspec.Struct], rest: Any, name: str, about: dict[str, str]) -> dict[str, Any]:
    try:
        (_, others), definitions = msgspec.json.schema_components([shape, rest or dict])
    except TypeError as error:
        raise TypeError(f"{name}: a parameter's type has no JSON Schema: {error}") from None
    own: dict[str, Any] = definitions.pop(shape.__name__)
    own.pop("title", None)
    if rest is not None:
        own["additionalProperties"] = others.get("additionalProperties", True)
    for parameter, text in about.items():
        if parameter in own["properties"]:
            own["properties"][parameter] = {**own["properties"][parameter], "description": text}
    return {**own, "$defs": definitions} if definitions else own


def _docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph as one line, and the texts of the `Args:` section by parameter."""
    text = inspect.getdoc(function) or ""
    summary = " ".join(text.split("\n\n", 1)[0].split())
    about: dict[str, str] = {}
    current, indent, is_in_section = "", "", False
    for line in text.splitlines():
        if _ARGS_HEADING.match(line):
            is_in_section = True
        elif is_in_section and line and not line[0].isspace():
            break
        elif is_in_section and (entry := _ARGS_ENTRY.match(line)) and indent in ("", entry[1]):
            indent, current = entry[1], entry[2]
            about[current] = entry[3]
        elif is_in_section and current and line.strip():
            about[current] = f"{about[current]} {line.strip()}".strip()
    return summary, about
