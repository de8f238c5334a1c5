"""What is cancelled is cancelled once: it clears up undisturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.errors import StorageFull
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.ports import CallContext, Store, Tool
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults, FaultyStore
from holdfast.testing.scenarios import Scenario, Step, World, controller_of, play, say, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls
from tests.scenarios.stage import Stage

TIDYING_S = 0.5


def tidy(world: World) -> Iterable[Tool]:
    """Two tools that go on until they are cancelled: one ends at once, one clears up first."""

    @tool(effect="read", timeout_s=1_000.0)
    async def quick(context: CallContext) -> str:
        """Stay for a minute."""
        await asyncio.sleep(60)
        return "stayed"

    @tool(effect="read", timeout_s=1_000.0)
    async def neat(context: CallContext) -> str:
        """Stay for a minute, and clear up when that is cut short."""
        world.called.append(("neat", context.key))
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(TIDYING_S)
            world.effects.append("tidied")
        return "stayed"

    return (quick, neat)


BOTH = Scenario(
    "both",
    [calls(call("quick"), call("neat"))],
    tidy,
    lambda settings: (say("Go.", settings), Step(Stop(), on="ToolCallStarted", count=2, delay_s=1.0)),
)


@pytest.mark.requirement("L2-06")
def test_a_call_that_clears_up_is_not_cancelled_again_when_another_one_ends(volatile: Stage) -> None:
    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        played = await play(BOTH, clock, inner, workspace)
        assert played.world.effects == ["tidied"]
        assert played.state.run is not None
        assert played.state.run.status == "interrupted"

    volatile.run(stop)


@pytest.mark.requirement("L2-06", "L7")
def test_a_call_that_clears_up_is_not_cancelled_again_when_its_driver_fails(volatile: Stage) -> None:
    async def fail(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world = World(workspace)
        full = FaultyStore(inner, Faults(full_from_commit=5))
        async with controller_of(BOTH, full, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(BOTH, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            while not world.called:  # noqa: ASYNC110 - the clock jumps
                await asyncio.sleep(0.05)
            await controller.submit(session, owner("tester"), Stop())
            with pytest.raises(StorageFull):  # at the outcome of the quick one, while the neat one clears up
                await driving
            assert full.commits == 5
        assert world.effects == ["tidied"]

    volatile.run(fail)
