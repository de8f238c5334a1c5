"""What is cancelled is cancelled once: it clears up undisturbed. What ignores that holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import StorageFull
from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.ports import Store, Tool
from holdfast.runtime.ports import Ports
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults, FaultyStore
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import Scenario, Step, World, controller_of, play, say, settings_of
from holdfast.tools.context import Context
from holdfast.tools.function import tool
from tests.scenarios.hook_scenes import scene as hooked
from tests.scenarios.hook_scenes import source
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

TIDYING_S = 0.5


def tidy(world: World) -> Iterable[Tool]:
    """Two tools that go on until they are cancelled: one ends at once, one clears up first."""

    @tool(effect="read", timeout_s=1_000.0)
    async def quick(context: Context) -> str:
        """Stay for a minute."""
        await asyncio.sleep(60)
        return "stayed"

    @tool(effect="read", timeout_s=1_000.0)
    async def neat(context: Context) -> str:
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


def stubborn(world: World) -> Iterable[Tool]:
    """A tool that ignores every cancellation and goes on for hours."""

    @tool(effect="write", timeout_s=100.0)
    async def hang() -> str:
        """Wait."""
        for _ in range(100):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                world.called.append(("cancelled", ""))
        world.effects.append("late")
        return "late"

    return (hang,)


@pytest.mark.requirement("L1", "L2-06")
def test_a_run_goes_on_without_a_tool_that_ignores_the_end_of_its_time(volatile: Stage) -> None:
    async def outlive(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        lines = [calls(call("hang")), calls(call("hang")), words("Then not.")]
        played = await play(Scenario("stubborn", lines, stubborn), clock, inner, workspace)
        left = [r.event for r in played.records if isinstance(r.event, e.ToolCallAbandoned)]
        assert [("ignored its cancellation" in each.text) for each in left] == [True, True]
        assert played.state.run is not None
        assert (played.state.run.status, played.state.run.driven_ms // 1_000) == ("done", 2 * 105)
        # The result that the call returns in the end is dropped.
        count = len(played.records)
        await asyncio.sleep(3 * 3_600)
        assert played.world.effects == ["late", "late"]
        assert await inner.last_seq(played.state.session) == count

    volatile.run(outlive)


@pytest.mark.requirement("L2-06")
def test_a_run_is_stopped_over_a_tool_that_ignores_its_cancellation(volatile: Stage) -> None:
    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        steps = lambda settings: (say("Go.", settings), Step(Stop(), on="ToolCallStarted", delay_s=1.0))  # noqa: E731
        played = await play(
            Scenario("stopped", [calls(call("hang"))], stubborn, steps), clock, inner, workspace
        )
        assert played.world.called == [("cancelled", "")]
        assert played.state.run is not None
        assert played.state.run.status == "interrupted"
        await asyncio.sleep(3 * 3_600)  # until it has ended by itself
        assert played.world.effects == ["late"]

    volatile.run(stop)


@pytest.mark.requirement("L2-06", "S4")
@pytest.mark.parametrize("on", ["ModelCallStarted", "ToolCallStarted", "Responded"])
def test_a_stop_ends_what_still_reads_secret_files(
    volatile: Stage, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """A model call, a tool call, and hooks that only hear: none of them has begun."""
    slow = partial(Ports, secret_files=lambda _: asyncio.sleep(5))
    monkeypatch.setattr("holdfast.testing.scenarios.Ports", slow)
    lines = [calls(call("look", name="x")), words("Done.")]
    stopped = hooked("stopped", lines, source("note", "after_model", "after_tool"))
    steps = lambda settings: (say("Go.", settings), Step(Stop(), on=on, delay_s=1.0))  # noqa: E731

    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        played = await play(replace(stopped, steps=steps), clock, inner, workspace)
        assert played.state.run is not None
        assert played.state.run.status == "interrupted"
        assert played.world.called == []
        await check_session(inner, played.session, played.records)

    volatile.run(stop)
