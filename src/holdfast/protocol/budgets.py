"""Budgets that are wider than a run: what a session, a user or a home may spend, and in which time.

`core.budgets` decides whether an attempt may reserve money in them, and `runtime.purse` asks the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from holdfast.protocol.limits import usd

Scope = Literal["home", "month", "day", "user_month", "user_day", "session"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Reached = Literal[
    "budget_home", "budget_month", "budget_day", "budget_user_month", "budget_user_day", "budget_session"
]
"""Why a run ended at such a limit."""
REACHED: dict[Scope, Reached] = dict(zip(SCOPES, get_args(Reached), strict=True))
LAST_PASS_KEY = ""
"""The key of what a run keeps for its last pass. No attempt has it."""
WhenReached = Literal["stop", "park"]


class Budgets(msgspec.Struct, frozen=True):
    """The limits of `[budgets]`, in micro-dollars. None: there is no limit."""

    home: int | None = None
    month: int | None = None
    day: int | None = None
    user_month: int | None = None
    """The limit of each user, as `user_day`."""
    user_day: int | None = None
    session: int | None = None
    zone: str = "UTC"
    """The time zone of days and months."""
    when_reached: WhenReached = "stop"

    @property
    def is_set(self) -> bool:
        """Whether anything is limited."""
        return any(getattr(self, scope) is not None for scope in SCOPES)


class Bucket(msgspec.Struct, frozen=True):
    """One budget: a scope, in its time, of one user or session."""

    scope: Scope
    limit_microusd: int | None = None
    name: str = ""
    """`2026-11-23`, `2026-11`, a user or a session; empty for the home."""
    begun_ms: int = 0
    ends_ms: int = 0
    """0: never."""
    user: str = ""
    """Whose it is; empty: everybody's."""
    session: str = ""

    @property
    def key(self) -> str:
        """What distinguishes it from all others, whatever its limit is."""
        return "\n".join((self.scope, str(self.begun_ms), str(self.ends_ms), self.user, self.session))

    @property
    def words(self) -> str:
        """The budget as part of a sentence: `budget of $0.50 a day`."""
        return f"budget of ${usd(self.limit_microusd or 0)} {_WORDS[self.scope]}"


_WORDS: dict[Scope, str] = {
    "home": "of this home",
    "month": "a month",
    "day": "a day",
    "user_month": "a month for each user",
    "user_day": "a day for each user",
    "session": "of the session",
}


class Reservation(msgspec.Struct, frozen=True):
    """Money that an attempt may cost, or that a run keeps for its last pass."""

    session: str
    key: str
    """The attempt's key, or `LAST_PASS_KEY`."""
    begun_ms: int
    user: str
    microusd: int


class Claim(msgspec.Struct, frozen=True):
    """What a session wants to reserve, in all budgets or in none. It replaces what it had under the same keys."""

    attempt: Reservation
    kept_microusd: int | None
    """What it keeps for its last pass after the attempt. None: as much as before."""
    buckets: tuple[Bucket, ...]
    """The budgets that count."""
    leaves_microusd: int = 0
    """What has to be left beside it."""


class Balance(msgspec.Struct, frozen=True):
    """The state of one budget."""

    bucket: Bucket
    spent: int = 0
    estimated: int = 0
    """The part of `spent` that no provider has counted."""
    held: int = 0
    """What attempts had reserved whose process died."""
    reserved: int = 0
    """What attempts and last passes have reserved."""

    @property
    def used(self) -> int:
        return self.spent + self.held

    @property
    def left(self) -> int:
        """What nobody has spent, held or reserved; without a limit more than anybody has."""
        limit = self.bucket.limit_microusd
        return (1 << 62 if limit is None else limit) - self.used - self.reserved


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim."""

    balances: tuple[Balance, ...]
    """The budgets, without what the session itself has reserved under the keys of the claim."""
    short: Balance | None = None
    """The budget with the least left, if it refuses. Then nothing new is reserved, and the attempt has nothing."""
    left: int = 0
    """What a claim of this session could get, in all of them."""


def counts_in(bucket: Bucket, begun_ms: int, user: str, session: str) -> bool:
    """Return whether an attempt counts in a budget: it belongs to the day on which it began."""
    return (
        bucket.begun_ms <= begun_ms
        and (not bucket.ends_ms or begun_ms < bucket.ends_ms)
        and bucket.user in ("", user)
        and bucket.session in ("", session)
    )


def reserved_in(bucket: Bucket, reservations: Sequence[Reservation]) -> int:
    """Return what these have reserved in a budget."""
    return sum(
        [each.microusd for each in reservations if counts_in(bucket, each.begun_ms, each.user, each.session)]
    )
