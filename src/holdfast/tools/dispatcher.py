"""Takes every tool call through the gates, and runs it within its time limits.

This is the one place where an exception of a tool becomes a result. Only what ends the session goes on: the lease
lapsed, or the home failed. The runtime redacts, clips and records results, and the core asks people.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from holdfast.deadlines import Deadlines
from holdfast.errors import Fenced, Lapsed, StorageError
from holdfast.policy.reaching import hosts_of, is_approved
from holdfast.policy.rules import offers
from holdfast.protocol.answers import ANSWER
from holdfast.protocol.failures import Failure
from holdfast.protocol.fence import Sandbox, Walled
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, Proposal, RawResult, Tool
from holdfast.protocol.settings import Settings
from holdfast.protocol.text_formats import UNREADABLE
from holdfast.protocol.tools import (
    APPROVAL,
    NO_REACH,
    Admission,
    Allowed,
    Asked,
    Decision,
    Expectation,
    Offer,
    Reach,
    Refused,
    Resource,
    Told,
    ToolSpec,
)
from holdfast.protocol.trust import least
from holdfast.redact import begin_of
from holdfast.tools.background import Background
from holdfast.tools.blocking import Refused as NoFence
from holdfast.tools.blocking import in_thread
from holdfast.tools.facts import after_interruption, commands_of, timeout_of
from holdfast.tools.fencing import Fences
from holdfast.tools.gates import Case, Gate, passed, refused
from holdfast.tools.git import GIT_TOOLS, are_of_use
from holdfast.tools.granting import NoOffer, offered
from holdfast.tools.limits import limited, over
from holdfast.tools.pool import Pool
from holdfast.tools.reach import reach_of
from holdfast.tools.registry import Registry
from holdfast.tools.results import bounded, failed
from holdfast.tools.sameness import likeness_of
from holdfast.tools.shell import program_of
from holdfast.tools.survey import Surveyor
from holdfast.tools.telling import Telling
from holdfast.tools.unreadable import unreadable

TRY = "You can try {name} instead."

GRACE_S = 2.0
"""A tool that keeps its own time limit is cancelled this much later."""
_DETAIL_CHARS = 4_000
_WORKSPACE_KINDS = frozenset({"path", "command", "patch"})


class Dispatcher:
    """The tools of one runtime; implements `ports.Tools`.

    Args:
        registry: The tools by name.
        background: The processes of the tools, also those that go on after their calls. They are closed with the
            dispatcher.
        gates: The gates in order.
        surveyor: Looks at workspaces.
        fences: Knows in which sandbox a call will run.
        capabilities: What tools may ask their context for, by type.
    """

    def __init__(
        self,
        registry: Registry,
        background: Background,
        gates: tuple[Gate, ...],
        surveyor: Surveyor,
        fences: Fences,
        capabilities: Sequence[object] = (),
    ) -> None:
        self.registry = registry
        self._background = background
        self._gates = gates
        self._surveyor = surveyor
        self._fences = fences
        self._capabilities = (registry, background.processes, fences, *capabilities)
        self._pool = Pool()
        self._deadlines = Deadlines()
        self._slow_gates = [gate for gate in gates if gate.pace == "slow"]

    @property
    def version(self) -> int:
        """A number that grows with each change of the tools."""
        return self.registry.version

    def add(self, tool: Tool) -> None:
        """Add a tool. Adding the same tool again changes nothing."""
        known = self.registry.found(tool.spec.name)
        if known is None or known.tool is not tool:
            self.registry.add(tool)

    def confine(self, sandbox: Sandbox) -> None:
        """Start programs in this sandbox from now on."""
        self._background.processes.confine(sandbox)
        self._fences.confine(sandbox.backend)

    def specs(self, settings: Settings) -> Sequence[ToolSpec]:
        """Return what the model is offered, in a stable order."""
        return offered_of(self.registry.specs(), settings)

    def is_quick(self, name: str, settings: Settings) -> bool:
        """Return whether judging a call waits for nothing: no slow gate and no plan."""
        found = self.registry.found(name)
        if found is None:
            return True
        has_plan = found.spec.on_interrupt == "probe"
        return not has_plan and not [gate for gate in self._slow_gates if gate.applies(found.spec, settings)]

    async def admit(self, proposal: Proposal) -> Admission:
        """Ask all gates about a proposed call. This has no effect, except that untrusted text cuts off the network of
        what runs in the background, before the model can use it.
        """
        if proposal.taint.untrusted is not None:
            self._background.cut(proposal.session)
        name = proposal.call.name
        found = self.registry.found(name)
        if found is None or (name == ANSWER and not offers(name, proposal.settings)):
            return refused("schema", self._unknown(proposal.call, proposal.settings))
        tool, spec = found
        try:
            settings = proposal.settings
            # Before the gates: what they would look at may be the whole disk.
            self._fences.check(tool, settings.tools.workspace, settings.policy.walls)
            verdict = await passed(self._gates, Case(proposal, spec))
            if isinstance(verdict, Refused):
                return verdict
            hosts = hosts_of(verdict.facts, verdict.decisions, proposal.taint)
            walls = settings.policy.walls
            walled = await self._fences.recorded(tool, settings.tools.workspace, walls, hosts)
            if walled is not None and _is_fenced(walled) and hosts:
                approved = is_approved(verdict.decisions)
                walled = msgspec.structs.replace(walled, is_approved=approved)
            return await _admission(verdict, tool, walled)
        except NoFence as refusal:
            return refused("sandbox", Failure("policy_denied", str(refusal)))
        # If a gate raises, refuse the call. Otherwise the session would end, and every resume would
        # raise at the same gate again.
        except Exception as error:
            _raise_what_ends_the_session(error, spec)
            message = f"{spec.name} was refused: a gate failed ({type(error).__name__})."
            detail = "".join(traceback.format_tb(error.__traceback__))[-_DETAIL_CHARS:]  # without its values
            return refused("gates", Failure("policy_denied", message, detail))

    async def reach(self, proposal: Proposal) -> Reach:
        """Return what a call reaches by now, whether or not it may run. Only quick gates are asked."""
        found = self.registry.found(proposal.call.name)
        if found is None:
            return NO_REACH
        try:
            quick = [gate for gate in self._gates if gate.pace == "quick"]
            verdict = await passed(quick, Case(proposal, found.spec))
            if not isinstance(verdict, Case):
                return NO_REACH
            is_fenced = self._fences.backend(proposal.settings.policy.walls) != "unsafe"
            return await _reach(verdict, _binary(verdict), is_fenced=is_fenced)
        # What a gate can judge no longer has changed.
        except Exception as error:
            _raise_what_ends_the_session(error, found.spec)
            return NO_REACH

    def place(self, session: str, resources: Sequence[Resource]) -> AbstractAsyncContextManager[None]:
        """Wait for a place to run in."""
        return self._pool.place(session, resources)

    async def run(self, name: str, arguments: str, context: CallContext) -> RawResult:
        """Run an admitted call with its canonical arguments. Exceptions become results.

        Raises:
            Lapsed: another driver may have the session.
            StorageError: the home failed, for example because it could not keep what the call replaces.
        """
        found = self.registry.found(name)
        if found is None:
            return RawResult("error", f"The tool {name} no longer exists.", trust="data", is_private=False)
        tool, spec = found
        capabilities = (*self._capabilities, *context.capabilities)
        context = msgspec.structs.replace(context, capabilities=capabilities)
        result = bounded(await _run(tool, spec, arguments, context, self._deadlines))
        return _labelled(spec, self._with_stand_in(spec, result, context), context)

    async def probe(self, proposal: Proposal, expectation: Expectation) -> Probed:
        """Ask the tool whether an interrupted call happened."""
        found = self.registry.found(proposal.call.name)
        if found is None:
            return Probed("unknown")
        try:
            return await found.tool.probe(expectation, _looking(proposal, found.spec))
        # A failed probe shows nothing.
        except Exception as error:
            _raise_what_ends_the_session(error, found.spec)
            return Probed("unknown")

    async def end_orphans(self, keys: Sequence[str]) -> None:
        """End every process that has one of the call keys in its environment."""
        await self._background.processes.end(keys)

    async def put_aside(self, session: str, *, is_first: bool) -> str:
        """Return a sentence about what was put aside of a session's commands, once."""
        return await self._fences.put_aside(session, is_first=is_first)

    def in_background(self, session: str) -> Collection[str]:
        """Return the ids of the processes that run in the background of a session."""
        return self._background.running(session)

    async def end_background(self, session: str) -> None:
        """End these processes, and forget what they printed."""
        await self._background.end(session)

    def survey(self, workspace: str, since_ms: int, named: Sequence[str]) -> str:
        """Return the state of a workspace."""
        return self._surveyor.survey(workspace, since_ms, named)

    async def aclose(self) -> None:
        """End all processes that still run."""
        await self._background.aclose()

    def _with_stand_in(self, spec: ToolSpec, result: RawResult, context: CallContext) -> RawResult:
        """Name another tool, if this one failed for a reason that its arguments did not cause."""
        if not spec.stand_ins or not (result.status == "timeout" or result.is_unavailable):
            return result
        known = (name for name in spec.stand_ins if self.registry.found(name) is not None)
        name = next(filter(context.offers, known), "")
        return (
            msgspec.structs.replace(result, text=f"{result.text} {TRY.format(name=name)}") if name else result
        )

    def _unknown(self, call: ToolCall, settings: Settings) -> Failure:
        if call.name == UNREADABLE:
            return unreadable(call.arguments)
        name = call.name
        offered = [spec.name for spec in self.specs(settings)]
        near = self.registry.nearest(name, offered)
        hint = f"Did you mean {near}?" if near else f"The tools are: {', '.join(offered) or 'none'}."
        return Failure("unknown_tool", f"There is no tool {_clipped(name, 80)!r}. {hint}")


