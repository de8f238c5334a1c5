"""The tools of a runtime by name, in a stable order, with suggestions for wrong names.

`policy` decides which tools a run may use. The dispatcher calls them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.policy.rules import is_offered
from holdfast.protocol.ports import Tool
from holdfast.protocol.tools import TELLING, ToolSpec
from holdfast.tools.schema import closed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Registered(NamedTuple):
    """A tool, and its spec as it was registered, whatever the tool changed since."""

    tool: Tool
    spec: ToolSpec


class Registry:
    """The tools in the order given. Each spec is pinned.

    Raises:
        UsageError: a name is taken, or not every provider accepts it.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Registered] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises what the class raises."""
        spec = _pinned(tool.spec)
        if not _NAME.fullmatch(spec.name):
            raise UsageError(
                f"{spec.name!r} cannot be the name of a tool: use letters, digits, _ and -, at most 64 of them"
            )
        if spec.name in self._tools:
            raise UsageError(f"there are two tools with the name {spec.name!r}")
        if spec.effect == "tell" and spec.name not in TELLING:
            raise UsageError(f"the tool {spec.name!r} has the effect `tell`, which only Holdfast's own have")
        _check_kinds(spec)
        self._tools[spec.name] = Registered(tool, spec)

    def found(self, name: str) -> Registered | None:
        """Return the tool with exactly this name."""
        return self._tools.get(name)

    def specs(
        self, allow_tools: tuple[str, ...] = (), deny_tools: tuple[str, ...] = ()
    ) -> tuple[ToolSpec, ...]:
        """Return the tools that these globs allow, always in the same order, so that the prompt's prefix stays the
        same.
        """
        return tuple(
            spec for _, spec in self._tools.values() if is_offered(spec.name, allow_tools, deny_tools)
        )

    def nearest(self, name: str, offered: Iterable[str]) -> str:
        """Return the offered name that is most like an unknown one; empty if no name is like it."""
        folded = {known.casefold(): known for known in offered}
        near = difflib.get_close_matches(name.casefold()[:64], folded, n=1, cutoff=0.5)
        return folded[near[0]] if near else ""


def _pinned(spec: ToolSpec) -> ToolSpec:
    """Return a deep copy: a tool cannot change what was offered and approved."""
    try:
        return msgspec.json.decode(msgspec.json.encode(spec), type=ToolSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"the tool {spec.name!r} has an invalid declaration: {error}") from None


def _check_kinds(spec: ToolSpec) -> None:
    """Check that every declared parameter exists: policy would not judge a misspelled one."""
    schema = closed(spec.parameters)
    known = schema.get("properties", {})
    unknown = [name for name in spec.kinds if name not in known]
    if unknown and schema.get("additionalProperties") is False:
        hint = f"Its parameters are: {', '.join(known) or 'none'}."
        raise UsageError(
            f"the tool {spec.name!r} has no parameter {unknown[0]!r}, but `kinds` names it", hint=hint
        )
