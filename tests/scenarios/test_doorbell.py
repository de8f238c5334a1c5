"""A ring wakes who drives, in this process and in another: nobody waits for the next look into the inbox."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.policy.protected import Own
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.ports import Provider
from holdfast.protocol.settings import settings_with
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime import lookout
from holdfast.runtime.controller import SessionController
from holdfast.runtime.doorbell import Doorbell, ring
from holdfast.runtime.ports import Ports
from holdfast.storage.sqlite import SqliteStore
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import tool

PATIENCE_S = 120.0


@pytest.mark.requirement("H5", "B4")
@pytest.mark.parametrize("is_other", [False, True], ids=["same process", "another one"])
async def test_a_command_is_heard_by_its_ring_and_not_by_the_next_look(
    tmp_path: Path, is_other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "LOOK_S", 3_600.0)
    is_at_work = asyncio.Event()

    @tool(effect="read", timeout_s=1_000.0)
    async def stay() -> str:
        """Stay."""
        is_at_work.set()
        await asyncio.sleep(600)
        return "stayed"

    script = script_from_lines([{"tool_calls": [{"name": "stay", "arguments": {}}]}])

    async def resolve(name: str) -> Provider:
        return script

    def ports() -> Ports:
        tools = make_tools([stay], secret_in=lambda _: "", own=Own())
        store = SqliteStore.open(tmp_path / "home")
        return Ports(
            store, SystemClock(), resolve, tools, make_redactor(), run_folder=tmp_path / "home" / "run"
        )

    ours, theirs = ports(), ports()
    async with SessionController(ours) as one, SessionController(theirs) as other:
        session = await one.open("a:b")
        settings = settings_with(ModelFacts("script", "model", price="free"), str(tmp_path), autonomy="full")
        await one.submit(session, owner("tester"), Send("Go.", settings))
        driving = asyncio.create_task(one.drive(session))
        async with asyncio.timeout(PATIENCE_S):
            await is_at_work.wait()
            await (other if is_other else one).submit(session, owner("tester"), Stop())
            state = await driving
    for each in (ours, theirs):
        await each.store.aclose()
    assert state.run is not None
    assert state.run.status == "interrupted"


async def test_a_home_with_a_long_path_has_a_doorbell_too(tmp_path: Path) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    folder = tmp_path / ("x" * 200) / "run"
    bell = Doorbell(heard.put_nowait)
    bell.open(folder, "1-name")
    ring(bell.path, "SESSION")
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.get() == "SESSION"
    bell.close()
    assert list(folder.iterdir()) == []
