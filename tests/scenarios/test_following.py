"""Watching a session that several processes write to."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.commands import Resolve, Send, owner
from holdfast.protocol.events import Record, RunStopped
from holdfast.protocol.ports import Store
from holdfast.runtime.bus import Item
from holdfast.testing.clock import JumpingClock
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
