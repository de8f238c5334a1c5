"""The tools of a runtime by name: what there is, in which order, and what a wrong name probably meant.

What a run may use of them is `policy`'s; calling them is the dispatcher's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import UsageError
from holdfast.policy.rules import is_offered
from holdfast.protocol.ports import Tool
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.schema import closed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Registry:
    """Tools in the order they were given; each spec is pinned as it was then.

    Raises:
        UsageError: two tools share a name, or a name is none that every provider takes.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._specs: dict[str, ToolSpec] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Take in one more. Raises as the class."""
        spec = _pinned(tool.spec)
        if not _NAME.fullmatch(spec.name):
            raise UsageError(f"{spec.name!r} is no name for a tool: letters, digits, _ and -, at most 64")
        if spec.name in self._tools:
            raise UsageError(f"two tools are called {spec.name!r}")
        _check_kinds(spec)
        self._tools[spec.name], self._specs[spec.name] = tool, spec

    def tool(self, name: str) -> Tool | None:
        """The tool of exactly that name."""
        return self._tools.get(name)

    def spec(self, name: str) -> ToolSpec | None:
        """Its spec, as it was when the tool was registered, whatever the tool did to it since."""
        return self._specs.get(name)

    def specs(self, allow_tools: Sequence[str] = (), deny_tools: Sequence[str] = ()) -> tuple[ToolSpec, ...]:
        """What a run with these globs is offered, always in the same order: the prompt's prefix stays."""
        return tuple(spec for name, spec in self._specs.items() if is_offered(name, allow_tools, deny_tools))

    def nearest(self, name: str, offered: Iterable[str]) -> str:
        """The offered name that is most like an unknown one; empty when none is."""
        folded = {known.casefold(): known for known in offered}
        near = difflib.get_close_matches(name.casefold()[:64], folded, n=1, cutoff=0.5)
        return folded[near[0]] if near else ""


def _pinned(spec: ToolSpec) -> ToolSpec:
    """A copy that shares nothing with the original: a tool cannot change what was offered and approved."""
    try:
        return msgspec.json.decode(msgspec.json.encode(spec), type=ToolSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"the tool {spec.name!r} declares what cannot be meant: {error}") from None


def _check_kinds(spec: ToolSpec) -> None:
    """What is declared is there: a slip in a name would leave an argument unjudged."""
    schema = closed(spec.parameters)
    known = schema.get("properties", {})
    unknown = [name for name in spec.kinds if name not in known]
    if unknown and schema.get("additionalProperties") is False:
        hint = f"Its parameters are: {', '.join(known) or 'none'}."
        raise UsageError(
            f"the tool {spec.name!r} has no parameter {unknown[0]!r}, but `kinds` names it", hint=hint
        )
