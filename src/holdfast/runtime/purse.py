"""Reserves the cost of model calls in the budgets that are wider than a run.

`core.budget` says what a call may cost, and the store whether all budgets have that much. If not, the call is
prepared again for what is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.core import budget
from holdfast.core.budget import UNLIMITED, Grant
from holdfast.core.budgets import buckets_in
from holdfast.core.state import State, facts, facts_for
from holdfast.protocol.budgets import REACHED, Balance, Budgets, Claim, Claimed, Reservation
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts, usd
from holdfast.protocol.outcomes import BudgetNear, CircuitMet, Unaffordable, Unready
from holdfast.protocol.request import SidePurpose
from holdfast.protocol.zone import Period, Zone, day_at, head_at, month_at
from holdfast.runtime.exchange import Cleared, held_back

TRIES = 8
"""How often a call is prepared for what is left. Meanwhile others may take that too."""
SLACK_MICROUSD = 4
"""For amounts that are rounded up."""
_REST = "What it could cost is more than the {} leaves beside the work."


class Granted(NamedTuple):
    """What the budgets say about a call."""

    found: Grant | Unaffordable | Unready | BudgetNear | CircuitMet
    left_microusd: int = UNLIMITED
    """What they leave for it."""


Ask = Callable[[Claim | None, Grant], Awaitable[Cleared]]
"""Returns whether a call may go out and has its money, if it claims some."""


class Purse:
    """The budgets of a home, for its sessions."""

    def __init__(self, budgets: Budgets, zone: Callable[[str, int], Zone]) -> None:
        self._budgets = budgets
        self._zone = zone
        self._periods: tuple[Period, Period] | None = None
        """The day and the month of the last claim."""

    @property
    def is_limited(self) -> bool:
        """Whether there is any budget."""
        return self._budgets.is_set

    async def grant(
        self,
        key: str,
        state: State,
        now_ms: int,
        afford: Callable[[int], Grant | Unaffordable],
        ask: Ask,
        *,
        is_last_pass: bool,
    ) -> Granted:
        """Reserve what a call for work costs, and what the last pass after it costs. Return what it may use, or why
        it may not be made.

        Args:
            afford: What the call may use with so much money left, by the limits of its run.
            ask: Reserves it, if the call may go out.
        """
        model, left = facts(state), UNLIMITED
        if model.price == "unknown":
            return Granted(Unready(Failure("provider_fatal", unpriced(model))))
        short: Balance | None = None
        for _ in range(TRIES):
            found = afford(left)
            if isinstance(found, Unaffordable):
                break
            kept = (
                0 if is_last_pass or model.price == "free" else budget.last_pass_microusd(state, found, left)
            )
            asked = await ask(self._claim(key, state, now_ms, found.reserved_microusd, kept), found)
            if (refused := asked.refusal(model, now_ms)) is not None:
                return Granted(refused, left)
            claimed = asked.claim
            if claimed.short is None:
                near = None if is_last_pass else _near(claimed, state)
                return Granted(near or found, left)
            short, left = claimed.short, min(claimed.left, left) - SLACK_MICROUSD
        if short is None or (isinstance(found, Unaffordable) and found.reason != "cost"):
            return Granted(found, left)
        return Granted(self._refused(found, short, left, now_ms, is_last_pass=is_last_pass), left)

    async def grant_side(
        self, key: str, state: State, purpose: SidePurpose, now_ms: int, grant: Grant, ask: Ask
    ) -> Grant | Unaffordable | Unready:
        """Reserve what a side call costs. It leaves what the work needs, and is made in full or not at all."""
        model = facts_for(state, purpose)
        if model.price == "unknown":
            return Unaffordable("cost", unpriced(model), 0, 0)
        leaves = budget.next_of_work_microusd(state)
        asked = await ask(self._claim(key, state, now_ms, grant.reserved_microusd, None, leaves), grant)
        if asked.later is not None:
            return held_back(asked.later, model, now_ms)
        if asked.claim.short is None:
            return grant
        bucket = asked.claim.short.bucket
        return Unaffordable(REACHED[bucket.scope], _REST.format(bucket.words), 0, 0)

    def _claim(
        self, key: str, state: State, now_ms: int, microusd: int, kept: int | None, leaves: int = 0
    ) -> Claim:
        user, session = state.principal.name, state.session
        if self._periods is None or not self._periods[0].begun_ms <= now_ms < self._periods[0].ends_ms:
            self._periods = day_at(now_ms, self._zone_at), month_at(now_ms, self._zone_at)
        buckets = buckets_in(self._budgets, session, user, *self._periods)
        attempt = Reservation(session, key, now_ms, user, microusd)
        return Claim(attempt, kept, buckets, leaves)

    def _zone_at(self, at_ms: int) -> Zone:
        return self._zone(self._budgets.zone, at_ms)

    def _refused(
        self, found: Grant | Unaffordable, short: Balance, left: int, now_ms: int, *, is_last_pass: bool
    ) -> Unaffordable | Unready:
        """Return the end of the run, or the wait for the end of the period."""
        bucket, left = short.bucket, left + SLACK_MICROUSD
        what = "a last answer" if is_last_pass else "another model call and a last answer after it"
        message = (
            f"The {bucket.words} is used up."
            if short.bucket.limit_microusd is not None and short.used >= short.bucket.limit_microusd
            else f"With ${usd(max(left, 0))} left of the {bucket.words}, {what} could cost more than that."
        )
        if bucket.ends_ms:
            ends = head_at(bucket.ends_ms, self._zone_at(bucket.ends_ms))[1:-2]
            message += f" It begins anew at {ends}."
        message += f" {bucket.scope}_usd in [budgets] of the configuration is the limit."
        if bucket.ends_ms and self._budgets.when_reached == "park" and not is_last_pass:
            failure = Failure("budget_exhausted", message, detail=REACHED[bucket.scope])
            return Unready(failure, bucket.ends_ms)
        if isinstance(found, Unaffordable):
            return Unaffordable(
                REACHED[bucket.scope], message, found.size_bytes, found.fresh_bytes, found.kinds
            )
        return Unaffordable(REACHED[bucket.scope], message, 0, 0)


def unpriced(model: ModelFacts) -> str:
    """Return why a model without a price may not be called."""
    return (
        f"A budget is set, but the price of {model.name} is not known. Say it in the user file: "
        f'[catalog."{model.name}"] with input_usd_per_mtok and output_usd_per_mtok.'
    )


def _near(claimed: Claimed, state: State) -> BudgetNear | None:
    """Return the first budget of which 80 % is used, unless the run was told."""
    warned = state.run.warned if state.run is not None else ()
    for each in claimed.balances:
        reason, limit = REACHED[each.bucket.scope], each.bucket.limit_microusd
        if limit is not None and each.used >= budget.WARN_SHARE * limit and reason not in warned:
            left = usd(max(limit - each.used, 0))
            return BudgetNear(reason, f"80 % of the {each.bucket.words} is used; ${left} is left.")
    return None