def offered_of(specs: Sequence[ToolSpec], settings: Settings) -> Sequence[ToolSpec]:
    """Return which of the tools a run has, in their order."""
    found = [spec for spec in specs if offers(spec.name, settings)]
    if GIT_TOOLS.isdisjoint(spec.name for spec in found) or are_of_use(settings.tools.workspace):
        return found
    return [spec for spec in found if spec.name not in GIT_TOOLS]


async def _run(
    tool: Tool, spec: ToolSpec, arguments: str, context: CallContext, deadlines: Deadlines
) -> RawResult:
    """Return the tool's result within its time limits."""
    limit, inner = limited(deadlines, context, GRACE_S if spec.keeps_time else 0.0)
    try:
        with limit:
            return await tool.run(msgspec.json.decode(arguments), inner)
    # Every exception of a tool is a result: a bug in one tool must not end a session.
    except Exception as error:
        _raise_what_ends_the_session(error, spec)
        if limit.has_passed:
            return RawResult("timeout", f"{spec.name} did not finish. {over(context)}")
        return failed(spec.name, error)


def _labelled(spec: ToolSpec, result: RawResult, context: CallContext) -> RawResult:
    """Return the result with its trust, and with whether it is private: as the tool says, or what its spec says."""
    is_private = result.is_private if result.is_private is not None else spec.is_private
    if is_private is None:
        is_private = spec.trust == "data" and (spec.effect != "write" or result.status != "ok")
    trust = least(spec.trust, result.trust or spec.trust)
    if context.policy.is_workspace_untrusted and is_private and _reads_workspace(spec):
        trust = least(trust, "untrusted")
    return msgspec.structs.replace(result, trust=trust, is_private=is_private)


