"""Somebody sets the clock while sessions run: lengths of time stay true, and the last session stays the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol.commands import owner
from holdfast.protocol.events import Responded, ToolCallFinished
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import FaultyStore
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, say, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

HOUR_S = 3_600


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S], ids=["back", "forwards"])
def test_a_step_of_the_clock_shows_in_no_length_of_time_and_in_no_order(stage: Stage, step_s: float) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store = FaultyStore(inner)
        clock.hold_while(lambda: store.in_flight > 0)

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
