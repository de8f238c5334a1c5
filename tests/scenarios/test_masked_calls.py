"""Calls whose arguments look as if they held a secret, with a crash before and after each commit: they run as the
model wrote them, or not at all, and the model knows which."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from holdfast.protocol.commands import Resolve, Send, owner
from holdfast.protocol.events import Responded, ToolCallAbandoned, ToolCallFinished, ToolCallStarted
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ModelReply, ToolCall, Usage, calls_of
from holdfast.protocol.ports import ModelAttempt, Store
from holdfast.protocol.tools import ToolSpec
from holdfast.providers.script import script_from_lines
from holdfast.runtime.controller import SessionController
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import (
    Played,
    Scenario,
    World,
    controller_of,
    play_with_crash,
    settings_of,
)
from holdfast.tools.sameness import likeness_of
from holdfast.views.replay import replay
from tests.scenarios.stage import Stage

SECRET = "Tr0ub4dor" + "-and-3"
CODE = f'password = "{SECRET}"\n'
CALLS = [
    {"name": "write_file", "arguments": {"path": "a.py", "content": CODE}},
    {"name": "read_file", "arguments": {"path": "a.py"}},
    {"name": "edit_file", "arguments": {"path": "a.py", "old": "\n", "new": f"\n# api_key={SECRET}9x\n"}},
    {"name": "read_file", "arguments": {"path": f"password={SECRET}"}},
    {"name": "write_file", "arguments": {"path": "b.txt", "content": f"password={SECRET}\n"}},
]
SCENARIO = Scenario("masked", [{"tool_calls": CALLS[:3]}, {"tool_calls": CALLS[3:]}, {"text": "Done."}])
DONE_A = f"{CODE}# api_key={SECRET}9x\n"


def played(stage: Stage, *faults: Faults) -> tuple[Played, dict[str, str]]:
    """What came of it, and the files that are there."""

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> tuple[Played, dict[str, str]]:
        came = await play_with_crash(SCENARIO, clock, store, workspace, *faults)
        await check_session(store, came.session, came.records)
        return came, {path.name: path.read_text() for path in workspace.iterdir()}

    return stage.run(play)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
def test_a_crash_anywhere_runs_no_call_from_its_masked_copy(volatile: Stage) -> None:
    whole, files = played(volatile)
    assert files == {"a.py": DONE_A, "b.txt": f"password={SECRET}\n"}
    asked = {
        c.call_id for r in whole.records if isinstance(r.event, Responded) for c in calls_of(r.event.parts)
    }
    masked = {
        c.call_id
        for r in whole.records
        if isinstance(r.event, Responded)
        for c in calls_of(r.event.parts)
        if c.is_masked
    }
    assert len(asked - masked) == 1
    lost = 0
    for number in range(1, whole.commits + 1):
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number)):
            came, files = played(volatile, faults)
            given_up = {r.event.call_id for r in came.records if isinstance(r.event, ToolCallAbandoned)}
            started = [r.event for r in came.records if isinstance(r.event, ToolCallStarted)]
            done = {r.event.call_id for r in came.records if isinstance(r.event, ToolCallFinished)}
            assert given_up <= masked
            assert given_up | done == asked
            assert {each.attempt for each in started if each.call_id in masked} <= {1}
            assert files.get("a.py", "") in ("", CODE, DONE_A)
            assert files.get("b.txt", "") in ("", f"password={SECRET}\n")
            assert not replay(came.session, "test:scenario", came.records).differences
            lost += bool(given_up)
    assert lost > 4


def originals_of(controller: SessionController) -> int:
    """How many originals the process holds."""
    return len(controller._originals._kept)


@pytest.mark.requirement("A4", "C3")
def test_the_originals_are_gone_as_soon_as_their_calls_have_ended(volatile: Stage) -> None:
    scenario = Scenario("masked", [{"tool_calls": CALLS[:3]}, {"text": "Done.", "delay_s": 60}])

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            send = Send("Go on.", settings_of(scenario, workspace))
            session = await controller.begin("a:b", owner("tester"), send)
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(30)
            assert (workspace / "a.py").read_text() == DONE_A
            assert originals_of(controller) == 0
            await driving

    volatile.run(play)


@pytest.mark.requirement("A4", "C3", "H5")
def test_a_call_that_waits_keeps_its_original_until_a_visitor_denies_it(volatile: Stage) -> None:
    call = {"name": "shell", "arguments": {"command": f"password={SECRET} ./go"}}
    scenario = Scenario(
        "waiting", [{"tool_calls": [call]}, {"text": "Done."}], settings={"autonomy": "supervised"}
    )

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            send = Send("Go on.", settings_of(scenario, workspace))
            session = await controller.begin("a:b", owner("tester"), send)
            await controller.drive(session)
            assert originals_of(controller) == 1
            (row,) = await store.approvals(session)
            await controller.decide_now(session, owner("tester"), Resolve(row.id, "deny"))
            assert originals_of(controller) == 0

    volatile.run(play)


class Late:
    """A model that answers only when its call is cancelled."""

    wire = script_from_lines([{"text": "unused"}]).wire

    async def respond(self, attempt: ModelAttempt) -> ModelReply:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        arguments = json.dumps(CALLS[0]["arguments"])
        return ModelReply((ToolCall("r", "write_file", arguments),), Usage(1, 1), "tool_calls")

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.requirement("A4", "C3")
def test_a_response_that_nobody_records_leaves_no_original(volatile: Stage) -> None:
    model = ModelFacts("late", "model", price="free")
    scenario = Scenario("late", [{"text": "unused"}], settings={"facts": model}, others={model.name: Late()})

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            send = Send("Go on.", settings_of(scenario, workspace))
            session = await controller.begin("a:b", owner("tester"), send)
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(5)
            driving.cancel()
            await asyncio.wait([driving])
            assert originals_of(controller) == 0

    volatile.run(play)


@pytest.mark.requirement("A4", "H5")
def test_nothing_recorded_of_a_call_lets_somebody_try_secrets_against_it(volatile: Stage) -> None:
    """The digest that tells equal calls is made of the whole arguments: without a key, a guess could be checked."""
    paths = (f"password={SECRET}", f"password={SECRET}", "a.py")
    reads = [{"tool_calls": [{"name": "read_file", "arguments": {"path": path}}]} for path in paths]
    scenario = Scenario("told", [*reads, {"text": "Done."}])

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> tuple[Played, str]:
        return await play_with_crash(scenario, clock, store, workspace), str(workspace)

    came, workspace = volatile.run(play)
    first, again, plain = [each.event for each in came.records if isinstance(each.event, ToolCallStarted)]
    spec = ToolSpec("read_file", "", {}, kinds={"path": "path"})
    assert plain.likeness == likeness_of(spec, {"path": "a.py"}, workspace), "so it is made"
    assert first.is_masked
    assert first.likeness.digest not in ("", likeness_of(spec, {"path": paths[0]}, workspace).digest)
    assert first.likeness == again.likeness, "the same call is still known"
