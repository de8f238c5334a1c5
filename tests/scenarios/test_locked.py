"""Another process keeps the database locked for most of a lease's time: the sessions of this one go on."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.protected import Own
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.ports import Provider
from holdfast.protocol.settings import settings_with
from holdfast.providers.script import script_from_lines
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import records_of
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words

LOCKED_S = 8.0


@pytest.mark.long
@pytest.mark.requirement("C11")
async def test_a_lock_of_eight_seconds_ends_no_session(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "home")
    other = sqlite3.connect(store.path, isolation_level=None)
    is_locked = asyncio.Event()

    @tool(effect="read")
    async def lock() -> str:
        """Lock."""
        if not is_locked.is_set():
            other.execute("BEGIN IMMEDIATE")
            is_locked.set()
        return "locked"

    script = script_from_lines([calls(call("lock")), words("Done.")] * 3)

    async def resolve(name: str) -> Provider:
        return script

    tools = make_tools([lock], secret_in=lambda _: "", own=Own())
    body = Send(
        "Go.", settings_with(ModelFacts("script", "model", price="free"), str(tmp_path), autonomy="full")
    )
    async with SessionController(Ports(store, SYSTEM_CLOCK, resolve, tools, make_redactor())) as controller:
        sessions = [await controller.begin(f"a:{name}", owner("tester"), body) for name in "xyz"]
        async with asyncio.TaskGroup() as group:
            driving = [group.create_task(controller.drive(session)) for session in sessions]
            await is_locked.wait()
            await asyncio.sleep(LOCKED_S)
            other.execute("COMMIT")
        assert [task.result().run.status for task in driving if task.result().run] == ["done"] * 3
    for session in sessions:
        await check_session(store, session, await records_of(store, session))
    other.close()
    await store.aclose()