def _reads_workspace(spec: ToolSpec) -> bool:
    return spec.source == "builtin" or not _WORKSPACE_KINDS.isdisjoint(spec.kinds.values())


def _is_fenced(walled: Walled | None) -> bool:
    return walled is not None and walled.backend != "unsafe"


async def _admission(case: Case, tool: Tool, walled: Walled | None) -> Admission:
    if isinstance(tool, Telling):
        return Told(tool.said(case.values), case.decisions, case.canonical)
    spec, values, workspace = case.spec, case.values, case.proposal.settings.tools.workspace
    cwd = workspace if spec.effect == "exec" else ""
    binary = _binary(case)
    is_question = spec.effect == "ask"
    likeness = likeness_of(spec, case.values, workspace)
    reach = await _reach(case, binary, is_fenced=_is_fenced(walled)) if case.is_asked else NO_REACH
    if is_question or case.is_open:
        offer = "" if is_question else _offer(case)
        return Asked(
            decisions=case.decisions,
            arguments=case.canonical,
            source=spec.source,
            cwd=cwd,
            binary=binary,
            reach=reach,
            offer=None if isinstance(offer, str) else offer,
            no_offer=offer if isinstance(offer, str) else "",
            lapsed=case.lapsed,
            question=values["question"] if is_question else "",
            options=tuple(values.get("options", ())) if is_question else (),
            resources=case.resources,
            likeness=likeness,
        )
    expects = await _plan(case, tool) if spec.on_interrupt == "probe" else None
    # Without a plan there is nothing to compare with.
    cannot_probe = spec.on_interrupt == "probe" and expects is None
    return Allowed(
        decisions=case.decisions,
        arguments=case.canonical,
        effect=spec.effect,
        on_interrupt="unknown" if cannot_probe else after_interruption(spec, values),
        timeout_s=timeout_of(spec, values),
        expects=expects,
        source=spec.source,
        cwd=cwd,
        binary=binary,
        reach=reach,
        resources=case.resources,
        likeness=likeness,
        walled=walled,
    )


