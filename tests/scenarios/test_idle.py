"""Sessions in which nothing happens cost next to nothing: what waits is woken, and one look serves all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.commands import Pause, Send, owner
from holdfast.protocol.events import Record, RunPaused, RunStopped
from holdfast.protocol.ports import Delta, Store, Tool
from holdfast.runtime import lookout
from holdfast.runtime.bus import CAPACITY, Subscription
from holdfast.runtime.controller import SessionController
from holdfast.runtime.holder import RENEW_MS
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

WATCHED_S = 60.0
ANN = owner("ann")


class Counting(FaultyStore):
    """A store that counts what it is asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked = 0

    async def pass_on(self, operation):  # type: ignore[no-untyped-def]
        self.asked += 1
        return await super().pass_on(operation)


def slow(world: World) -> Iterable[Tool]:
    @tool(effect="read", timeout_s=10_000.0)
    async def stay() -> str:
        """Stay for an hour."""
        world.called.append(("stay", ""))
        await asyncio.sleep(3_600)
        return "stayed"

    return (stay,)


SLOW = Scenario("slow", [calls(call("stay")), words("Done.")], slow)


async def follow(controller: SessionController, session: str) -> None:
    async with aclosing(controller.follow(session)) as items:
        async for _ in items:
            pass


async def asked_by(
    sessions: int, clock: JumpingClock, inner: Store, workspace: Path, *, is_driven_elsewhere: bool
) -> int:
    """What the store is asked in a minute in which so many sessions, all of them followed, wait for a tool: by the
    process that drives them, or by one that waits for another to drive them to their end."""
    store, world = Counting(inner), World(workspace)
    one, other = controller_of(SLOW, store, clock, world), controller_of(SLOW, inner, clock, world)
    async with one, other:
        tasks: list[asyncio.Task[object]] = []
        for _ in range(sessions):
            session = await one.begin("", ANN, Send("Go.", settings_of(SLOW, workspace)))
            if is_driven_elsewhere:
                tasks.append(asyncio.create_task(other.drive(session)))
                while len(world.called) < len(tasks) // 3 + 1:  # noqa: ASYNC110 - the clock jumps
                    await asyncio.sleep(1)
            tasks.append(asyncio.create_task(one.drive(session)))
            tasks.append(asyncio.create_task(follow(one, session)))
        while len(world.called) < sessions:  # noqa: ASYNC110 - the clock jumps
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        before = store.asked
        await asyncio.sleep(WATCHED_S)
        asked = store.asked - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return asked


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("is_driven_elsewhere", [False, True], ids=["driven-here", "driven-elsewhere"])
def test_forty_idle_sessions_ask_the_store_no_more_than_one(stage: Stage, is_driven_elsewhere: bool) -> None:
    async def compare(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        one, many = [
            await asked_by(count, clock, inner, workspace, is_driven_elsewhere=is_driven_elsewhere)
            for count in (1, 40)
        ]
        looks, renewals = WATCHED_S / lookout.LOOK_S, 1000 * WATCHED_S / RENEW_MS
        assert one <= looks + (WATCHED_S / lookout.LAPSE_S if is_driven_elsewhere else renewals)
        assert many <= one + 2  # as the looks happen to fall

    stage.run(compare)


@pytest.mark.requirement("C8", "B4")
def test_whoever_waits_for_an_acknowledgement_is_woken_by_the_commit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks by themselves before an hour is over."""
    never(monkeypatch)

    async def pause(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        async with controller_of(SLOW, store, clock, world) as controller:
            session = await controller.begin("", ANN, Send("Go.", settings_of(SLOW, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            while not world.called:  # noqa: ASYNC110 - the clock jumps
                await asyncio.sleep(0.1)
            begun_ms = clock.uptime_ms()
            await controller.decide_now(session, ANN, Pause())
            await controller.decide_now(session, ANN, Pause())  # which leaves no record
            assert clock.uptime_ms() - begun_ms < 1_000
            driving.cancel()
            await asyncio.wait((driving,))

    stage.run(pause)


@pytest.mark.requirement("C8")
def test_whoever_follows_is_told_of_each_commit_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    never(monkeypatch)
    scenario = Scenario("quick", [words("Done.")])

    async def tell(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        told: list[int] = []

        async def listen(controller: SessionController, session: str) -> None:
            async with aclosing(controller.follow(session)) as items:
                async for item in items:
                    if isinstance(item, Record):
                        told.append(item.seq)
                        if isinstance(item.event, RunStopped):
                            return

        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.begin("", ANN, Send("Go.", settings_of(scenario, workspace)))
            listening = asyncio.create_task(listen(controller, session))
            begun_ms = clock.uptime_ms()
            state = await controller.drive(session)
            await listening
        assert clock.uptime_ms() - begun_ms < 1_000
        assert told == list(range(1, state.seq + 1))

    stage.run(tell)


@pytest.mark.requirement("C8", "H5")
def test_a_command_that_another_process_handles_without_a_record_is_seen_as_handled(stage: Stage) -> None:
    async def pause(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        one, other = (controller_of(SLOW, store, clock, world) for _ in range(2))
        async with one, other:
            session = await one.begin("", ANN, Send("Go.", settings_of(SLOW, workspace)))
            driving = asyncio.create_task(one.drive(session))
            while not world.called:  # noqa: ASYNC110 - the clock jumps
                await asyncio.sleep(0.1)
            begun_ms = clock.uptime_ms()
            for _ in range(2):
                await other.decide_now(session, ANN, Pause())
            assert clock.uptime_ms() - begun_ms < 1_000
            driving.cancel()
            await asyncio.wait((driving,))
        paused = [r for r in await records_of(store, session) if isinstance(r.event, RunPaused)]
        assert len(paused) == 1

    stage.run(pause)


async def test_what_a_slow_subscriber_had_no_room_for_is_left_to_the_journal() -> None:
    told = Subscription()
    told.tell([Delta("text", str(number)) for number in range(CAPACITY + 10)])
    taken = [await told.next() for _ in range(CAPACITY + 1)]
    assert [item.text for item in taken if item is not None] == [str(number) for number in range(CAPACITY)]
    assert taken[-1] is None, "None says that the journal has more"


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at what other processes do."""
    monkeypatch.setattr(lookout, "LOOK_S", 3_600.0)
    monkeypatch.setattr(lookout, "ANSWER_S", 3_600.0)
