"""Which grant a call may be offered, and which one covers it.

A grant answers the question that the autonomy asks, and no other one. It covers a command of exactly the same words
whose program has the same content, or a call with exactly the same arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from hashlib import sha256

from holdfast.policy.listed import permitting
from holdfast.policy.rules import Facts
from holdfast.protocol.grants import Grant
from holdfast.protocol.launchers import is_launcher
from holdfast.protocol.ports import Proposal
from holdfast.protocol.rules import SHELL, PolicyRule, WrongRule, rule_of
from holdfast.protocol.tools import Content, Decision, Offer, ToolSpec
from holdfast.tools.facts import file_of

_AUTONOMY = "autonomy:"
_WIDER = "For more, the configuration has [policy] allow."


class NoOffer(Exception):
    """No grant may cover the call. The message says why, as a sentence."""


def offered(
    spec: ToolSpec, proposal: Proposal, facts: Facts, decisions: Sequence[Decision], text: str
) -> Offer:
    """Return the narrowest grant that would cover the call.

    Args:
        spec: The tool.
        proposal: The call, with everything that the session contains by now.
        facts: What the policy judged.
        decisions: What all gates said.
        text: The arguments as canonical JSON.

    Raises:
        NoOffer: no grant may cover it.
    """
    for each in decisions:
        if each.verdict == "ask" and not (each.by == "policy" and each.rule.startswith(_AUTONOMY)):
            raise NoOffer(f"The rule {each.rule or each.by} asks each time, and no grant passes it.")
    if may_send(spec) and proposal.taint.untrusted is not None:
        raise NoOffer(f"This session has read untrusted text, and {spec.name} may send something.")
    if spec.name == SHELL and facts.commands:
        return Offer(_rule_of_command(facts))
    if facts.commands:
        raise NoOffer(f"{spec.name} runs commands, and only those of `shell` can be granted.")
    path = facts.paths[0].given if len(facts.paths) == 1 else ""
    rule = f"{spec.name}({path})" if path and _is_rule(f"{spec.name}({path})") else spec.name
    return Offer(rule, sha256(text.encode()).hexdigest())


def covering(
    spec: ToolSpec, proposal: Proposal, facts: Facts, decisions: Sequence[Decision], text: str
) -> list[Grant]:
    """Return the grants for such a call that have not ended, and those that have; the content of its program is not
    compared. Raises nothing. Arguments as of `offered`."""
    try:
        offer = offered(spec, proposal, facts, decisions, text)
    except NoOffer:
        return []
    source, workspace = spec.source, proposal.settings.tools.workspace
    return [
        grant
        for grant in proposal.grants
        if (grant.tool, grant.offer, grant.source, grant.workspace) == (spec.name, offer, source, workspace)
    ]


def has_programs(grant: Grant, programs: Sequence[Content]) -> bool:
    """Return whether a call runs just the programs of the grant, with the same content."""
    return grant.programs == tuple(programs)


def may_send(spec: ToolSpec) -> bool:
    """Return whether a call of the tool could send something."""
    return spec.effect in ("exec", "network")


def _rule_of_command(facts: Facts) -> str:
    literal = facts.commands[0].plain if len(facts.commands) == 1 else ()
    if not literal:
        raise NoOffer(f"Only a command of literal words can be granted. {_WIDER}")
    if len(literal) > 1:
        raise NoOffer(f"Only a single command can be granted, and this has {len(literal)}. {_WIDER}")
    words = literal[0].texts
    file = file_of(words[0], facts.workspace)
    if is_launcher(words[0]) or is_launcher(file):
        raise NoOffer(f"`{words[0]}` runs whatever it is given.")
    rule = f"{SHELL}({shlex.join(words)})"
    if not _is_rule(rule) or rule_of(rule).is_open or rule_of(rule).words != words:
        raise NoOffer(f"No rule has exactly these words. {_WIDER}")
    if permitting([PolicyRule(rule)], facts.commands, {words[0]: file}, facts.workspace) is None:
        raise NoOffer(f"`{words[0]}` is not a program outside the workspace, or a path to one.")
    return rule


def _is_rule(text: str) -> bool:
    try:
        rule_of(text)
    except WrongRule:
        return False
    return True
