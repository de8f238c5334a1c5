"""A runtime that is closed leaves nothing at work behind it, and keeps nobody waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.app import App, open_app
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import StorageError
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.tools.function import tool
from tests.edge.machine import Machine, call

PATIENCE_S = 120.0


@asynccontextmanager
async def opened(home: Path, at_work: asyncio.Event, ended: asyncio.Event) -> AsyncIterator[App]:
    """A runtime with a tool that tells when it begins and when it is cancelled, and never comes back."""

    @tool(effect="read", timeout_s=3_600.0)
    async def hang() -> None:
        """Never come back."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with open_app(
        load_only({}), Home(home, home / "config.toml"), extra_tools=[hang], environ={}
    ) as app:
        yield app


@pytest.mark.requirement("L9", "H5")
async def test_a_runtime_that_closes_ends_what_it_drives_and_answers_who_follows_here_and_elsewhere(
    machine: Machine,
) -> None:
    at_work, ended = asyncio.Event(), asyncio.Event()
    model = machine.script([{"tool_calls": [call("hang")]}])
    async with asyncio.timeout(PATIENCE_S):
        async with opened(machine.home, at_work, ended) as app:
            settings = app.settings(machine.workspace, model=model).settings
            session = await app.controller.begin("", owner("tester"), Send("Go.", settings))
            driving = asyncio.create_task(app.controller.drive(session))
            await at_work.wait()
            here = asyncio.create_task(app.controller.drive(session))
            async with opened(machine.home, asyncio.Event(), asyncio.Event()) as other:
                elsewhere = asyncio.create_task(other.controller.drive(session))
                while not any(session in minded for minded in other.controller._lookout._minded.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            with pytest.raises(StorageError, match="closed"):
                await elsewhere
            assert not ended.is_set(), "the other runtime's work goes on"
        assert ended.is_set()
        for each in (driving, here):
            with pytest.raises(StorageError, match="closed"):
                await each
        async with opened(machine.home, at_work, ended) as app:
            await app.controller.decide_now(session, owner("tester"), Stop())
            state = await app.controller.state(session)
    assert state.run is not None
    assert state.run.status == "interrupted"
