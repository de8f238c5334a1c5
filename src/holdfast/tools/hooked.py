"""The gate of the hooks: after the policy, they may deny a call, ask about it, or change its arguments.

Changed arguments go through the gates before again, and to every hook that has not seen them. A hook only makes a
verdict stricter: what was asked about before a change is still asked about after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.protocol.failures import Failure
from holdfast.protocol.hooks import CHANGED, HOOK, NO_HOOKS, ROUNDS, Hook, Occasion, failure_of, hooks_on
from holdfast.protocol.ports import Check, Hooks
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import Decision, Refused, ToolSpec
from holdfast.tools.gates import PLAN, Case, Gate, Verdict, passed

UNSETTLED = "The hooks kept changing each other's arguments of {tool}, so it was refused."
_encode = msgspec.json.Encoder(order="sorted").encode


def with_hooks(gates: Sequence[Gate], hooks: Hooks | None) -> tuple[Gate, ...]:
    """Return the gates with that of the hooks in its place.

    Args:
        gates: All other gates, in order.
        hooks: Asks the hooks; None: a call that a hook must see is refused.
    """
    place = [gate.name for gate in gates].index(PLAN) + 1
    asking = _Asking(tuple(gates[:place]), hooks)
    return (*gates[:place], Gate(HOOK, asking.judge, "slow", _applies), *gates[place:])


def _applies(spec: ToolSpec, settings: Settings) -> bool:
    return len(settings.policy.hooks) > 0 and len(_asked_about(spec, settings)) > 0


def _asked_about(spec: ToolSpec, settings: Settings) -> list[Hook]:
    # Nothing runs when the model tells Holdfast something, so there is nothing to prevent.
    return [] if spec.effect == "tell" else hooks_on("before_tool", settings.policy.hooks, spec.name)


class _Asking(msgspec.Struct, frozen=True):
    """Asks the hooks about calls."""

    before: tuple[Gate, ...]
    """The gates that changed arguments go through again."""
    hooks: Hooks | None

    async def judge(self, case: Case) -> Verdict:
        """Ask the hooks one after the other, until each has seen the arguments that will run."""
        settings, check = case.proposal.settings, case.proposal.check
        if not settings.policy.hooks or check is None:  # without a check nobody makes this call
            return case
        asked = _asked_about(case.spec, settings)
        # An example: `guard` denies `rm`, and `sandboxer`, which comes later, puts a word in front of each command.
        # So `guard` is asked once more, about the command that will run.
        seen: dict[str, str] = {}
        for _ in range(ROUNDS):
            for hook in asked:
                if seen.get(hook.name) == case.canonical:
                    continue
                seen[hook.name] = case.canonical
                verdict = await self._after(hook, case, check)
                if isinstance(verdict, Refused):
                    return verdict
                if verdict.canonical != case.canonical:
                    seen[hook.name] = verdict.canonical  # it need not see its own change
                case = verdict
            if all(seen[hook.name] == case.canonical for hook in asked):
                return case
        message = UNSETTLED.format(tool=case.spec.name)
        decisions = (*case.decisions, Decision(HOOK, "deny", "hook:*", message))
        return Refused(Failure("policy_denied", message), decisions)

    async def _after(self, hook: Hook, case: Case, check: Check) -> Verdict:
        """Return the case after one hook has answered."""
        answer = failure_of(hook, NO_HOOKS)
        if self.hooks is not None:
            answer = await self.hooks.ask(hook, _occasion(case), check)
        if answer.verdict == "deny":
            said = f": {answer.reason}" if answer.reason else "."
            decisions = (*case.decisions, Decision(HOOK, "deny", hook.rule, answer.reason))
            return Refused(Failure("policy_denied", f"Refused by the hook {hook.name}{said}"), decisions)
        if answer.arguments is not None:
            changed = _encode(answer.arguments).decode()
            if changed != _encode(case.values).decode():
                verdict = await self._changed(hook, case, changed)
                if isinstance(verdict, Refused):
                    return verdict
                case = verdict
        if answer.verdict == "ask":
            reason = answer.reason or f"The hook {hook.name} asks."
            return _with(case, Decision(HOOK, "ask", hook.rule, reason))
        return _with(case, Decision(HOOK, "allow", hook.rule, answer.reason))

    async def _changed(self, hook: Hook, case: Case, arguments: str) -> Verdict:
        """Take other arguments through the gates before the hooks."""
        call = msgspec.structs.replace(case.proposal.call, arguments=arguments)
        proposal = msgspec.structs.replace(case.proposal, call=call)
        before = _with(case, Decision(HOOK, "allow", hook.rule, CHANGED)).decisions
        verdict = await passed(self.before, Case(proposal, case.spec))
        if isinstance(verdict, Refused):
            said = f"The hook {hook.name} changed the arguments of this call, and then it was refused."
            failure = msgspec.structs.replace(
                verdict.failure, code="policy_denied", message=f"{said} {verdict.failure.message}"
            )
            return Refused(failure, (*before, *verdict.decisions))
        fresh = [each for each in verdict.decisions if each not in before]
        return msgspec.structs.replace(verdict, decisions=(*before, *fresh))


def _with(case: Case, decision: Decision) -> Case:
    if decision in case.decisions:
        return case
    return msgspec.structs.replace(case, decisions=(*case.decisions, decision))


def _occasion(case: Case) -> Occasion:
    proposal, spec = case.proposal, case.spec
    call_id = proposal.call.call_id
    return Occasion(
        event="before_tool",
        session=proposal.session,
        workspace=proposal.settings.tools.workspace,
        key=f"{proposal.session}:{call_id}",
        facts={"call": call_id, "tool": spec.name, "effect": spec.effect, "arguments": case.values},
    )
