"""Watching a session that several processes write to."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.commands import Resolve, Send, owner
from holdfast.protocol.events import Record, RunStopped
from holdfast.protocol.ports import Delta, Store
from holdfast.runtime.bus import Item
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scenarios import World, controller_of, records_of, settings_of
from tests.scenarios.scenes import BY_NAME
from tests.scenarios.stage import Stage

SCENARIO = BY_NAME["approved"]


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
