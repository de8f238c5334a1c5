"""The time in front of a person's words: in the request as it was recorded, and in no view."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.ports import Store
from holdfast.protocol.settings import changed
from holdfast.runtime.zones import zone_at
from holdfast.testing.clock import JumpingClock
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from holdfast.views.replay import replay
from tests.scenarios.scenes import words
from tests.scenarios.stage import Stage
from tests.scenarios.test_prompts import Life

TWO = Scenario("two", [words("First."), words("Second.")])


@pytest.mark.requirement("S9")
def test_the_model_reads_when_a_person_wrote_in_the_zone_of_the_session(volatile: Stage) -> None:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        settings = changed(settings_of(TWO, workspace), zone="Europe/Berlin")
        async with controller_of(TWO, store, clock, World(workspace)) as controller:
            controller._ports.__dict__["zone"] = zone_at
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Do it.", settings))
            await controller.drive(session)
            clock.advance(61)
            await controller.submit(session, owner("tester"), Send("And that.", None))
            state = await controller.drive(session)
        records = await records_of(store, session)
        heads = [each.event.head for each in records if isinstance(each.event, e.MessageReceived)]
        assert heads[0] == "[2025-06-15 17:06:40 CEST] "
        assert heads[1].startswith("[2025-06-15 17:07:4")
        assert state.title == "Do it."
        assert not replay(session, "a:b", records).differences

    volatile.run(main)


@pytest.mark.requirement("S9", "C5")
def test_the_head_is_a_part_of_the_stored_message_and_never_changes(volatile: Stage) -> None:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> None:
        life = Life(store, clock, workspace, TWO)
        await life.say("Do it.")
        clock.advance(3_600)
        await life.say("And that.")
        first, second = await life.bodies()
        assert b'"[2025-06-15 15:06:40 UTC] Do it."' in first
        assert b'"[2025-06-15 15:06:40 UTC] Do it."' in second
        assert b'"[2025-06-15 16:06:4' in second

    volatile.run(main)
