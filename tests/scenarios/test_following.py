"""Watching a session that several processes write to."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.codec import decode
from holdfast.protocol.commands import Resolve, Send, owner
from holdfast.protocol.events import (
    Event,
    MessageReceived,
    ModelCallAbandoned,
    Record,
    RunStopped,
    SessionOpened,
)
from holdfast.protocol.ports import Delta, Store
from holdfast.runtime.bus import CAPACITY, Bus, Item
from holdfast.runtime.following import follow
from holdfast.runtime.lookout import Lookout
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import drive
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scenarios import World, controller_of, records_of, settings_of
from tests.scenarios.scenes import BY_NAME
from tests.scenarios.stage import Stage

SCENARIO = BY_NAME["approved"]


async def heard_late(deltas: int, more: int) -> list[str]:
    """What somebody hears who joins in the middle of an answer and reads the journal late: the names of records, and
    the number of each word. The answer ends after `deltas` words, and another one says `more`."""
    inner = VolatileStore(JumpingClock())
    is_there, may_read, is_told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(FaultyStore):
        async def last_seq(self, session: str) -> int:
            is_there.set()
            await may_read.wait()
            return await super().last_seq(session)

    bus, driving = Bus(), await drive(inner)
    session = driving.session

    async def commit(*events: Event) -> None:
        bus.committed(session, [decode(each) for each in (await driving.commit(*events)).records])

    def speak(numbers: range, key: str) -> None:
        for number in numbers:
            bus.publish(session, (Delta("text", str(number), session, key),))

    await commit(SessionOpened(session), MessageReceived("go"))
    heard: list[str] = []

    async def listen() -> None:
        async with aclosing(follow(Slow(inner), bus, Lookout(inner, bus, {}), session, 0)) as items:
            async for item in items:
                heard.append(item.text if isinstance(item, Delta) else type(item.event).__name__)
                if heard[-1] == "ModelCallAbandoned":
                    is_told.set()
                if heard[-1] == "RunStopped":
                    return

    listening = asyncio.create_task(listen())
    await is_there.wait()
    speak(range(deltas), "m1")
    await commit(ModelCallAbandoned("m1"))
    may_read.set()
    await is_told.wait()
    speak(range(deltas, deltas + more), "m2")
    await commit(RunStopped(1, "done", "answer"))
    await listening
    return heard


@pytest.mark.parametrize("more", [0, 1, 900])
@pytest.mark.parametrize("deltas", [0, 1, CAPACITY - 1, CAPACITY, CAPACITY + 1])
def test_who_joins_in_the_middle_of_an_answer_hears_none_of_its_words_after_its_end(
    deltas: int, more: int
) -> None:
    heard = asyncio.run(heard_late(deltas, more))
    records = [name for name in heard if not name.isdigit()]
    assert records == ["SessionOpened", "MessageReceived", "ModelCallAbandoned", "RunStopped"]
    end = heard.index("ModelCallAbandoned")
    words = [int(word) for word in heard if word.isdigit()]
    assert words == sorted(set(words))
    if deltas < CAPACITY:
        assert words[:deltas] == list(range(deltas)), "there was room for all"
    assert all(int(word) >= deltas for word in heard[end:] if word.isdigit()), heard


@pytest.mark.requirement("S15", "H5")
def test_who_looks_late_hears_no_words_of_an_answer_that_stands_there_already(stage: Stage) -> None:
    async def watch(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        async with (
            controller_of(SCENARIO, store, clock, world) as ours,
            controller_of(SCENARIO, store, clock, world) as other,
        ):
            send = Send("Do it.", settings_of(SCENARIO, workspace))
            session = await ours.begin("a:b", owner("tester"), send)
            await ours.drive(session)
            async with aclosing(ours.follow(session)) as items:
                heard: list[Item] = [await anext(items)]
                (row,) = await store.approvals(session)
                await other.decide_now(session, owner("other"), Resolve(row.id, "approve"))
                await ours.drive(session)
                while not (isinstance(heard[-1], Record) and isinstance(heard[-1].event, RunStopped)):
                    heard.append(await anext(items))

                async def more() -> Item:
                    return await anext(items)

                late = asyncio.create_task(more())
                await asyncio.sleep(1)
                assert not late.done(), late.result()
                late.cancel()
                await asyncio.wait([late])
        assert tuple(heard) == await records_of(store, session)

    stage.run(watch)


@pytest.mark.requirement("S15")
def test_who_came_before_the_work_hears_its_words_in_their_place_however_late_it_reads(stage: Stage) -> None:
    class Slow(FaultyStore):
        """Does not tell a follower where the journal ends before the work is over."""

        async def last_seq(self, session: str) -> int:
            await is_over.wait()
            return await super().last_seq(session)

    scenario, is_over = BY_NAME["text only"], asyncio.Event()

    async def watch(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        async with controller_of(scenario, Slow(inner), clock, World(workspace)) as controller:
            session = await controller.begin(
                "a:b", owner("tester"), Send("Do it.", settings_of(scenario, workspace))
            )
            async with aclosing(controller.follow(session)) as items:
                heard: list[Item] = []

                async def listen() -> None:
                    while not (
                        heard and isinstance(heard[-1], Record) and isinstance(heard[-1].event, RunStopped)
                    ):
                        heard.append(await anext(items))

                listening = asyncio.create_task(listen())
                await controller.drive(session)
                is_over.set()
                await listening
        records = [item for item in heard if isinstance(item, Record)]
        assert tuple(records) == await records_of(inner, session)
        names = ["Delta" if isinstance(item, Delta) else type(item.event).__name__ for item in heard]
        first, last = names.index("ModelCallStarted"), names.index("Responded")
        assert set(names[first + 1 : last]) == {"Delta"}, names

    stage.run(watch)
