"""The gates: each checks a proposed call, in order, before anything happens.

A gate passes a case on with its findings, or refuses it. Gates record nothing, ask nobody and have no effect.
`policy` has the rules over facts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.policy.reaching import cut_instead
from holdfast.policy.rules import Facts, is_proved, judge, strictest, touched
from holdfast.policy.taint import objection
from holdfast.protocol.counts import counted
from holdfast.protocol.failures import Failure
from holdfast.protocol.grants import permission_of
from holdfast.protocol.ports import Proposal
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import (
    APPROVAL,
    CONVERTED,
    EVERYTHING,
    STRIPPED,
    Decision,
    Refused,
    Resource,
    ToolSpec,
)
from holdfast.tools.blocking import in_thread
from holdfast.tools.facts import facts_of, texts
from holdfast.tools.granting import covering, has_programs
from holdfast.tools.http_request import HTTP_REQUEST, credentials_in
from holdfast.tools.named import GLANCE_ENTRIES, LooksLong
from holdfast.tools.ours import IsOurs, nothing_is_ours, ours
from holdfast.tools.own import OwnPlaces
from holdfast.tools.reach import reach_of
from holdfast.tools.schema import BadSchema, SchemaGate
from holdfast.tools.secret_files import SecretFiles

if TYPE_CHECKING:
    from holdfast.tools.writing import NewDigest

PLAN = "plan"
"""The last gate before the hooks."""
RATE = "rate"
TOO_MANY = (
    "This session has started {calls} within an hour, and that is the limit ([policy] actions_per_hour)."
)
_MAX_NAMES = 8
NO_PLAN = (
    "{tool} was refused: this run needs a plan before anything that writes, executes or sends. Call update_plan "
    "with the steps first, on its own or before this call."
)


class Case(msgspec.Struct, frozen=True):
    """What a gate judges: the call, and the findings of the gates before it."""

    proposal: Proposal
    spec: ToolSpec
    values: dict[str, Any] = {}
    """The arguments, after they passed the schema."""
    canonical: str = ""
    """The arguments as JSON: what is run, shown and approved."""
    resources: tuple[Resource, ...] = EVERYTHING
    """What the call would touch, as the gates report it."""
    decisions: tuple[Decision, ...] = ()
    """The decisions, in order."""
    facts: Facts | None = None
    """What the policy judged."""
    lapsed: str = ""
    """A grant that would cover the call, and has ended."""

    @property
    def is_asked(self) -> bool:
        """Return whether a gate asks for approval, given or not."""
        return "ask" in [decision.verdict for decision in self.decisions]

    @property
    def is_open(self) -> bool:
        """Return whether approval is still missing: a gate asks for it, and nobody has given it."""
        return self.is_asked and APPROVAL not in [decision.by for decision in self.decisions]


Verdict = Case | Refused


class Gate(msgspec.Struct, frozen=True):
    """A gate."""

    name: str
    judge: Callable[[Case], Awaitable[Verdict]]
    pace: Literal["quick", "slow"]
    """`quick`: it only looks up names on the disk and can run inside a commit. `slow`: it may wait, so it has its own
    limit and can be stopped.
    """
    applies: Callable[[ToolSpec, Settings], bool] = lambda spec, settings: True
    """Whether a slow gate judges the calls of this tool."""


def gates_of(
    secret_in: Callable[[str], str],
    own: OwnPlaces,
    files: SecretFiles | None = None,
    new_digest: NewDigest = hashlib.sha256,
) -> tuple[Gate, ...]:
    """All gates in order. The next gate does not see a refused call.

    Args:
        secret_in: Returns the name of a known secret whose value is in a text; empty if no value is.
        own: Holdfast's own files.
        files: The secret files of workspaces; None: nothing of them is known.
        new_digest: Makes the marks of the files that file tools wrote.
    """
    return (
        Gate("schema", partial(_schema, SchemaGate()), "quick"),
        Gate("secrets", partial(_secrets, secret_in, files), "quick"),
        Gate("policy", partial(_policy, own, new_digest), "quick"),
        Gate(PLAN, _plan, "quick"),
        # Hooks come here (`tools.hooked`).
        Gate("taint", _taint, "quick"),
        Gate(RATE, _rate, "quick"),
        Gate(APPROVAL, _approval, "quick"),
    )


async def passed(gates: Sequence[Gate], case: Case) -> Verdict:
    """Take a case through the gates, in order: what they found, or what the first refusing one says."""
    for gate in gates:
        verdict = await gate.judge(case)
        if type(verdict) is not Case:  # `isinstance` takes ten times as long to say no to a struct
            return verdict
        case = verdict
    return case


async def _schema(schemas: SchemaGate, case: Case) -> Verdict:
    """Check that the arguments fit the tool. From here on, only their canonical form counts."""
    spec, text = case.spec, case.proposal.call.arguments
    try:
        strips = case.proposal.settings.policy.unknown_arguments == "strip"
        checked = schemas.check_at_once(spec, text, strips=strips)
        if checked is None:
            checked = await in_thread(lambda: schemas.check(spec, text, strips=strips))
    except BadSchema as error:
        message = f"{spec.name} cannot be called: its schema is broken ({error})."
        return refused("schema", Failure("tool_validation", message))
    if isinstance(checked, Failure):
        return refused("schema", checked)
    noted = [Decision("schema", "allow", CONVERTED, each) for each in checked.conversions]
    if checked.stripped:
        noted.append(Decision("schema", "allow", STRIPPED, _listed(checked.stripped)))
    return msgspec.structs.replace(
        case, values=checked.values, canonical=checked.canonical, decisions=(*case.decisions, *noted)
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *([f"{more:,} more"] if more > 0 else [])])


async def _secrets(secret_in: Callable[[str], str], files: SecretFiles | None, case: Case) -> Verdict:
    """Refuse a call that contains the value of a known secret: arguments are stored, shown and sent."""
    found = [case.canonical]
    if "\\" in case.canonical:  # an escaped quote or newline would hide it
        found += texts(case.values)
    if "method" in case.spec.kinds.values():  # headers have passwords in Base64
        found += credentials_in(case.values)
    name, workspace = "", case.proposal.settings.tools.workspace
    for text in found:
        name = name or secret_in(text) or (files.named_in(text, workspace) if files is not None else "")
    if not name:
        return case
    message = (
        f"{case.spec.name} was refused: its arguments contain the value of the secret {name}. Leave the value "
        f"out and refer to the secret by its name: {name}."
    )
    if case.spec.name == HTTP_REQUEST:
        message += " A stored secret goes into auth."
    return refused("policy", Failure("policy_denied", message), "secret-value")


async def _policy(own: OwnPlaces, new_digest: NewDigest, case: Case) -> Verdict:
    """Apply the policy rules: deny, then ask, then allow."""
    proposal = case.proposal
    is_ours: IsOurs = nothing_is_ours
    if proposal.written and case.spec.effect == "exec":
        is_ours = ours(proposal.settings.tools.workspace, proposal.written, new_digest)
    collect = partial(facts_of, case.spec, case.values, proposal.settings, own, is_ours)
    try:
        facts = collect(glance=GLANCE_ENTRIES)
    except LooksLong:
        facts = await in_thread(collect)
    decisions = (*case.decisions, *judge(facts))
    decision = strictest(decisions)
    if decision.verdict == "deny":
        return Refused(Failure("policy_denied", f"Refused by policy: {decision.reason}"), decisions)
    return msgspec.structs.replace(case, decisions=decisions, resources=touched(facts), facts=facts)


async def _plan(case: Case) -> Verdict:
    """Refuse what has an effect before there is a plan, if the run needs one."""
    proposal, effect = case.proposal, case.spec.effect
    if proposal.has_plan or not proposal.settings.conduct.needs_plan or effect in ("read", "ask", "tell"):
        return case
    return refused(PLAN, Failure("policy_denied", NO_PLAN.format(tool=case.spec.name)), "no-plan")


async def _taint(case: Case) -> Verdict:
    """Ask about what could send something out, if the session has read what it should not send or follow. A sandbox
    can cut off a command instead.
    """
    proposal = case.proposal
    if proposal.taint.untrusted is None:
        return case
    facts = case.facts
    found = objection(
        case.spec,
        case.values,
        facts.urls if facts is not None else (),
        case.decisions,
        proposal.taint,
        proposal.covered,
        is_proved=facts is not None and is_proved(facts),
    )
    if found is None:
        return case
    return _with(case, cut_instead(found, facts, case.decisions))


async def _rate(case: Case) -> Verdict:
    """Ask about every call of a session that has started too many of them within an hour."""
    most = case.proposal.settings.policy.actions_per_hour
    if not most or case.proposal.started < most or case.spec.effect in ("ask", "tell"):
        return case
    return _with(
        case, Decision(RATE, "ask", "actions_per_hour", TOO_MANY.format(calls=counted(most, "call")))
    )


async def _approval(case: Case) -> Verdict:
    """Ask for approval, if a gate wants it, nobody has given it, and no grant covers the call."""
    if not case.is_open:
        return case
    if case.proposal.is_approved:
        return _with(case, Decision(by=APPROVAL, verdict="allow"))
    return await _granted(case) if case.proposal.grants else case


async def _granted(case: Case) -> Verdict:
    """Let a call pass that a grant covers. Otherwise note the grant that covered such calls until it ended."""
    facts, proposal = case.facts, case.proposal
    if facts is None:
        return case
    grants = covering(case.spec, proposal, facts, case.decisions, case.canonical)
    live = [grant for grant in grants if grant.is_live(proposal.now_ms)]
    if live:
        programs = (await in_thread(lambda: reach_of(facts, ""))).programs if facts.commands else ()
        live = [grant for grant in live if has_programs(grant, programs)]
    if live:
        return _with(case, permission_of(live[0]))
    ended = [grant for grant in grants if not grant.is_live(proposal.now_ms)]
    return msgspec.structs.replace(case, lapsed=ended[-1].id) if ended else case


def _with(case: Case, decision: Decision) -> Case:
    return msgspec.structs.replace(case, decisions=(*case.decisions, decision))


def refused(by: str, failure: Failure, rule: str = "") -> Refused:
    """The answer of a gate that refuses."""
    return Refused(failure, (Decision(by=by, verdict="deny", rule=rule),))
