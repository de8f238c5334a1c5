"""Describes a Python function to the model: a JSON Schema of its parameters, and text from its docstring.

`annotations` reads the types and `docstrings` the text. `function` calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.protocol.tools import ParameterKind
from holdfast.protocol.trust import Trust
from holdfast.tools.annotations import check_words, described, hoisted, plain_default, schema_of, words_of
from holdfast.tools.context import deps_of, is_context
from holdfast.tools.docstrings import docstring

_SHAPE = "Arguments_of_a_call"
_KINDS: tuple[ParameterKind, ...] = tuple(each for each in get_args(ParameterKind) if each != "patch")
TOOL_TRUST: tuple[Trust, ...] = ("data", "untrusted")
"""The trust that a function may declare for its result. It never has the trust of a person or of the model."""
_PRIVACY: Mapping[str, bool] = {"private": True, "public": False}
"""Whether its result shows what is not meant for others, as it may declare."""


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a function."""

    schema: dict[str, Any]
    description: str
    shape: type[msgspec.Struct]
    """Convert plain arguments to the annotated types."""
    rest: Any
    """Convert all further arguments, as `**name` is annotated. Without `**name`, a call has no further ones."""
    context_name: str
    """The parameter that takes the `Context`; empty if the function has none."""
    deps: Any
    """What the context's deps must be; `Any` if it does not matter."""
    kinds: dict[str, ParameterKind]
    """What the parameters mean to the gates, from `Annotated[str, "path"]`."""
    trust: Trust | None
    """The trust of the result, from `-> Annotated[str, "untrusted"]`; None if it is not declared."""
    is_private: bool | None
    """Whether the result is private, from `-> Annotated[str, "private"]` or `"public"`; None: not declared."""


def describe(function: Callable[..., object]) -> Signature:
    """Describe a function by its annotations and its docstring.

    The first paragraph of the docstring is the description. Its parameters may be described in Google, NumPy or
    Sphinx style, or with a text in `Annotated`, which comes first.

    Raises:
        TypeError: a parameter cannot be described. The message says which and why.
    """
    name = getattr(function, "__name__", repr(function))
    hints = _hints(function, name)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, object] = {}
    context_name, rest, deps = "", None, Any
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            rest = dict[str, described(hints.get(parameter.name, Any), _KINDS)]  # type: ignore[misc]
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: {parameter} cannot be described to a model; give each argument a name")
        if parameter.name not in hints:
            raise TypeError(f"{name}: the parameter {parameter.name!r} needs a type")
        hint = hints[parameter.name]
        if is_context(hint):
            if context_name:
                raise TypeError(
                    f"{name}: {context_name} and {parameter.name} are both a Context; one is enough"
                )
            context_name, deps = parameter.name, deps_of(hint)
            continue
        plain = described(hint, _KINDS)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, plain))
        else:
            fields.append((parameter.name, plain, msgspec.field(default_factory=dict)))
            defaults[parameter.name] = parameter.default
    summary, about = docstring(function)
    shape = msgspec.defstruct(_SHAPE, fields, kw_only=True, forbid_unknown_fields=True)
    schema, kinds = _schema(shape, rest, name, about, defaults), _kinds(hints, name)
    trust, is_private = _declared(hints.get("return"), name)
    return Signature(schema, summary, shape, rest or dict, context_name, deps, kinds, trust, is_private)


def _hints(function: Callable[..., object], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: a type was not found ({error}); define it at module level") from None


def _kinds(hints: dict[str, Any], name: str) -> dict[str, ParameterKind]:
    found: dict[str, ParameterKind] = {}
    for parameter, hint in hints.items():
        if parameter != "return":
            check_words(hint, _KINDS, f"{name}: {parameter}")
            said = [*words_of(hint)]
            if kind := next((each for each in _KINDS if each in said), None):
                found[parameter] = kind
    return found


def _declared(hint: Any, name: str) -> tuple[Trust | None, bool | None]:
    """Return what a function declares about its result."""
    said, known = [*words_of(hint)], (*TOOL_TRUST, *_PRIVACY)
    for word in said:
        if word not in known:
            raise TypeError(
                f"{name}: its result has the annotation {word!r}, which is not one of {', '.join(known)}"
            )
    trust = next((trust for trust in TOOL_TRUST if trust in said), None)
    return trust, next((value for word, value in _PRIVACY.items() if word in said), None)


def _schema(
    shape: type[msgspec.Struct], rest: Any, name: str, about: dict[str, str], defaults: dict[str, object]
) -> dict[str, Any]:
    try:
        (_, others), found = msgspec.json.schema_components([shape, rest or dict], schema_hook=schema_of)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: a parameter's type has no JSON Schema: {error}") from None
    definitions = {each: schema for each, schema in found.items() if each != shape.__name__}
    own: dict[str, Any] = hoisted(found[shape.__name__], definitions)
    for each in [*definitions]:
        definitions[each] = hoisted(definitions[each], definitions)
    own.pop("title", None)
    if rest is not None:
        own["additionalProperties"] = hoisted(others, definitions).get("additionalProperties", True)
    for parameter, default in defaults.items():
        with suppress(TypeError, ValueError, NotImplementedError):  # the function fills in what JSON lacks
            own["properties"][parameter] |= {"default": plain_default(default)}
    for parameter, text in about.items():
        if parameter in own["properties"]:
            own["properties"][parameter] = {"description": text, **own["properties"][parameter]}
    return {**own, "$defs": definitions} if definitions else own
