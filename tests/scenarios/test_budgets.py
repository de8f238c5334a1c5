"""Budgets that are wider than a run, in the real runtime: what they refuse, what a run keeps, what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.budgets import buckets_of
from holdfast.core.state import State
from holdfast.core.summary import status
from holdfast.protocol import events as e
from holdfast.protocol.budgets import Budgets
from holdfast.protocol.commands import Continue, Send, owner
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Store
from holdfast.protocol.zone import UTC
from holdfast.runtime.controller import SessionController
from holdfast.runtime.fork import fork
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import (
    Played,
    Scenario,
    World,
    controller_of,
    play,
    play_with_crash,
    records_of,
    settings_of,
)
from holdfast.views.replay import replay
from tests.scenarios.scenes import PRICED, call, calls, tools_of, used, words
from tests.scenarios.stage import Stage

DAY_MS = 86_400_000
LOOKS = [
    calls(call("look", name=f"thing {number}"), usage=used(500 + 100 * number, 100)) for number in range(60)
]


def scene(name: str = "budget", lines: Sequence[Any] = (), **budgets: Any) -> Scenario:
    """A run that looks and looks, with these budgets."""
    return Scenario(
        name,
        lines or [*LOOKS, {**words("So far."), "repeat": True}],
        tools_of,
        settings={"facts": PRICED, "max_output_tokens": 400, "stall_turns": 1_000},
        limits=Limits(turns=100, cost_microusd=10_000_000),
        budgets=Budgets(**budgets),
    )


def run(stage: Stage, scenario: Scenario, *faults: Faults) -> Played:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        played = await play_with_crash(scenario, clock, store, workspace, *faults)
        await check_session(store, played.session, played.records)
        await check_budgets(store, scenario, clock.now_ms())
        return played

    return stage.run(main)


async def check_budgets(store: Store, scenario: Scenario, now_ms: int, session: str = "") -> None:
    """Check that no budget is exceeded, and that nothing stays reserved."""
    for each in await store.balances(
        buckets_of(scenario.budgets, session, "tester", now_ms, lambda _: UTC, is_all=True)
    ):
        limit = each.bucket.limit_microusd
        assert limit is None or each.used <= limit, f"{each.bucket} is exceeded: {each.used}"
        assert not each.reserved, f"something is still reserved in {each.bucket}"


def notes(played: Played, about: str) -> list[str]:
    """The notes of that subject."""
    return [
        r.event.text for r in played.records if isinstance(r.event, e.NoteAdded) and r.event.about == about
    ]


def sent(records: Sequence[e.Record]) -> list[e.ModelCallStarted]:
    """The attempts that were sent."""
    return [r.event for r in records if isinstance(r.event, e.ModelCallStarted)]


@pytest.mark.parametrize("scope", ["home", "month", "day", "user_month", "user_day", "session"])
def test_a_run_that_reaches_a_budget_answers_and_ends(volatile: Stage, scope: str) -> None:
    scenario = scene(**{scope: 60_000})
    played = run(volatile, scenario)
    assert ended(played.records) == [("limit", f"budget_{scope}")]
    attempts = sent(played.records)
    assert len(attempts) > 2
    assert [each.is_last_pass for each in attempts] == [*[False] * (len(attempts) - 1), True]
    assert played.state.run is not None
    assert played.state.run.has_landed, "the last pass has its answer"
    assert 30_000 < played.state.run.totals.cost_microusd <= 60_000
    assert replay(played.session, "test:scenario", played.records).differences == ()


def test_model_and_user_are_warned_once_for_each_budget(volatile: Stage) -> None:
    played = run(volatile, scene(day=500_000, home=501_000))
    assert [len(notes(played, f"budget_{scope}")) for scope in ("day", "home", "month")] == [1, 1, 0]
    assert notes(played, "budget_day")[0].startswith("80 % of the budget of $0.50 a day is used; $0.0")
    assert replay(played.session, "test:scenario", played.records).differences == ()


@pytest.mark.parametrize("every", [19, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_at_any_moment_leaves_nothing_reserved_and_exceeds_nothing(stage: Stage, every: int) -> None:
    scenario = scene(day=60_000)
    whole = run(stage, scenario)
    for number in range(1, whole.commits + 1)[stage.kind == "sqlite" :: every]:
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number)):
            broken = run(stage, scenario, faults)
            assert len(broken.left) == 1
            assert ended(broken.records) == [("limit", "budget_day")], faults
            outcomes = [r.event for r in broken.records if isinstance(r.event, e.Responded)]
            assert outcomes, "a run that began has its last answer"


def live(stage: Stage, scenario: Scenario, lives: Any) -> Any:
    """Return what `lives(make, clock, store, settings)` returns: `make` opens a runtime with some budgets."""

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> Any:
        def make(**budgets: Any) -> SessionController:
            changed = replace(scenario.budgets, **budgets)
            from_now = Scenario(**{**vars(scenario), "budgets": changed})
            return controller_of(from_now, store, clock, World(workspace))

        return await lives(make, clock, store, settings_of(scenario, workspace))

    return stage.run(main)


async def drive(controller: SessionController, session: str, body: Any) -> State:
    """Send a command and drive the session until it rests."""
    await controller.submit(session, owner("tester"), body)
    return await controller.drive(session)


def test_resume_sends_nothing_until_the_limit_is_raised_or_the_period_ends(volatile: Stage) -> None:
    scenario = scene(day=60_000)

    async def lives(make: Any, clock: JumpingClock, store: Store, settings: Any) -> None:
        async with make() as controller:
            session = await controller.open("test:scenario")
            state = await drive(controller, session, Send("Do it.", settings))
            assert state.run is not None
            assert (state.run.status, state.run.reason) == ("limit", "budget_day")
            before = state.models.started
            for _ in range(2):
                state = await drive(controller, session, Continue())
                assert state.run is not None
                assert (state.run.reason, state.models.started) == ("budget_day", before)
        async with make(day=90_000) as controller:
            state = await drive(controller, session, Continue())
            assert state.models.started > before, "the limit was raised"
            before = state.models.started
        async with make() as controller:
            assert (await drive(controller, session, Continue())).models.started == before
            clock.advance(DAY_MS / 1000)
            state = await drive(controller, session, Continue())
            assert state.models.started > before, "another day began"
        await check_session(store, session, await records_of(store, session))

    live(volatile, scenario, lives)


def test_with_park_the_run_waits_until_the_period_ends(volatile: Stage) -> None:
    scenario = scene(day=60_000, when_reached="park")

    async def lives(make: Any, clock: JumpingClock, store: Store, settings: Any) -> None:
        async with make() as controller:
            session = await controller.open("test:scenario")
            state = await drive(controller, session, Send("Do it.", settings))
            assert status(state) == "parked"
            assert state.models.retry_at_ms % DAY_MS == 0
            assert state.models.failed_attempts == 0
            before = state.models.started
            state = await drive(controller, session, Continue())
            assert (status(state), state.models.started) == ("parked", before)
            await asyncio.sleep((state.models.retry_at_ms - clock.now_ms()) / 1000)
            state = await controller.drive(session)
            assert state.models.started > before
        records = await records_of(store, session)
        assert replay(session, "test:scenario", records).differences == ()

    live(volatile, scenario, lives)


def test_a_run_that_cannot_keep_its_last_pass_ends_before_it_sends_anything(volatile: Stage) -> None:
    played = run(volatile, scene(day=900))
    assert (ended(played.records), sent(played.records)) == ([("limit", "budget_day")], [])


def test_runs_at_once_share_a_budget_and_each_has_its_answer(volatile: Stage) -> None:
    scenario = scene(day=150_000)

    async def lives(make: Any, clock: JumpingClock, store: Store, settings: Any) -> None:
        controllers = [make() for _ in range(3)]
        sessions: list[str] = []
        for number, controller in enumerate(controllers):
            await controller.__aenter__()
            sessions.append(await controller.open(f"test:{number}"))
            await controller.submit(sessions[-1], owner("tester"), Send("Do it.", settings))
        states = await asyncio.gather(*[c.drive(s) for c, s in zip(controllers, sessions, strict=True)])
        assert {state.run.reason for state in states if state.run} == {"budget_day"}
        for session, state in zip(sessions, states, strict=True):
            assert state.run is not None
            attempts = sent(await records_of(store, session))
            assert not attempts or (attempts[-1].is_last_pass and state.run.has_landed)
        await check_budgets(store, scenario, clock.now_ms())
        assert (await store.spent()).spent > 75_000
        for controller in controllers:
            await controller.__aexit__()

    live(volatile, scenario, lives)


@pytest.mark.requirement("C24")
def test_a_user_who_has_spent_a_budget_keeps_nobody_else_from_working(volatile: Stage) -> None:
    scenario = scene(user_day=60_000)

    async def lives(make: Any, clock: JumpingClock, store: Store, settings: Any) -> None:
        async with make() as controller:
            for user in ("ann", "bob"):
                session = await controller.open(f"test:{user}")
                await controller.submit(session, owner(user), Send("Do it.", settings))
                state = await controller.drive(session)
                assert state.run is not None
                assert state.run.reason == "budget_user_day"
                assert 30_000 < (await store.spent(session=session)).spent <= 60_000
            session = await controller.open("test:again")
            await controller.submit(session, owner("ann"), Send("Do it.", settings))
            assert (await controller.drive(session)).models.started == 0

    live(volatile, scenario, lives)


def test_a_model_without_a_price_is_not_called_if_there_is_a_budget(volatile: Stage) -> None:
    scenario = scene(home=10**9)
    unknown = replace(PRICED, price="unknown")
    played = run(volatile, Scenario(**{**vars(scenario), "settings": {"facts": unknown}}))
    assert (ended(played.records), sent(played.records)) == ([("failed", "provider_fatal")], [])


def test_a_branch_begins_at_nothing_and_its_parents_spending_counts_once(volatile: Stage) -> None:
    scenario = scene(session=60_000)

    async def lives(make: Any, clock: JumpingClock, store: Store, settings: Any) -> None:
        async with make() as controller:
            session = await controller.open("test:scenario")
            state = await drive(controller, session, Send("Do it.", settings))
            assert state.run is not None
            parent = (await store.spent()).spent
            branch = await fork(store, clock, session, state.seq)
            state = await drive(controller, branch, Continue())
            assert state.run is not None
            assert state.run.reason == "budget_session"
            assert (await store.spent(session=branch)).spent > 20_000
            assert (await store.spent()).spent == parent + (await store.spent(session=branch)).spent
        await check_budgets(store, scenario, clock.now_ms(), branch)

    live(volatile, scenario, lives)


def test_without_budgets_nothing_is_reserved(volatile: Stage) -> None:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async def never(*_: object) -> None:
            raise AssertionError("nobody asked for it")

        store.reserve = never  # type: ignore[method-assign, assignment]
        played = await play(scene(), clock, store, workspace)
        assert ended(played.records)[0][0] == "done"

    volatile.run(main)
