"""What every store must do with money that is reserved in budgets (`protocol.budgets`), as tests. `StoreConformance`
has them."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.protocol.budgets import LAST_PASS_KEY, Bucket, Claim, Claimed, Reservation
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.ports import Store
from holdfast.protocol.spending import LOST, Amounts, Line
from holdfast.testing.driving import NOW_MS, drive

DAY_MS = 86_400_000
HOME = Bucket("home", 100)
TODAY = Bucket("day", 60, "today", NOW_MS, NOW_MS + DAY_MS)
TOMORROW = Bucket("day", 60, "tomorrow", NOW_MS + DAY_MS, NOW_MS + 2 * DAY_MS)


def a_claim(
    session: str, key: str, microusd: int, *buckets: Bucket, kept: int | None = 0, **others: Any
) -> Claim:
    """Return a claim of ann."""
    begun_ms, user = others.pop("begun_ms", NOW_MS), others.pop("user", "ann")
    return Claim(Reservation(session, key, begun_ms, user, microusd), kept, buckets, **others)


def reserved(claimed: Claimed) -> bool:
    """Return whether the claim was granted."""
    return claimed.short is None


async def in_all(store: Store, *buckets: Bucket) -> list[tuple[int, int]]:
    """Return what is spent or held in each budget, and what is reserved."""
    return [(each.used, each.reserved) for each in await store.balances(buckets)]


class BudgetConformance:
    """The tests. `store` is a fixture of the class that inherits: an empty store, for one test."""

    async def test_money_is_reserved_in_all_budgets_or_in_none(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        assert reserved(await store.reserve(a_claim(one.session, "m1", 40, HOME, TODAY, kept=5)))
        refused = await store.reserve(a_claim(two.session, "m1", 16, HOME, TODAY))
        assert refused.short is not None
        assert (refused.short.bucket, refused.left) == (TODAY, 15)
        assert await in_all(store, HOME, TODAY, TOMORROW) == [(0, 45), (0, 45), (0, 0)]
        assert reserved(await store.reserve(a_claim(two.session, "m1", 15, HOME, TODAY)))
        assert await in_all(store, HOME, TODAY, TOMORROW) == [(0, 60), (0, 60), (0, 0)]

    async def test_a_claim_replaces_what_its_session_had_under_its_keys(self, store: Store) -> None:
        one = await drive(store)
        assert reserved(await store.reserve(a_claim(one.session, "m1", 40, TODAY, kept=20)))
        assert reserved(await store.reserve(a_claim(one.session, "m1", 10, TODAY, kept=50)))
        assert await in_all(store, TODAY) == [(0, 60)]
        refused = await store.reserve(a_claim(one.session, "m1", 11, TODAY, kept=50))
        assert (reserved(refused), refused.left) == (False, 60)
        assert await in_all(store, TODAY) == [(0, 50)], "the attempt has nothing, and the last pass has all"
        assert reserved(await store.reserve(a_claim(one.session, "m1", 60, TODAY)))
        assert await in_all(store, TODAY) == [(0, 60)]

    async def test_a_side_call_leaves_what_the_run_keeps_and_what_it_needs(self, store: Store) -> None:
        one = await drive(store)
        assert reserved(await store.reserve(a_claim(one.session, "m1", 10, TODAY, kept=20)))
        beside = a_claim(one.session, "s1", 20, TODAY, kept=None, leaves_microusd=11)
        assert not reserved(await store.reserve(beside))
        beside = a_claim(one.session, "s1", 20, TODAY, kept=None, leaves_microusd=10)
        assert reserved(await store.reserve(beside))
        assert await in_all(store, TODAY) == [(0, 50)]

    async def test_a_commit_frees_what_it_names_no_more_and_books_what_was_spent(self, store: Store) -> None:
        one = await drive(store)
        await store.reserve(a_claim(one.session, "m1", 40, HOME, TODAY, kept=5))
        line = Line(one.session, "m1", NOW_MS, "ann", "p:m", "work", Amounts(7, 0, 1))
        await one.commit(MessageReceived("one"), lines=(line,), reserves=(LAST_PASS_KEY,))
        assert await in_all(store, HOME, TODAY) == [(8, 5), (8, 5)]
        await one.commit(MessageReceived("two"))
        assert await in_all(store, HOME) == [(8, 5)]
        await one.commit(MessageReceived("three"), reserves=())
        assert await in_all(store, HOME) == [(8, 0)]

    async def test_an_attempt_counts_on_the_day_on_which_it_began(self, store: Store) -> None:
        one = await drive(store)
        late = NOW_MS + DAY_MS - 1
        await store.reserve(a_claim(one.session, "m1", 40, TODAY, begun_ms=late))
        assert await in_all(store, TODAY, TOMORROW) == [(0, 40), (0, 0)]
        line = Line(one.session, "m1", late, "ann", "p:m", "work", Amounts(30))
        await one.commit(MessageReceived("after midnight"), lines=(line,), reserves=())
        assert await in_all(store, TODAY, TOMORROW) == [(30, 0), (0, 0)]
        kept = await store.reserve(a_claim(one.session, "m2", 61, TOMORROW, begun_ms=late + 1))
        assert (reserved(kept), kept.left) == (False, 60)

    async def test_users_and_sessions_have_budgets_of_their_own(self, store: Store) -> None:
        one = await drive(store)
        ann, bob = (Bucket("user_day", 50, name, NOW_MS, NOW_MS + DAY_MS, name) for name in ("ann", "bob"))
        mine, other = (Bucket("session", 50, name, session=name) for name in (one.session, "another session"))
        await store.reserve(a_claim(one.session, "m1", 40, ann, mine))
        assert await in_all(store, ann, bob, mine, other) == [(0, 40), (0, 0), (0, 40), (0, 0)]
        line = Line(one.session, "m1", NOW_MS, "ann", "p:m", "work", Amounts(30))
        await one.commit(MessageReceived("one"), lines=(line,), reserves=())
        assert await in_all(store, ann, bob, mine, other) == [(30, 0), (0, 0), (30, 0), (0, 0)]

    async def test_a_last_pass_may_use_what_was_kept_for_it_whatever_others_were_charged(
        self, store: Store
    ) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await store.reserve(a_claim(one.session, "m1", 20, TODAY, kept=9))
        over = Line(two.session, "m1", NOW_MS, "bob", "p:m", "work", Amounts(58))
        await two.commit(MessageReceived("more than reserved"), lines=(over,))
        refused = await store.reserve(a_claim(one.session, "m1", 20, TODAY, kept=9))
        assert (reserved(refused), refused.left) == (False, 9)
        assert reserved(await store.reserve(a_claim(one.session, "m1", 9, TODAY)))

    async def test_what_was_booked_before_there_was_a_budget_counts_once(self, store: Store) -> None:
        one = await drive(store)
        for key, spent in (("m1", 3), ("m2", 4), ("m3", 5)):
            line = Line(one.session, key, NOW_MS, "ann", "p:m", "work", Amounts(spent, 1, 1))
            await one.commit(MessageReceived(key), lines=(line,))
            claimed = await store.reserve(a_claim(one.session, "m9", 1, HOME, TODAY))
            assert [each.used for each in claimed.balances] == [await _used(store)] * 2
        assert [(each.spent, each.estimated, each.held) for each in claimed.balances] == [(12, 3, 3)] * 2

    async def test_a_deleted_session_frees_its_money_and_its_spending_stays(self, store: Store) -> None:
        one = await drive(store)
        line = Line(one.session, "m1", NOW_MS, "ann", "p:m", "work", Amounts(30))
        await one.commit(MessageReceived("one"), lines=(line,))
        await store.reserve(a_claim(one.session, "m2", 20, HOME, kept=9))
        await store.delete(one.lease)
        assert await in_all(store, HOME) == [(50, 0)], "nobody knows what its last attempt cost"
        assert list(await store.lines())[1:] == [
            Line(one.session, "m2", NOW_MS, "ann", "", LOST, Amounts(held=20))
        ]

    async def test_many_claims_at_once_never_get_more_than_there_is(self, store: Store) -> None:
        sessions = [await drive(store, number) for number in range(1, 13)]
        claims = [a_claim(each.session, "m1", 9, HOME, TODAY, kept=2) for each in sessions]
        granted = await asyncio.gather(*[store.reserve(claim) for claim in claims])
        assert sum(map(reserved, granted)) == 60 // 11
        assert await in_all(store, HOME) == [(0, 55)]


async def _used(store: Store) -> int:
    amounts = await store.spent()
    return amounts.spent + amounts.held
