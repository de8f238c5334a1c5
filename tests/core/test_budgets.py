"""Claims on budgets, as pure decisions: thousands of schedules of runs that call, crash, and end."""

from __future__ import annotations

from datetime import UTC as UTC_TIME
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.budgets import buckets_of, decide_claim
from holdfast.protocol.budgets import LAST_PASS_KEY, Bucket, Budgets, Claim, Claimed, Reservation, counts_in
from holdfast.protocol.spending import Amounts
from holdfast.protocol.zone import UTC, Zone, day_at, month_at

DAY_MS = 86_400_000
LIMITS = Budgets(home=5_000, day=1_000, user_day=600, session=400)


class Home:
    """The books and the reservations of a home, as a store has them."""

    def __init__(self) -> None:
        self.now_ms = 10 * DAY_MS
        self.lines: list[tuple[Reservation, Amounts]] = []
        self.reserved: list[Reservation] = []
        self.began: set[str] = set()
        """The sessions whose run has made a call."""
        self.open: dict[str, Reservation] = {}
        """The attempts that were recorded and have no outcome."""
        self.is_overcharged = False

    def claim(self, session: str, microusd: int, kept: int) -> Claimed:
        user = "ann" if session in "ab" else "bob"
        attempt = Reservation(session, "m", self.now_ms, user, microusd)
        buckets = buckets_of(LIMITS, session, user, self.now_ms, lambda _: UTC)
        amounts = [self.booked(bucket) for bucket in buckets]
        claimed, mine = decide_claim(Claim(attempt, kept, buckets), amounts, self.reserved)
        self.reserved = [each for each in self.reserved if each.session != session] + mine
        return claimed

    def booked(self, bucket: Bucket) -> Amounts:
        counting = [a for r, a in self.lines if counts_in(bucket, r.begun_ms, r.user, r.session)]
        return sum(counting, Amounts())

    def free(self, session: str, *but: str) -> None:
        self.reserved = [each for each in self.reserved if each.session != session or each.key in but]

    def settle(self, session: str, spent: int) -> None:
        attempt = self.open.pop(session)
        self.is_overcharged |= spent > attempt.microusd
        self.lines.append((attempt, Amounts(spent)))
        self.free(session, LAST_PASS_KEY)

    def crash(self, session: str) -> None:
        """The process dies, and the next driver comes: what was recorded is held, and the rest is free."""
        if session in self.open:
            attempt = self.open.pop(session)
            self.lines.append((attempt, Amounts(held=attempt.microusd)))
        self.free(session, LAST_PASS_KEY)

    def check(self) -> None:
        used = {
            bucket: self.booked(bucket)
            for session in "abcd"
            for day in range(10, 13)
            for bucket in buckets_of(
                LIMITS, session, "ann" if session in "ab" else "bob", day * DAY_MS, lambda _: UTC
            )
        }
        for bucket, amounts in used.items():
            reserved = sum(
                r.microusd for r in self.reserved if counts_in(bucket, r.begun_ms, r.user, r.session)
            )
            total = amounts.spent + amounts.held + reserved
            assert bucket.limit_microusd is not None
            assert self.is_overcharged or total <= bucket.limit_microusd, bucket


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "lost", "settle", "crash", "end", "midnight"]),
        st.sampled_from("abcd"),
        st.integers(0, 300),
        st.integers(0, 120),
    ),
    max_size=60,
)


@pytest.mark.requirement("H3", "L2-07", "B2")
@given(STEPS, st.booleans())
def test_no_schedule_exceeds_a_budget_and_each_run_that_began_can_make_its_last_pass(
    steps: list[tuple[str, str, int, int]], is_lying: bool
) -> None:
    home = Home()
    for step, session, amount, share in steps:
        match step:
            case "call" | "lost" if session not in home.open:
                kept = share
                if home.claim(session, amount, kept).short is None:
                    if step == "call":  # otherwise the process dies before the attempt is recorded
                        home.open[session] = next(
                            r for r in home.reserved if (r.session, r.key) == (session, "m")
                        )
                        home.began.add(session)
                    else:
                        home.crash(session)
            case "settle" if session in home.open:
                most = home.open[session].microusd
                home.settle(session, amount * 5 if is_lying else min(amount, most))
            case "crash":
                home.crash(session)
            case "end":
                if session in home.open:
                    home.settle(session, home.open[session].microusd)
                # The last pass: whatever the others did, it gets what the run kept for it.
                kept = sum(
                    r.microusd for r in home.reserved if (r.session, r.key) == (session, LAST_PASS_KEY)
                )
                day = home.now_ms // DAY_MS
                is_of_today = all(r.begun_ms // DAY_MS == day for r in home.reserved if r.session == session)
                claimed = home.claim(session, kept, 0)
                assert not is_of_today or claimed.short is None
                home.free(session)
                home.began.discard(session)
            case "midnight":
                home.now_ms = min(home.now_ms + DAY_MS, 12 * DAY_MS)
            case _:
                pass
        home.check()


def zone_of(name: str) -> object:
    """Return what says how far a zone is ahead of UTC."""

    def at(now_ms: int) -> Zone:
        offset = datetime.fromtimestamp(now_ms // 1000, UTC_TIME).astimezone(ZoneInfo(name)).utcoffset()
        assert offset is not None
        return Zone(name, round(offset.total_seconds()))

    return at


@pytest.mark.parametrize(
    "name", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia"]
)
@given(st.integers(0, 2_000_000_000))
def test_days_and_months_follow_each_other_without_a_gap(name: str, second: int) -> None:
    at, now_ms = zone_of(name), second * 1000
    for period_at, least, most in ((day_at, 23, 25), (month_at, 27 * 24, 32 * 24)):
        found = period_at(now_ms, at)  # type: ignore[arg-type]
        assert found.begun_ms <= now_ms < found.ends_ms
        assert period_at(found.begun_ms, at) == found  # type: ignore[arg-type]
        following = period_at(found.ends_ms, at)  # type: ignore[arg-type]
        assert following.begun_ms == found.ends_ms
        assert following.name > found.name
        assert least <= (found.ends_ms - found.begun_ms) / 3_600_000 <= most
    local = datetime.fromtimestamp(second, ZoneInfo(name))
    assert month_at(now_ms, at).name == f"{local:%Y-%m}"  # type: ignore[arg-type]
