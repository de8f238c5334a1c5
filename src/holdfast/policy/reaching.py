"""Which hosts the programs of a call may reach by themselves, through the proxy of their sandbox.

`rules` judges what the text of a command names. A program may connect to anything else, so the proxy asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.policy.rules import SANDBOXED, Facts, is_proved
from holdfast.protocol.grants import grant_in
from holdfast.protocol.rules import SHELL
from holdfast.protocol.tools import APPROVAL, Decision
from holdfast.protocol.trust import Taint

CUT = "taint:cut"
"""The rule that lets a command run with its network cut, where it could send what the session has read."""


def hosts_of(facts: Facts | None, decisions: Sequence[Decision], taint: Taint) -> tuple[str, ...]:
    """Return the hosts that a call may reach, as `[network] allow` names them; empty if it runs without network.

    Args:
        facts: What the policy judged; None: nothing.
        decisions: Those of all gates.
        taint: What the session has read. After untrusted text, only what a person approved has a network: the text
            may have told the model what to run, and a grant is older than the text.
    """
    if facts is None or not facts.policy.allowed_hosts or (facts.is_built_in and facts.tool != SHELL):
        return ()
    if facts.effect == "network":  # a function: the gates have judged what it sends
        return facts.policy.allowed_hosts
    if facts.effect != "exec" or any(each.rule in (SANDBOXED, CUT) for each in decisions) or is_proved(facts):
        return ()
    if taint.untrusted is not None and not is_approved(decisions):
        return ()
    return facts.policy.allowed_hosts


def cut_instead(asked: Decision, facts: Facts | None, decisions: Sequence[Decision]) -> Decision:
    """Return the decision that a command runs with its network cut, in place of the question whether it may send
    something; the question where that is not possible.

    Where another gate asks too, the person who decides should know what the session has read. A command that names a
    host would only fail.
    """
    if facts is None or facts.policy.walls.backend == "unsafe":
        return asked
    if facts.tool != SHELL or not facts.is_built_in:
        return asked
    is_asked = any(each.verdict == "ask" for each in decisions)
    if is_asked or any(step.uses.sends for command in facts.commands for step in command.simple):
        return asked
    return Decision(asked.by, "allow", CUT, f"It runs without network. {asked.reason}")


def is_approved(decisions: Sequence[Decision]) -> bool:
    """Return whether a person approved this very call."""
    return APPROVAL in [each.by for each in decisions] and not grant_in(decisions)
