"""Somebody sets the clock while sessions run: lengths of time stay true, and the last session stays the last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.protocol.commands import Stop, owner
from holdfast.protocol.events import Responded, RunStopped, RunStopping, ToolCallAbandoned, ToolCallFinished
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import (
    Scenario,
    Step,
    World,
    controller_of,
    play,
    records_of,
    say,
    settings_of,
)
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

HOUR_S = 3_600


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S], ids=["back", "forwards"])
def test_a_step_of_the_clock_shows_in_no_length_of_time_and_in_no_order(stage: Stage, step_s: float) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:

        @tool(effect="read")
        async def set_clock() -> str:
            """Set the clock."""
            clock.advance(2)
            clock.step(step_s)
            return "set"

        scenario = Scenario(
            "clock", [calls(call("set_clock")), words("Done.", delay_s=3)], lambda _: [set_clock]
        )
        world = World(workspace)
        body = say("Do it.", settings_of(scenario, workspace)).body
        async with controller_of(scenario, store, clock, world) as controller:
            for key in ("cli:one", "cli:two"):
                session = await controller.begin(key, owner("tester"), body)
                await controller.drive(session)
                assert await store.find("last") == [session]
                records = await records_of(store, session)
                events = [record.event for record in records]
                (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
                first, last = [event for event in events if isinstance(event, Responded)]
                assert finished.result.duration_ms == 2_000
                assert first.duration_ms == 0
                assert last.duration_ms == 3_000
                await check_session(store, session, records)

    stage.run(play)


def moved(clock: JumpingClock, how: str) -> Scenario:
    """A run of at most half a minute, in which a tool takes a second and the clock is moved by hours."""

    @tool(effect="read", timeout_s=1_000.0)
    async def move() -> str:
        """Move the clock."""
        match how:
            case "sleep":
                clock.sleep(10 * HOUR_S)
            case "back":
                clock.step(-10 * HOUR_S)
            case "forwards":
                clock.step(10 * HOUR_S)
        await asyncio.sleep(1)
        return "moved"

    @tool(effect="read", timeout_s=1_000.0)
    async def stay() -> str:
        """Stay for longer than the run may take."""
        await asyncio.sleep(500)
        return "stayed"

    lines = [calls(call("move")), calls(call("stay")), words("Never said.")]
    return Scenario(how, lines, lambda _: [move, stay], limits=Limits(wall_s=30.0))


@pytest.mark.requirement("L2", "H5")
@pytest.mark.parametrize("how", ["sleep", "back", "forwards"])
def test_only_time_in_which_the_machine_was_awake_counts_as_driven(stage: Stage, how: str) -> None:
    async def drive(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        scenario = moved(clock, how)
        played = await play(scenario, clock, inner, workspace)
        assert played.state.run is not None
        assert (played.state.run.status, played.state.run.reason) == ("limit", "wall")
        assert 30_000 <= played.state.run.driven_ms <= 31_100
        assert [r.event.result.text for r in played.records if isinstance(r.event, ToolCallFinished)][:1] == [
            "moved"
        ]
        assert 30.0 <= clock.elapsed_s <= 32.0

    stage.run(drive)


@pytest.mark.requirement("L2-06", "H5")
def test_a_stop_is_over_in_a_moment_also_when_the_clock_is_set_back_meanwhile(stage: Stage) -> None:
    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        @tool(effect="read", timeout_s=1_000.0)
        async def cling() -> str:
            """Take a minute to let go."""
            try:
                await asyncio.sleep(500)
            finally:
                clock.step(-10 * HOUR_S)
                await asyncio.sleep(60)
            return "stayed"

        scenario = Scenario(
            "cling",
            [calls(call("cling"))],
            lambda _: [cling],
            lambda settings: (say("Go.", settings), Step(Stop(), on="ToolCallStarted", delay_s=1.0)),
        )
        played = await play(scenario, clock, inner, workspace)
        assert played.state.run is not None
        assert played.state.run.status == "interrupted"
        assert any(isinstance(r.event, ToolCallAbandoned) for r in played.records)
        asked, ended = (r.awake_ms for r in played.records if isinstance(r.event, RunStopping | RunStopped))
        assert ended - asked <= 1_000
        await asyncio.sleep(60)  # the tool lets go at last

    stage.run(stop)
