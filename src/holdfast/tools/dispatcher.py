"""Every tool call passes here: through the gates before anything happens, then to its tool, for a time.

The one place where whatever a tool raises becomes a result. Recording, redacting, clipping and asking a
person belong to the runtime and the core.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from holdfast.errors import Fenced
from holdfast.policy.rules import judge, strictest, touched
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import Settings
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, Proposal, RawResult, Tool
from holdfast.protocol.tools import (
    EVERYTHING,
    Admission,
    Allowed,
    Asked,
    Decision,
    Expectation,
    Refused,
    Resource,
    ToolSpec,
)
from holdfast.sandbox.process import Processes
from holdfast.tools.facts import commands_of, facts_of, texts, timeout_of
from holdfast.tools.limits import limited, over
from holdfast.tools.own import OwnPlaces
from holdfast.tools.registry import Registry
from holdfast.tools.schema import BadSchema, SchemaGate
from holdfast.tools.shell import program_of

GRACE_S = 2.0
"""So much later a tool that keeps its own time is cancelled after all."""
_MESSAGE_CHARS = 600
_DETAIL_CHARS = 4_000


class Case(msgspec.Struct, frozen=True):
    """A proposed call on its way through the gates, with what they have found so far."""

    proposal: Proposal
    tool: Tool
    spec: ToolSpec
    values: dict[str, Any] = {}
    canonical: str = ""
    decisions: tuple[Decision, ...] = ()
    verdict: Literal["allow", "ask"] = "allow"
    resources: tuple[Resource, ...] = EVERYTHING


Gate = Callable[[Case], Case | Refused]
"""Lets a case pass, or answers with the admission that refuses it."""


class Dispatcher:
    """The tools of one runtime: `ports.Tools`.

    Args:
        registry: What there is.
        processes: The process trees of the tools; closed with this.
        secret_in: The name of a known secret whose value a text holds; empty when it holds none.
        own: What is Holdfast's own.
    """

    def __init__(
        self, registry: Registry, processes: Processes, secret_in: Callable[[str], str], own: OwnPlaces
    ) -> None:
        self._registry = registry
        self._processes = processes
        self._secret_in = secret_in
        self._own = own
        self._schemas = SchemaGate()
        # Hooks, taint, rate and budget will stand between policy and approval, in this order.
        self._gates: tuple[Gate, ...] = (self._schema, self._secrets, self._policy, self._approval)

    def add(self, tool: Tool) -> None:
        """Take in one more tool; the same one again changes nothing."""
        if self._registry.tool(tool.spec.name) is not tool:
            self._registry.add(tool)

    def specs(self, settings: Settings) -> Sequence[ToolSpec]:
        """What the model is offered, in a stable order."""
        return self._registry.specs(settings.allow_tools, settings.deny_tools)

    def is_quick(self, name: str) -> bool:
        """Whether judging a call of that tool waits for nothing: only a tool's plan does."""
        spec = self._registry.spec(name)
        return spec is None or spec.on_interrupt != "probe"

    async def admit(self, proposal: Proposal) -> Admission:
        """Ask all gates about a proposed call; nothing has happened yet."""
        name = proposal.call.name
        tool, spec = self._registry.tool(name), self._registry.spec(name)
        if tool is None or spec is None:
            return _refused("schema", self._unknown(name, proposal.settings))
        case = Case(proposal, tool, spec)
        try:
            for gate in self._gates:
                passed = gate(case)
                if isinstance(passed, Refused):
                    return passed
                case = passed
            return await _admission(case)
        # What a gate stumbles over is not run, and must not end the session either: it would be put before the
        # gates again by every resume.
        except Exception as error:
            message = f"{spec.name} was refused: the call could not be judged ({type(error).__name__})."
            detail = "".join(traceback.format_tb(error.__traceback__))[-_DETAIL_CHARS:]  # without its values
            return _refused("gates", Failure("policy_denied", message, detail))

    async def run(self, name: str, arguments: str, context: CallContext) -> RawResult:
        """Run an admitted call with its canonical arguments; exceptions come out as results, but for `Fenced`."""
        tool, spec = self._registry.tool(name), self._registry.spec(name)
        if tool is None or spec is None:
            return RawResult("error", f"The tool {name} is not there any more.")
        limit, inner = limited(context, GRACE_S if spec.keeps_time else 0.0)
        try:
            async with limit:
                return await tool.run(msgspec.json.decode(arguments), inner)
        except Fenced:
            raise
        # Whatever a tool raises is its result: a bug in one capability must not end a session.
        except Exception as error:
            if limit.expired():
                return RawResult("timeout", f"{name} did not finish. {over(context)}")
            text = f"{name} failed with {type(error).__name__}: {error}"
            detail = "".join(traceback.format_exception(error))
            return RawResult("error", _clipped(text, _MESSAGE_CHARS), detail=detail[-_DETAIL_CHARS:])

    async def probe(self, proposal: Proposal, expectation: Expectation) -> Probed:
        """Have the tool look whether an interrupted call happened."""
        tool, spec = self._registry.tool(proposal.call.name), self._registry.spec(proposal.call.name)
        if tool is None or spec is None:
            return Probed("unknown")
        try:
            return await tool.probe(expectation, _looking(proposal, spec))
        # Who fails to look has seen nothing.
        except Exception:
            return Probed("unknown")

    async def end_orphans(self, keys: Sequence[str]) -> None:
        """End every process that still carries one of the call keys in its environment."""
        await self._processes.end(keys)

    async def aclose(self) -> None:
        """End what still runs."""
        await self._processes.aclose()

    # --- gates ----------------------------------------------------------------------------------

    def _schema(self, case: Case) -> Case | Refused:
        """The arguments are what the tool takes; from here on only their canonical form counts."""
        try:
            checked = self._schemas.check(case.spec, case.proposal.call.arguments)
        except BadSchema as error:
            message = f"{case.spec.name} cannot be called: its schema is broken ({error})."
            return _refused("schema", Failure("tool_validation", message))
        if isinstance(checked, Failure):
            return _refused("schema", checked)
        return msgspec.structs.replace(case, values=checked.values, canonical=checked.canonical)

    def _secrets(self, case: Case) -> Case | Refused:
        """No call carries the value of a known secret: arguments are stored, shown and sent."""
        found = [case.canonical]
        if "\\" in case.canonical:  # an escaped quote or newline would hide it
            found += texts(case.values)
        name = next(filter(None, map(self._secret_in, found)), "")
        if not name:
            return case
        message = (
            f"{case.spec.name} was refused: its arguments hold the value of the secret {name}. Leave the value "
            f"out and refer to the secret by its name: {name}."
        )
        return _refused("policy", Failure("policy_denied", message), "secret-value")

    def _policy(self, case: Case) -> Case | Refused:
        """What the rules say; deny over ask over allow."""
        facts = facts_of(case.spec, case.values, case.proposal.settings, self._own)
        decisions = judge(facts)
        decision = strictest(decisions)
        if decision.verdict == "deny":
            failure = Failure("policy_denied", f"Refused by policy: {decision.reason}")
            return Refused(failure, decisions)
        return msgspec.structs.replace(
            case, decisions=decisions, verdict=decision.verdict, resources=touched(facts)
        )

    def _approval(self, case: Case) -> Case | Refused:
        """A person's yes counts where the rules ask; a question to a person is always asked."""
        if case.spec.effect == "ask":
            return msgspec.structs.replace(case, verdict="ask")
        if case.verdict == "allow" or not case.proposal.is_approved:
            return case
        decisions = (*case.decisions, Decision(by="approval", verdict="allow"))
        return msgspec.structs.replace(case, verdict="allow", decisions=decisions)

    def _unknown(self, name: str, settings: Settings) -> Failure:
        offered = [spec.name for spec in self.specs(settings)]
        near = self._registry.nearest(name, offered)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join(offered) or 'none'}."
        return Failure("unknown_tool", f"There is no tool called {_clipped(name, 80)!r}. {hint}")


