"""Decides whether a session may reserve money in budgets that are wider than a run: in all of them, or in none.

Every store asks this inside the transaction that writes the answer. What an attempt may cost is in `budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.protocol.budgets import (
    LAST_PASS_KEY,
    Balance,
    Bucket,
    Budgets,
    Claim,
    Claimed,
    Reservation,
    counts_in,
    reserved_in,
)
from holdfast.protocol.spending import Amounts
from holdfast.protocol.zone import Period, Zone, day_at, month_at

# An example: 100,000 micro-dollars a day, of which 40,000 are spent. Another run has 20,000 reserved and keeps 5,000
# for its last pass, so 35,000 are left. This session keeps 6,000 already, and wants 25,000 for a call and 8,000 for a
# last pass after it: 33,000 fit, so both are reserved. Had it wanted 36,000, it would hear that 35,000 are left. With
# 38,000 from the other run, nothing would be left, and a last pass of up to 6,000 could still be claimed.


def decide_claim(
    claim: Claim, amounts: Sequence[Amounts], reservations: Sequence[Reservation]
) -> tuple[Claimed, list[Reservation]]:
    """Return the answer to a claim, and what the session then has reserved under the keys of the claim.

    Args:
        claim: What the session wants.
        amounts: What is booked in each of the claim's budgets.
        reservations: All that anybody has reserved.
    """
    session, attempt = claim.attempt.session, claim.attempt
    # Another try under the same key replaces the last one. A side call leaves the last pass as it is.
    keys = {attempt.key} if claim.kept_microusd is None else {attempt.key, LAST_PASS_KEY}
    mine = [each for each in reservations if each.session == session and each.key in keys]
    others = [each for each in reservations if not (each.session == session and each.key in keys)]
    kept = [each for each in mine if each.key == LAST_PASS_KEY]
    wants = attempt.microusd + (claim.kept_microusd or 0) + claim.leaves_microusd
    balances = tuple(
        [
            Balance(bucket, booked.spent, booked.estimated, booked.held, reserved_in(bucket, others))
            for bucket, booked in zip(claim.buckets, amounts, strict=True)
        ]
    )
    # What a run keeps is its own, also if others were charged more than they had reserved.
    lefts = [max(each.left, _own(each.bucket, attempt, kept)) for each in balances]
    least = min(lefts)
    short = balances[lefts.index(least)] if least < wants else None
    claimed = Claimed(balances, short, least)
    # A refused attempt reserves nothing, but the last pass keeps what it has: the run ends with it.
    if short is not None:
        return claimed, kept
    wanted = [attempt]
    if claim.kept_microusd:
        wanted.append(
            Reservation(session, LAST_PASS_KEY, attempt.begun_ms, attempt.user, claim.kept_microusd)
        )
    return claimed, wanted


def _own(bucket: Bucket, attempt: Reservation, kept: Sequence[Reservation]) -> int:
    """Return what the session keeps in a budget for its last pass."""
    counts = counts_in(bucket, attempt.begun_ms, attempt.user, attempt.session)
    return reserved_in(bucket, kept) if counts else 0


def buckets_of(
    budgets: Budgets,
    session: str,
    user: str,
    now_ms: int,
    zone_at: Callable[[int], Zone],
    *,
    is_all: bool = False,
) -> tuple[Bucket, ...]:
    """Return the budgets of a session and a user at a time. `is_all`: also those without a limit."""
    periods = day_at(now_ms, zone_at), month_at(now_ms, zone_at)
    return buckets_in(budgets, session, user, *periods, is_all=is_all)


def buckets_in(
    budgets: Budgets, session: str, user: str, day: Period, month: Period, *, is_all: bool = False
) -> tuple[Bucket, ...]:
    """Do the same, in a day and a month that are known."""
    # Home, month and day come first: `holdfast budget` always shows these three.
    found = (
        Bucket("home", budgets.home),
        Bucket("month", budgets.month, *month),
        Bucket("day", budgets.day, *day),
        Bucket("user_month", budgets.user_month, user, month.begun_ms, month.ends_ms, user),
        Bucket("user_day", budgets.user_day, user, day.begun_ms, day.ends_ms, user),
        Bucket("session", budgets.session, session, session=session),
    )
    return tuple([each for each in found if is_all or each.limit_microusd is not None])
