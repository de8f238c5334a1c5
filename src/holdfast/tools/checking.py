"""Judges a call that nobody makes: what `holdfast policy check` answers.

It takes the call through the gates of a run, so there is no second way to a verdict. Nothing is planned, run or
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.policy.rules import strictest
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import CONVERTED, STRIPPED, Decision, Refused, ToolSpec
from holdfast.tools.blocking import Refused as NoFence
from holdfast.tools.fencing import Fences
from holdfast.tools.gates import Case, Gate, passed
from holdfast.tools.registry import Registry

_SUBJECTS: Mapping[str, tuple[str, str, dict[str, str]]] = {
    "command": ("shell", "command", {}),
    "read": ("read_file", "path", {}),
    "write": ("write_file", "path", {"content": ""}),
    "url": ("web_fetch", "url", {}),
}
"""What can be asked without naming a tool: the tool that does it, its parameter, and its other arguments."""

SUBJECTS = frozenset(_SUBJECTS)


class Checker(msgspec.Struct, frozen=True):
    """The gates of a run with these settings, and its tools by name."""

    registry: Registry
    gates: tuple[Gate, ...]
    settings: Settings
    fences: Fences
    """Where no command runs in a sandbox."""

    async def subject(self, kind: str, value: str) -> Decision:
        """Judge a command, a path to read or write, or an address, as the tool for it would be judged.

        Args:
            kind: One of `SUBJECTS`.
            value: The command, path or address.
        """
        tool, parameter, others = _SUBJECTS[kind]
        return await self.call(tool, {parameter: value, **others})

    async def call(self, tool: str, arguments: Mapping[str, Any] | str) -> Decision:
        """Judge a call of a tool. Its arguments are JSON text, or the object itself.

        Raises:
            UsageError: there is no such tool.
        """
        found = self.registry.found(tool)
        if found is None:
            near = self.registry.nearest(tool, [spec.name for spec in self.registry.specs()])
            hint = f"Did you mean {near}?" if near else "`holdfast tools` lists them."
            raise UsageError(f"There is no tool {tool[:80]!r}.", hint=hint)
        try:
            self.fences.check(found.tool, self.settings.tools.workspace, self.settings.policy.walls)
        except NoFence as refusal:
            return Decision("sandbox", "deny", "sandbox", str(refusal))
        return await self._judged(found.spec, arguments if isinstance(arguments, str) else _json(arguments))

    async def _judged(self, spec: ToolSpec, arguments: str) -> Decision:
        call = ToolCall(ref="check", name=spec.name, arguments=arguments, call_id="t1.c1")
        verdict = await passed(self.gates, Case(Proposal(call, "check", self.settings), spec))
        # Notes about the arguments do not judge the call.
        judged = [each for each in verdict.decisions if each.rule not in (CONVERTED, STRIPPED)]
        decision = strictest(judged)
        if not isinstance(verdict, Refused):
            return _with_reason(decision, spec)
        return msgspec.structs.replace(
            decision,
            rule=decision.rule or decision.by,
            reason=decision.reason or verdict.failure.message,
        )


def _with_reason(decision: Decision, spec: ToolSpec) -> Decision:
    """Return the decision with a reason. A run records none for what it allows: they would fill the journal."""
    if decision.reason:
        return decision
    kind, _, detail = decision.rule.partition(":")
    match kind:
        case "proved":
            why = "It is proved to do nothing but read, or write literal paths of the workspace."
        case "sandboxed":
            why = (
                "[policy] sandboxed lets it run in a sandbox, without network. Nobody knows all that it does."
            )
        case "egress":
            why = "It only reads, and the host or search engine is listed."
        case "allow":
            why = "The configuration allows it by this rule, and nothing else objects."
        case _:
            why = f"Nothing objects, and the effect `{spec.effect}` needs no approval under `{detail}`."
    return msgspec.structs.replace(decision, reason=why)


def _json(value: object) -> str:
    """Return the value as a model would send it.

    Raises:
        UsageError: it contains what no text may contain.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        raise UsageError("It is not valid Unicode text.") from None
