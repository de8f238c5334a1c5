"""What every store must do with circuits and rates (`protocol.services`), as tests. `StoreConformance` has them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.errors import Fenced
from holdfast.protocol.budgets import Bucket, Claim, Reservation
from holdfast.protocol.circuits import CallEnded, Caller, Later, Verdict
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.ports import Store
from holdfast.protocol.rates import Draw, Rate
from holdfast.protocol.services import Outgoing
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import TERM_MS, Driving, drive, new, refused

NAME = "p:m#1"
COOLDOWN_S = 30.0
LIMIT_MS = 5_000
ONE_A_SECOND = Rate(requests_per_minute=60, burst_ms=1_000)


def caller(driving: Driving, key: str = "m1") -> Caller:
    """Return an attempt of a session."""
    return Caller(driving.session, key, driving.lease.epoch)


def outgoing(driving: Driving, key: str = "m1", tokens: int = 0, **rates: Rate) -> Outgoing:
    """Return a call of a session."""
    return Outgoing(NAME, Draw(caller(driving, key), tokens, LIMIT_MS, tuple(rates.items())))


def ended(driving: Driving, verdict: Verdict, key: str = "m1", **changes: Any) -> CallEnded:
    """Return the end of such a call."""
    return CallEnded(caller(driving, key), NAME, verdict, reason=f"it {verdict}", **changes)


async def asked(store: Store, wanted: Outgoing) -> Later | None:
    """Return why a call may not go out now; None if it may."""
    return (await store.may_call(wanted)).later


async def fail(store: Store, driving: Driving, times: int = 3) -> None:
    """Let the service fail."""
    for _ in range(times):
        await store.ended(ended(driving, "fails"))


class ServiceConformance:
    """The tests. `store` is a fixture of the class that inherits: an empty store, for one test, that runs by
    `clock`."""

    async def test_a_service_that_nobody_knows_may_be_called(self, store: Store) -> None:
        one = await drive(store)
        assert await asked(store, outgoing(one)) is None
        await store.ended(ended(one, "works"))
        assert list(await store.circuits()) == []

    async def test_failures_open_a_circuit_for_all_sessions(self, store: Store, clock: JumpingClock) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await fail(store, one, 2)
        assert await asked(store, outgoing(two)) is None
        await fail(store, one, 1)
        later = await asked(store, outgoing(two))
        assert later is not None
        assert (later.why, later.name, later.wait_ms, later.reason) == ("open", NAME, 30_000, "it fails")
        clock.advance(10)
        (circuit,) = await store.circuits()
        assert (circuit.name, circuit.failures, circuit.is_open, circuit.cooldown_ms) == (
            NAME,
            3,
            True,
            20_000,
        )

    async def test_one_of_many_sessions_is_the_probe_and_its_success_lets_all_call(
        self, store: Store, clock: JumpingClock
    ) -> None:
        sessions = [await drive(store, number) for number in range(1, 13)]
        await fail(store, sessions[0])
        clock.advance(COOLDOWN_S)
        await store.renew([each.lease for each in sessions], TERM_MS)
        answers = await asyncio.gather(*[asked(store, outgoing(each)) for each in sessions])
        (probe,) = [each for each, later in zip(sessions, answers, strict=True) if later is None]
        assert {later.why for later in answers if later is not None} == {"probing"}
        assert await asked(store, outgoing(probe)) is None, "it may be prepared again"
        await probe.commit(MessageReceived("it works"), ended=(ended(probe, "works"),))
        assert [await asked(store, outgoing(each)) for each in sessions] == [None] * 12
        (circuit,) = await store.circuits()
        assert (circuit.failures, circuit.is_open) == (0, False)

    async def test_a_probe_ends_with_its_lease_or_its_time(self, store: Store, clock: JumpingClock) -> None:
        one, two, three = await drive(store, 1), await drive(store, 2), await drive(store, 3)
        await fail(store, one)
        clock.advance(COOLDOWN_S)
        await store.renew([one.lease, two.lease, three.lease], TERM_MS)
        assert await asked(store, outgoing(one)) is None
        assert await asked(store, outgoing(two)) is not None
        await store.release(one.lease)
        assert await asked(store, outgoing(two)) is None
        assert await asked(store, outgoing(three)) is not None
        clock.advance(LIMIT_MS / 1000)
        await store.renew([two.lease, three.lease], TERM_MS)
        assert await asked(store, outgoing(three)) is None

    async def test_a_commit_that_is_refused_says_nothing_about_the_service(self, store: Store) -> None:
        one = await drive(store)
        await fail(store, one, 2)
        stale = Driving(store, one.lease, 5, one.link)
        await refused(Fenced, stale.commit(MessageReceived("no"), ended=(ended(one, "fails"),)))
        assert await asked(store, outgoing(one)) is None
        await one.commit(MessageReceived("yes"), ended=(ended(one, "fails"),))
        assert await asked(store, outgoing(one)) is not None

    async def test_what_a_service_asks_for_counts_for_all_and_a_reset_forgets_it(
        self, store: Store, clock: JumpingClock
    ) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await store.ended(ended(one, "neither", asked_ms=60_000))
        for step_s in (7_200, -14_400):
            clock.step(step_s)
            later = await asked(store, outgoing(two))
            assert later is not None
            assert later.why == "asked"
            assert 60_000 <= later.wait_ms < 66_000
        assert await asked(store, Outgoing("another", outgoing(two).draw)) is None
        assert not await store.reset_circuit("another")
        assert await store.reset_circuit(NAME)
        assert await asked(store, outgoing(two)) is None
        (circuit,) = await store.circuits()
        assert (circuit.asked_ms, circuit.reason) == (0, "")

    async def test_a_person_may_call_during_a_pause_and_ends_it_if_that_works(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await store.ended(ended(one, "neither", asked_ms=60_000))
        insisting = msgspec.structs.replace(outgoing(one), insists=True)
        for verdict, waits in (("neither", True), ("works", False)):
            assert await asked(store, insisting) is None
            assert await asked(store, outgoing(two)) is not None
            await store.ended(ended(one, verdict, insisted=True))  # type: ignore[arg-type]
            assert (await asked(store, outgoing(two)) is not None) == waits

    async def test_rates_let_calls_through_in_turn(self, store: Store, clock: JumpingClock) -> None:
        one, two, three = await drive(store, 1), await drive(store, 2), await drive(store, 3)
        answers = [await asked(store, outgoing(each, home=ONE_A_SECOND)) for each in (one, two, three)]
        assert [later.wait_ms if later is not None else 0 for later in answers] == [0, 1_000, 2_000]
        clock.advance(1)
        later = await asked(store, outgoing(three, home=ONE_A_SECOND))
        assert later is not None
        assert (later.why, later.name, later.wait_ms) == ("requests", "home", 1_000)
        assert await asked(store, outgoing(two, home=ONE_A_SECOND)) is None

    async def test_tokens_are_put_right_by_the_commit_that_ends_the_call(self, store: Store) -> None:
        rate = Rate(tokens_per_minute=6_000)
        one, two = await drive(store, 1), await drive(store, 2)
        assert await asked(store, outgoing(one, tokens=1_000, home=rate)) is None
        assert await asked(store, outgoing(two, tokens=500, home=rate)) is not None
        await one.commit(MessageReceived("done"), ended=(ended(one, "works", used_tokens=400),))
        assert await asked(store, outgoing(two, tokens=500, home=rate)) is None

    async def test_a_call_in_progress_ends_with_its_commit_or_with_its_lease(self, store: Store) -> None:
        rate = Rate(concurrent=1)
        one, two, three = await drive(store, 1), await drive(store, 2), await drive(store, 3)
        assert await asked(store, outgoing(one, home=rate)) is None
        assert await asked(store, outgoing(two, home=rate)) is not None
        await one.commit(MessageReceived("done"), ended=(ended(one, "works"),))
        assert await asked(store, outgoing(two, home=rate)) is None
        assert await asked(store, outgoing(three, home=rate)) is not None
        await store.release(two.lease)
        assert await asked(store, outgoing(three, home=rate)) is None

    async def test_a_call_that_waits_for_its_turn_is_not_the_probe(
        self, store: Store, clock: JumpingClock
    ) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await fail(store, one)
        clock.advance(COOLDOWN_S)
        await store.renew([one.lease, two.lease], TERM_MS)
        slow = Rate(tokens_per_minute=60, burst_ms=1_000)
        assert await asked(store, Outgoing("another", outgoing(one, "m0", 60, slow=slow).draw)) is None
        later = await asked(store, outgoing(one, tokens=1, slow=slow))
        assert later is not None
        assert later.why == "tokens"
        assert await asked(store, outgoing(two)) is None

    async def test_the_calls_of_a_deleted_session_are_over(self, store: Store, clock: JumpingClock) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        await fail(store, one)
        clock.advance(COOLDOWN_S)
        await store.renew([one.lease, two.lease], TERM_MS)
        rate = Rate(concurrent=1)
        assert await asked(store, outgoing(one, home=rate)) is None
        await store.delete(one.lease)
        assert await asked(store, outgoing(two, home=rate)) is None

    async def test_a_call_and_its_money_are_granted_together_or_not_at_all(self, store: Store) -> None:
        rate, home = Rate(concurrent=1), Bucket("home", 100)
        one, two = await drive(store, 1), await drive(store, 2)

        def claim(driving: Driving, microusd: int) -> Claim:
            return Claim(Reservation(driving.session, "m1", 0, "owner", microusd), None, (home,))

        async def reserved() -> int:
            return (await store.balances([home]))[0].reserved

        dear = await store.may_call(outgoing(one, home=rate), claim(one, 101))
        assert dear.claimed is not None
        assert dear.claimed.short is not None
        assert await reserved() == 0
        granted = await store.may_call(outgoing(one, home=rate), claim(one, 60))
        assert (granted.later, await reserved()) == (None, 60)
        late = await store.may_call(outgoing(two, home=rate), claim(two, 20))
        assert late.later is not None
        assert (late.later.why, late.claimed, await reserved()) == ("concurrent", None, 60)
        await one.commit(MessageReceived("done"), ended=(ended(one, "works"),), reserves=())
        granted = await store.may_call(outgoing(two, home=rate), claim(two, 20))
        assert (granted.later, await reserved()) == (None, 20)

    async def test_only_a_session_that_is_stored_is_the_probe(
        self, store: Store, clock: JumpingClock
    ) -> None:
        one, two = await drive(store, 1), new(store, 2)
        await fail(store, one)
        clock.advance(COOLDOWN_S)
        await store.renew([one.lease], TERM_MS)
        answer = await store.may_call(outgoing(two))
        assert answer.later is not None
        assert (answer.later.why, answer.state) == ("probing", "open")
        answer = await store.may_call(outgoing(one))
        assert (answer.later, answer.state, answer.reason) == (None, "half_open", "it fails")
