"""Prepare steps that take long or raise: they can be stopped, they have a limit, and they leave a record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ProviderUnavailable, UsageError
from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Send, Stop, owner
from holdfast.protocol.ports import CallContext, Provider, RawResult, Store, Tool
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Expectation, ToolSpec
from holdfast.redact import make_redactor
from holdfast.runtime.controller import SessionController
from holdfast.runtime.ports import Ports
from holdfast.runtime.prepare import MAX_DETAIL_CHARS, PREPARE_LIMIT_S
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage


class Slow:
    """A tool whose plan takes its time."""

    spec = ToolSpec("plan_long", "Plan long.", {"type": "object"}, effect="write", on_interrupt="probe")

    def __init__(self, world: World, plan_s: float) -> None:
        self._world = world
        self._plan_s = plan_s

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        self._world.called.append(("plan", context.key))
        try:
            await asyncio.sleep(self._plan_s)
        except asyncio.CancelledError:
            self._world.called.append(("cancelled", context.key))
            raise
        return None

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        self._world.effects.append("ran")
        return RawResult("ok", "ran")


def slow(plan_s: float) -> Scenario:
    def make(world: World) -> Iterable[Tool]:
        return (Slow(world, plan_s),)

    return Scenario("slow", [calls(call("plan_long")), words("Done.")], make)


def played(
    scenario: Scenario, ask: Callable[[SessionController, str, World], Awaitable[None]]
) -> Callable[[JumpingClock, Store, Path], Awaitable[tuple[World, list[e.Record], int]]]:
    """Play the scenario; while it is driven, `ask` asks something. Also how long it all took."""

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> tuple[World, list[e.Record], int]:
        world = World(workspace)
        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(scenario, workspace)))
            began_ms = clock.now_ms()
            driving = asyncio.create_task(controller.drive(session))
            await ask(controller, session, world)
            await driving
            took_ms = clock.now_ms() - began_ms
        records = await records_of(store, session)
        await check_session(store, session, records)
        return world, list(records), took_ms

    return play


async def nothing(controller: SessionController, session: str, world: World) -> None:
    """Ask for nothing."""


async def until_planning(world: World) -> None:
    while not world.called:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.requirement("C4", "H1")
def test_a_stop_ends_a_plan_that_hangs(stage: Stage) -> None:
    async def stop(controller: SessionController, session: str, world: World) -> None:
        await until_planning(world)
        await asyncio.sleep(1)
        await controller.submit(session, owner("tester"), Stop())

    world, records, took_ms = stage.run(played(slow(3_600), stop))
    assert [name for name, _ in world.called] == ["plan", "cancelled"]
    assert ended(records) == [("interrupted", "stopped")]
    assert took_ms < PREPARE_LIMIT_S * 1_000
    assert world.effects == []


@pytest.mark.requirement("C4")
def test_a_plan_that_takes_too_long_refuses_its_call_and_the_run_goes_on(stage: Stage) -> None:
    world, records, _ = stage.run(played(slow(3_600), nothing))
    (refused,) = [r.event for r in records if isinstance(r.event, e.ToolCallRefused)]
    assert (refused.failure.code, "longer than 10 s" in refused.failure.message) == ("tool_timeout", True)
    assert ended(records) == [("done", "answer")]
    assert world.effects == []


@pytest.mark.requirement("C4")
def test_a_plan_that_takes_a_while_delays_its_call_and_no_commit(stage: Stage) -> None:
    world, records, _ = stage.run(played(slow(3), nothing))
    responded = next(r for r in records if isinstance(r.event, e.Responded))
    started = next(r for r in records if isinstance(r.event, e.ToolCallStarted))
    assert started.at_ms - responded.at_ms >= 3_000
    assert started.cause == e.Trigger("finding", "t1.c1#0")
    assert world.effects == ["ran"]


@pytest.mark.requirement("C4", "C12")
def test_a_finding_under_settings_that_changed_meanwhile_is_void(stage: Stage) -> None:
    """What was allowed under the old settings is judged again under the new ones."""

    async def tighten(controller: SessionController, session: str, world: World) -> None:
        await until_planning(world)
        tight = changed(settings_of(slow(3), world.workspace), deny_tools=("plan_long",))
        await controller.submit(session, owner("tester"), Send("Careful.", tight))

    world, records, _ = stage.run(played(slow(3), tighten))
    assert [r.event.failure.code for r in records if isinstance(r.event, e.ToolCallRefused)] == [
        "policy_denied"
    ]
    assert world.effects == []


@pytest.mark.requirement("C4")
def test_a_pause_in_the_middle_of_a_plan_starts_nothing(stage: Stage) -> None:
    async def pause(controller: SessionController, session: str, world: World) -> None:
        await until_planning(world)
        await controller.submit(session, owner("tester"), Pause())

    world, records, _ = stage.run(played(slow(3), pause))
    assert isinstance(records[-1].event, e.RunPaused)
    assert world.effects == []


@pytest.mark.requirement("H1", "L1")
@pytest.mark.parametrize(
    "error",
    [
        UsageError("No key is set.", hint="Set OPENAI_API_KEY."),
        ProviderUnavailable("It is gone."),
        KeyError("x"),
        KeyError("x" * 10 * MAX_DETAIL_CHARS),
    ],
    ids=["no key", "gone", "bug", "long"],
)
def test_a_model_that_cannot_be_called_ends_the_run_with_a_record_and_leaves_no_command(
    stage: Stage, error: Exception
) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> list[e.Record]:
        scenario = Scenario("gone", [words("Never said.")])

        async def resolve(name: str) -> Provider:
            raise error

        world = World(workspace)
        async with controller_of(scenario, store, clock, world) as usual:
            ports = Ports(store, clock, resolve, usual._ports.tools, make_redactor())
        async with SessionController(ports) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(scenario, workspace)))
            await controller.drive(session)
        records = await records_of(store, session)
        await check_session(store, session, records)
        async with controller_of(scenario, store, clock, world) as controller:
            await controller.drive(session)
        assert len(await records_of(store, session)) == len(records), "nothing is left to do"
        return list(records)

    records = stage.run(play)
    (unready,) = [r.event for r in records if isinstance(r.event, e.ModelCallUnready)]
    assert unready.failure.code == "provider_unready"
    assert 0 < len(unready.failure.detail) <= MAX_DETAIL_CHARS
    assert getattr(error, "message", "bug") in unready.failure.message
    assert ended(records) == [("failed", "provider_unready")]


@pytest.mark.requirement("L2-06", "L7")
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "its time is over"])
def test_a_step_that_ignores_its_cancellation_holds_nobody_up(volatile: Stage, is_stopped: bool) -> None:
    scenario = Scenario("deaf", [words("Done.")])

    async def wait(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        ports = controller_of(scenario, store, clock, world)._ports

        async def resolve(name: str) -> Provider:
            for _ in range(100):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    world.called.append(("cancelled", name))
            return await ports.resolve(name)

        deaf = Ports(store, clock, resolve, ports.tools, make_redactor())
        async with SessionController(deaf) as controller:
            session = await controller.open("a:b")
            settings = changed(settings_of(scenario, workspace), model_attempts=1)
            await controller.submit(session, owner("tester"), Send("Go.", settings))
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(5)
            if is_stopped:
                await controller.submit(session, owner("tester"), Stop())
            state = await asyncio.wait_for(driving, 60)
        assert state.run is not None
        assert (state.run.status, state.run.reason) == (
            ("interrupted", "stopped") if is_stopped else ("failed", "provider_unready")
        )
        assert len(world.called) == 1
        await asyncio.sleep(3 * 3_600)

    volatile.run(wait)
