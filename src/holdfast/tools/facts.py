"""What the rules judge about a call, found out from its arguments and from the disk.

Only the parameters that the tool's spec declares are read as paths, commands or URLs. Deciding is `policy`'s.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.policy.rules import Facts, PathFact
from holdfast.protocol.limits import Settings
from holdfast.protocol.tools import ParameterKind, ToolSpec
from holdfast.tools.workspace import PathRefused, resolve


def facts_of(spec: ToolSpec, values: dict[str, Any], settings: Settings) -> Facts:
    """All that the rules look at, for a call with arguments that passed the schema."""
    paths = [*_named(spec, values, "path"), *map(_path_in, _named(spec, values, "url"))]
    return Facts(
        tool=spec.name,
        effect=spec.effect,
        autonomy=settings.autonomy,
        workspace=settings.workspace,
        allow_tools=settings.allow_tools,
        deny_tools=settings.deny_tools,
        paths=tuple(_path_fact(settings.workspace, path) for path in paths if path is not None),
        commands=tuple(commands_of(spec, values)),
    )


def commands_of(spec: ToolSpec, values: dict[str, Any]) -> Iterator[str]:
    """The texts that a shell, or the program itself, would take as commands. A list of words may be one command."""
    for value in _declared(spec, values, "command"):
        yield from texts(value)
        if isinstance(value, list):
            yield shlex.join(texts(value))


def timeout_of(spec: ToolSpec, values: dict[str, Any]) -> float:
    """How long the call may take, in seconds."""
    said = (value for value in _declared(spec, values, "timeout") if isinstance(value, int | float))
    return float(min(said, default=spec.timeout_s))


def texts(value: object) -> Iterator[str]:
    """Every text in decoded JSON."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from texts(item)


def _named(spec: ToolSpec, values: dict[str, Any], kind: ParameterKind) -> Iterator[str]:
    for value in _declared(spec, values, kind):
        yield from texts(value)


def _declared(spec: ToolSpec, values: dict[str, Any], kind: ParameterKind) -> Iterator[Any]:
    """The arguments of that kind. One that is left out counts as its default."""
    properties = spec.parameters.get("properties", {})
    for name, its_kind in spec.kinds.items():
        if its_kind != kind:
            continue
        if name in values:
            yield values[name]
        elif isinstance(schema := properties.get(name), dict) and "default" in schema:
            yield schema["default"]


def _path_in(url: str) -> str | None:
    """The path that a `file:` URL stands for; None for every other URL."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme.casefold() == "file" else None


def _path_fact(workspace: str, given: str) -> PathFact:
    try:
        return PathFact(given, resolve(workspace, given))
    except PathRefused as refusal:
        return PathFact(given, "", str(refusal))
    except OSError as error:
        return PathFact(given, "", f"{given} cannot be reached: {error.strerror or error}.")