def _offer(case: Case) -> Offer | str:
    """Return the grant that an approval of the call may make, or why it may make none."""
    if case.facts is None:
        return ""
    try:
        return offered(case.spec, case.proposal, case.facts, case.decisions, case.canonical)
    except NoOffer as why:
        return str(why)


def _binary(case: Case) -> str:
    """Return the program that the call begins with; empty if it runs no command."""
    spec = case.spec
    command = next(commands_of(spec, case.values), "") if spec.effect == "exec" else ""
    return program_of(command, case.proposal.settings.tools.workspace) if command else ""


async def _reach(case: Case, binary: str, *, is_fenced: bool) -> Reach:
    """Return what the call reaches, and in a sandbox what its programs may reach once a person has approved it."""
    facts = case.facts
    if facts is None or not (facts.commands or facts.paths or facts.urls):
        return NO_REACH
    approved = (*case.decisions, Decision(APPROVAL, "allow"))
    hosts = hosts_of(facts, approved, case.proposal.taint) if is_fenced else ()
    return await in_thread(lambda: reach_of(facts, binary, hosts))


async def _plan(case: Case, tool: Tool) -> Expectation | None:
    try:
        return await tool.plan(case.values, _looking(case.proposal, case.spec))
    # If planning fails, the call has no plan. The call itself reports the error.
    except Exception as error:
        _raise_what_ends_the_session(error, case.spec)
        return None


def _raise_what_ends_the_session(error: Exception, spec: ToolSpec) -> None:
    """Raise the error unless it is a result. What a tool of the program raises says nothing about this home."""
    if isinstance(error, Lapsed) or (isinstance(error, StorageError) and spec.source == "builtin"):
        raise error


def _looking(proposal: Proposal, spec: ToolSpec) -> CallContext:
    """The context of a call without effects."""
    session, call_id, settings = proposal.session, proposal.call.call_id, proposal.settings
    return CallContext(
        session=session,
        call_id=call_id,
        key=f"{session}:{call_id}",
        workspace=settings.tools.workspace,
        timeout_s=spec.timeout_s,
        idle_s=settings.limits.idle_s,
        on_output=lambda _: None,
        check=_no_effect,
    )


def _no_effect() -> int:
    raise Fenced("Plans and probes must have no effects.")


def _clipped(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{begin_of(text, chars)}..."
