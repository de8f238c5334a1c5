"""What is done when a stop comes is recorded as done, and the driver comes to its end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.events import Record, Responded, RunStopping, ToolCallFinished
from holdfast.protocol.ports import Blobs, Store
from holdfast.protocol.rows import Commit
from holdfast.redact import Redactor
from holdfast.redact.spans import Span
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults, FaultyStore
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from holdfast.tools.function import tool
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage


class Held:
    """Work in a thread that ends when it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(60)


class HeldBlobs:
    """Stores the output of a call when it may."""

    def __init__(self, inner: Blobs, held: Held) -> None:
        self._inner = inner
        self._held = held

    async def put(self, content: bytes) -> str:
        if content.startswith(b"done "):
            await asyncio.to_thread(self._held.wait)
        return await self._inner.put(content)

    async def get(self, sha256: str) -> bytes:
        return await self._inner.get(sha256)


class HeldRedactor(Redactor):
    """Searches a long text, which is done in a thread, when it may."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        self._hold()
        return super().find(text, is_cut=is_cut)

    def __call__(self, text: str, *, is_cut: bool = False) -> str:
        self._hold()
        return super().__call__(text, is_cut=is_cut)

    def _hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._held.wait()


@tool(effect="write")
async def talk(chars: int) -> str:
    """Do it, and say much."""
    return ("done " * chars)[:chars]


LONG = "done " * 20_000
ENDS: dict[str, tuple[Any, type[ToolCallFinished | Responded]]] = {
    "an output that is stored": (calls(call("talk", chars=50_000)), ToolCallFinished),
    "an output that is searched": (calls(call("talk", chars=70_000)), ToolCallFinished),
    "an answer that is searched": (words(LONG), Responded),
    "a call that is searched": (calls(call("talk", chars=1, note=LONG)), Responded),
}


@pytest.mark.requirement("L2-06", "H1", "L7")
@pytest.mark.parametrize("what", ENDS)
def test_what_is_done_when_a_stop_comes_is_recorded_as_done_and_the_driver_ends(
    volatile: Stage, what: str
) -> None:
    line, type_ = ENDS[what]
    scenario = Scenario("held", [line], lambda _: (talk,))

    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        held, store = Held(), FaultyStore(inner, Faults())
        redact: Redactor = HeldRedactor(held)
        if what.endswith("stored"):
            store.blobs, redact = HeldBlobs(store.blobs, held), Redactor()
        async with controller_of(scenario, store, clock, World(workspace), redact) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            assert await asyncio.to_thread(held.has_begun.wait, 60)
            await controller.submit(session, owner("tester"), Stop())
            async for item in controller.follow(session):
                if isinstance(item, Record) and isinstance(item.event, RunStopping):
                    break
            for _ in range(10):  # then it cancels
                await asyncio.sleep(0)
            held.may_end.set()
            state = await asyncio.wait_for(driving, 100)
        records = await records_of(inner, session)
        (ended,) = [each.event for each in records if isinstance(each.event, type_)]
        assert isinstance(ended, Responded) or ended.result.status == "ok"
        assert state.run is not None
        assert (state.run.status, state.run.totals.held_microusd) == ("interrupted", 0)

    volatile.run(stop)


class SlowToStop(FaultyStore):
    """Lets a call end while the stop of its run is written."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, Faults())
        self.is_stopping = asyncio.Event()

    async def commit(self, commit: Commit) -> bool:
        if any(record.type == "RunStopping" for record in commit.records):
            self.is_stopping.set()
            for _ in range(10):
                await asyncio.sleep(0)
        return await super().commit(commit)


@pytest.mark.requirement("L2-06", "H1")
def test_a_call_that_ends_while_the_stop_is_written_is_recorded_as_done(volatile: Stage) -> None:
    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store, has_begun = SlowToStop(inner), asyncio.Event()

        @tool(effect="write")
        async def last() -> str:
            """End when the run is being stopped."""
            has_begun.set()
            await store.is_stopping.wait()
            return "done"

        scenario = Scenario("last", [calls(call("last"))], lambda _: (last,))
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await has_begun.wait()
            await controller.submit(session, owner("tester"), Stop())
            await driving
        records = await records_of(inner, session)
        (ended,) = [each.event for each in records if isinstance(each.event, ToolCallFinished)]
        assert (ended.result.status, ended.result.text) == ("ok", "done")

    volatile.run(stop)
