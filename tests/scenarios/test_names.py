"""Senders choose names: two of one name do not hide each other, and an invalid name harms nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.protocol.commands import owner
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import World, controller_of, records_of, say, settings_of
from tests.scenarios.scenes import BY_NAME
from tests.scenarios.stage import Stage

SCENARIO = BY_NAME["text only"]


@pytest.mark.requirement("H5")
def test_two_channels_may_send_commands_of_one_id_and_none_is_lost(stage: Stage) -> None:
    async def two(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        body = say("Do it.", settings_of(SCENARIO, workspace)).body
        async with controller_of(SCENARIO, store, clock, world) as controller:
            sessions = [await controller.open(key) for key in ("telegram:1", "slack:1")]
            for session in sessions:
                assert await controller.submit(session, owner("tester"), body, "update-4711") == "update-4711"
                await controller.submit(session, owner("tester"), body, "update-4711")
            for session in sessions:
                await controller.drive(session)
        for session in sessions:
            records = await records_of(store, session)
            assert [r.event.text for r in records if isinstance(r.event, MessageReceived)] == ["Do it."]
            await check_session(store, session, records)

    stage.run(two)


@pytest.mark.requirement("C8")
def test_a_name_that_is_none_is_refused_while_other_sessions_go_on(stage: Stage) -> None:
    async def refused(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        body = say("Do it.", settings_of(SCENARIO, workspace)).body
        async with controller_of(SCENARIO, store, clock, world) as controller:
            session = await controller.begin("cli:demo", owner("tester"), body)
            driving = asyncio.create_task(controller.drive(session))
            for key in ("tg:\ud800", "tg:\0", "tg"):
                with pytest.raises(UsageError, match="not a valid name for a session"):
                    await controller.begin(key, owner("tester"), body)
            with pytest.raises(UsageError, match="not a valid id for a command"):
                await controller.submit(session, owner("tester"), body, "\ud800")
            await driving
        await check_session(store, session, await records_of(store, session))

    stage.run(refused)
