"""Many sessions of one runtime share the places for tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pytest

from holdfast.protocol.commands import Send, owner
from holdfast.protocol.ports import Store, Tool
from holdfast.protocol.tools import Effect
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, controller_of, settings_of
from holdfast.tools.function import tool
from holdfast.tools.pool import PLACES_OF_ONE
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage


class Crowd:
    """How many calls run now, and the most there were."""

    now = most = 0
    order: list[str]


@pytest.mark.requirement("C19")
def test_no_session_takes_all_places_however_many_calls_it_makes(volatile: Stage) -> None:
    crowd = Crowd()
    crowd.order = []

    def tools_of(world: World) -> Iterable[Tool]:
        @tool(effect="read")
        async def work(who: str) -> str:
            """Work for a while."""
            crowd.now += 1
            crowd.most = max(crowd.most, crowd.now)
            crowd.order.append(who)
            for _ in range(20):
                await asyncio.sleep(0)
            crowd.now -= 1
            return who

        return (work,)

    many = PLACES_OF_ONE * 2
    replies = [calls(*[call("work", who=str(number)) for number in range(many)]), words("Done.")]
    scenario = Scenario("crowd", replies, tools_of)

    async def run(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            sessions = [await controller.open(f"a:{name}") for name in "xyz"]
            for session in sessions:
                await controller.submit(session, owner("me"), Send("Go.", settings_of(scenario, workspace)))
            await asyncio.gather(*(controller.drive(session) for session in sessions))
        assert crowd.most == PLACES_OF_ONE * 3
        assert len(crowd.order) == 3 * many
        first = crowd.order.index("0", crowd.order.index("0") + 1)
        assert first < many  # the second session began before the first one was done

    volatile.run(run)


@pytest.mark.requirement("C19")
@pytest.mark.parametrize(("effect", "most"), [("write", 1), ("read", 3)])
def test_two_sessions_never_change_one_file_at_once(volatile: Stage, effect: Effect, most: int) -> None:
    crowd = Crowd()

    def tools_of(world: World) -> Iterable[Tool]:
        @tool(effect=effect)
        async def work(where: Annotated[str, "path"]) -> None:
            """Work for a while."""
            crowd.now += 1
            crowd.most = max(crowd.most, crowd.now)
            for _ in range(5_000):  # on a busy machine the others come late
                if crowd.most == 3:
                    break
                await asyncio.sleep(0)
            crowd.now -= 1

        return (work,)

    scenario = Scenario("one file", [calls(call("work", where="a.txt")), words("Done.")], tools_of)

    async def run(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            sessions = [await controller.open(f"a:{name}") for name in "xyz"]
            for session in sessions:
                await controller.submit(session, owner("me"), Send("Go.", settings_of(scenario, workspace)))
            await asyncio.gather(*(controller.drive(session) for session in sessions))

    volatile.run(run)
    assert crowd.most == most