async def _admission(case: Case) -> Admission:
    spec, values, workspace = case.spec, case.values, case.proposal.settings.workspace
    command = next(commands_of(spec, values), "") if spec.effect == "exec" else ""
    cwd = workspace if spec.effect == "exec" else ""
    binary = program_of(command, workspace) if command else ""
    if case.verdict == "ask":
        is_question = spec.effect == "ask"
        return Asked(
            decisions=case.decisions,
            arguments=case.canonical,
            source=spec.source,
            cwd=cwd,
            binary=binary,
            question=values["question"] if is_question else "",
            options=tuple(values.get("options", ())) if is_question else (),
            resources=case.resources,
        )
    expects = await _plan(case)
    # Without a plan there is nothing that a look at the world could be compared with.
    cannot_probe = spec.on_interrupt == "probe" and expects is None
    return Allowed(
        decisions=case.decisions,
        arguments=case.canonical,
        effect=spec.effect,
        on_interrupt="unknown" if cannot_probe else spec.on_interrupt,
        timeout_s=timeout_of(spec, values),
        expects=expects,
        source=spec.source,
        cwd=cwd,
        binary=binary,
        resources=case.resources,
    )


async def _plan(case: Case) -> Expectation | None:
    if case.spec.on_interrupt != "probe":
        return None
    try:
        return await case.tool.plan(case.values, _looking(case.proposal, case.spec))
    # A plan that fails is no plan; the call itself will say what is wrong.
    except Exception:
        return None


def _looking(proposal: Proposal, spec: ToolSpec) -> CallContext:
    """The context of a call that has no effects."""
    session, call_id, settings = proposal.session, proposal.call.call_id, proposal.settings
    return CallContext(
        session=session,
        call_id=call_id,
        key=f"{session}:{call_id}",
        workspace=settings.workspace,
        timeout_s=spec.timeout_s,
        idle_s=settings.limits.idle_s,
        on_output=lambda _: None,
        check=_no_effect,
    )


def _no_effect() -> int:
    raise Fenced("Whoever plans or looks has no effects.")


def _refused(by: str, failure: Failure, rule: str = "") -> Refused:
    return Refused(failure, (Decision(by=by, verdict="deny", rule=rule),))


def _clipped(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}..."
