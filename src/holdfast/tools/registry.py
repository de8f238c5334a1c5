"""The tools of a runtime by name, in a stable order, with suggestions for wrong names.

Sources add their tools and take them away while sessions run: an MCP server that connects, a client that leaves. No
tool hides another one. `policy` decides which tools a run may use. The dispatcher calls them.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.policy.rules import is_offered
from holdfast.protocol.ports import Tool
from holdfast.protocol.tools import TELLING, ToolSpec
from holdfast.tools.schema import closed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_KNOWN_SOURCES = frozenset({"builtin", "function"})
"""Tools of these sources change only with the program itself."""


class Registered(NamedTuple):
    """A tool, and its spec as it was registered, whatever the tool changed since."""

    tool: Tool
    spec: ToolSpec


class Changed(msgspec.Struct, frozen=True):
    """A tool of a stranger that is not what was accepted under its name."""

    name: str
    accepted: str
    """The pin of what was accepted."""
    offered: str
    """The pin of what is offered now."""


class Added(msgspec.Struct, frozen=True):
    """What became of the tools of a source."""

    names: tuple[str, ...]
    filtered: tuple[str, ...]
    """The names that the filter of the source keeps out."""
    changed: tuple[Changed, ...]
    """The tools that were not added, because somebody must accept them first."""


class Registry:
    """The tools in the order given. Each spec is pinned.

    Raises:
        UsageError: a name is taken, or not every provider accepts it.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Registered] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        """The names that each source added."""
        self._pins: dict[str, str] = {}
        """What was accepted under each name. It outlives the tool: a server may take one away and bring another."""
        self._specs: tuple[ToolSpec, ...] | None = None
        self._version = 0
        for tool in tools:
            self.add(tool)

    @property
    def version(self) -> int:
        """A number that grows with each change."""
        return self._version

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises what the class raises."""
        spec = self._checked(tool, self._tools)
        self._tools[spec.name] = Registered(tool, spec)
        self._changed()

    def add_all(
        self,
        source: str,
        tools: Iterable[Tool],
        *,
        allow: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        pins: Mapping[str, str] | None = None,
    ) -> Added:
        """Add the tools of a source, all or none of them.

        Args:
            source: What removes them again, like `mcp:files`.
            tools: The tools. Their specs must not claim to come with Holdfast or the program.
            allow: Globs on the names that are wanted from this source; empty means all.
            deny: Globs on the names that are not. A denying glob wins.
            pins: What somebody accepted before, by name: `pin_of` a spec. A tool that differs is not added.

        Raises:
            UsageError: the source is there already, a name is taken or not valid, or a spec claims what it is not.
        """
        if source in self._sources:
            raise UsageError(f"the tools of {source!r} are there already: remove them first")
        accepted = self._pins | dict(pins or {})
        added: dict[str, Registered] = {}
        filtered: list[str] = []
        changed: list[Changed] = []
        for tool in tools:
            spec = self._checked(tool, self._tools.keys() | added.keys())
            if spec.source in _KNOWN_SOURCES:
                raise UsageError(f"the tool {spec.name!r} of {source!r} claims to be one of Holdfast's own")
            pin = pin_of(spec)
            if not is_offered(spec.name, allow, deny):
                filtered.append(spec.name)
            elif accepted.get(spec.name, pin) != pin:
                changed.append(Changed(spec.name, accepted[spec.name], pin))
            else:
                added[spec.name] = Registered(tool, spec)
        self._tools |= added
        self._pins = accepted | {name: pin_of(each.spec) for name, each in added.items()}
        self._sources[source] = tuple(added)
        self._changed()
        return Added(tuple(added), tuple(filtered), tuple(changed))

    def remove(self, source: str) -> tuple[str, ...]:
        """Remove all tools of a source, and return their names; none if it has none."""
        names = self._sources.pop(source, ())
        for name in names:
            del self._tools[name]
        if names:
            self._changed()
        return names

    def accept(self, changed: Changed) -> None:
        """Accept what is offered under a name from now on: somebody has read it."""
        self._pins[changed.name] = changed.offered

    def found(self, name: str) -> Registered | None:
        """Return the tool with exactly this name."""
        return self._tools.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return all specs, always in the same order, so that the prompt's prefix stays the same."""
        if self._specs is None:
            self._specs = tuple(each.spec for each in self._tools.values())
        return self._specs

    def nearest(self, name: str, offered: Iterable[str]) -> str:
        """Return the offered name that is most like an unknown one; empty if no name is like it."""
        folded = {known.casefold(): known for known in offered}
        near = difflib.get_close_matches(name.casefold()[:64], folded, n=1, cutoff=0.5)
        return folded[near[0]] if near else ""

    def _changed(self) -> None:
        self._specs = None
        self._version += 1

    def _checked(self, tool: Tool, taken: Iterable[str]) -> ToolSpec:
        spec = _pinned(tool.spec)
        if not _NAME.fullmatch(spec.name):
            raise UsageError(
                f"{spec.name!r} cannot be the name of a tool: use letters, digits, _ and -, at most 64 of them"
            )
        if spec.name in taken:
            raise UsageError(f"there are two tools with the name {spec.name!r}")
        if spec.effect == "tell" and spec.name not in TELLING:
            raise UsageError(f"the tool {spec.name!r} has the effect `tell`, which only Holdfast's own have")
        _check_kinds(spec)
        return spec


def pin_of(spec: ToolSpec) -> str:
    """Return a hash of what somebody accepts with a tool: what the model reads of it (name, schema and description),
    and what the gates judge it by. A tool that says later that it only reads is another one."""
    read = (spec.name, spec.parameters, spec.description)
    judged = (spec.source, spec.effect, spec.kinds, spec.on_interrupt, spec.trust, spec.is_private)
    return hashlib.sha256(msgspec.json.encode([*read, *judged], order="sorted")).hexdigest()


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
