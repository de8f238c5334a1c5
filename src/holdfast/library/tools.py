"""Reads the tools that a program gives to an agent, and the deps that it gives to their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, get_type_hints

from holdfast.app import App, built_in_specs
from holdfast.errors import UsageError
from holdfast.protocol.ports import Tool
from holdfast.tools.context import fits, shown
from holdfast.tools.function import FunctionTool


def distinct(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools, each once.

    Raises:
        UsageError: one is not a tool, two have the same name, or one has a built-in tool's name.
    """
    known: dict[str, Tool] = {}
    built_in = {spec.name for spec in built_in_specs()}
    for each in tools:
        if not hasattr(each, "spec"):
            hint = "Put @tool above its def. Name built-in tools as text."
            raise UsageError(f"{getattr(each, '__qualname__', repr(each))} is not a tool.", hint=hint)
        name = each.spec.name
        if known.setdefault(name, each) is not each:
            raise UsageError(f"there are two tools with the name {name!r}", hint="Rename one of them.")
        if name in built_in:
            hint = f"Rename yours. tools=[{name!r}] adds the built-in one."
            raise UsageError(
                f"there are two tools with the name {name!r}: one of them is built in", hint=hint
            )
    return list(known.values())


def built_in_names(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the built-in tools that the globs match, in the order in which a model sees them."""
    known = [spec.name for spec in built_in_specs()]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            near = get_close_matches(glob, known, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"There is no built-in tool {glob!r}.{guess}",
                hint=f"The built-in tools are: {', '.join(known)}.",
            )
    return tuple(name for name in known if any(fnmatchcase(name, glob) for glob in globs))


def check_deps(tools: Iterable[Tool], instructions: object, deps: object) -> None:
    """Check that the deps of a run are what each function needs.

    Raises:
        UsageError: they are missing, or of another class.
    """
    needs = [(f"The tool {each.spec.name!r}", each.deps) for each in tools if isinstance(each, FunctionTool)]
    if callable(instructions):
        needs.append(("The function for the instructions", _first_annotation(instructions)))
    for who, wanted in needs:
        if not fits(deps, wanted):
            given = "there are none" if deps is None else f"they are a {type(deps).__name__}"
            raise UsageError(
                f"{who} needs deps of the class {shown(wanted)}, but {given}. Pass them: run(..., deps=...).",
            )


def _first_annotation(function: Callable[..., object]) -> Any:
    """Return the annotation of a function's first parameter; `Any` if it cannot be read."""
    try:
        names, hints = list(inspect.signature(function).parameters), get_type_hints(function)
    except (NameError, TypeError, ValueError):
        return Any
    return hints.get(names[0], Any) if names else Any


@contextmanager
def lent(app: App, names: Iterable[str], deps: object) -> Iterator[None]:
    """Give the deps to the functions that run in the session, inside the block.

    Args:
        names: The id of the session, CHANNEL:CHAT, or both: a new one has no id yet.

    Raises:
        UsageError: another run of this program works there with other deps. A call has no way to tell whose it is.
    """
    lending = [] if deps is None else [name for name in names if name]
    for name in lending:
        if any(each is not deps for each in app.deps.get(name, ())):  # equal ones may be different
            raise UsageError(
                f"A run with other deps works in session {name}, so nothing was sent.",
                hint="Wait until it ends, or pass the same object as deps.",
            )
    for name in lending:
        app.deps.setdefault(name, []).append(deps)
    try:
        yield
    finally:
        for name in lending:
            app.deps[name].pop()
            if not app.deps[name]:
                del app.deps[name]
