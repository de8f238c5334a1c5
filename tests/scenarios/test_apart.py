"""What a tool does to its task, and what comes too late, stays with its call."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import decimal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Lapsed, StorageError
from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import CallContext, RawResult, Store, Tool
from holdfast.protocol.rows import Commit
from holdfast.protocol.tools import ToolSpec
from holdfast.runtime.driver import Driver
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults, FaultyStore
from holdfast.testing.scenarios import Scenario, World, controller_of, play, records_of, settings_of
from holdfast.tools.context import Context
from holdfast.tools.function import tool
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from tests.scenarios.scenes import call, calls, words
from tests.scenarios.stage import Stage

ANN = owner("ann")


class Slow(FaultyStore):
    """Takes two seconds to write a record of this type."""

    def __init__(self, inner: Store, type_: str) -> None:
        super().__init__(inner, Faults())
        self._type = type_

    async def commit(self, commit: Commit) -> bool:
        if any(record.type == self._type for record in commit.records):
            await asyncio.sleep(2)
        return await super().commit(commit)


@pytest.mark.requirement("L7", "H1")
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("slow", ["ToolCallFinished", "Responded"])
def test_a_cancellation_that_a_call_leaves_behind_meets_nobody_else(
    volatile: Stage, slow: str, after_s: float
) -> None:
    def tools_of(_: World) -> Iterable[Tool]:
        @tool(effect="read")
        async def first() -> str:
            """Take a second."""
            await asyncio.sleep(1)
            return "first"

        @tool(effect="read")
        async def careless() -> str:
            """Leave a timer that cancels this task later."""
            await asyncio.sleep(1.1)
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(after_s, task.cancel)
            return "careless"

        return (first, careless)

    lines = [calls(call("first"), call("careless")), words("Done.", delay_s=1.0), words("Again.")]
    scenario = Scenario("careless", lines, tools_of)

    async def leave(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store = Slow(inner, slow)
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, ANN, Send("Go.", settings_of(scenario, workspace)))
            state = await asyncio.wait_for(controller.drive(session), 600)
        assert state.run is not None
        assert (state.run.status, state.run.totals.model_calls) == ("done", 2)
        results = [
            r.event.result for r in await records_of(inner, session) if type(r.event) is e.ToolCallFinished
        ]
        assert [(each.status, each.text) for each in results] == [("ok", "first"), ("ok", "careless")]

    volatile.run(leave)


@pytest.mark.requirement("L7")
def test_what_a_call_sets_in_its_context_no_other_call_sees(volatile: Stage) -> None:
    said: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="nothing")

    def tools_of(_: World) -> Iterable[Tool]:
        @tool(effect="read")
        async def change() -> str:
            """Change the context."""
            said.set("something")
            decimal.getcontext().prec = 3
            return "changed"

        @tool(effect="read")
        async def look() -> str:
            """Say what the context has."""
            return f"{said.get()} {decimal.getcontext().prec}"

        return (change, look)

    async def watch(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        lines = [calls(call("change")), calls(call("look")), words("Done.")]
        played = await play(Scenario("contexts", lines, tools_of), clock, inner, workspace)
        results = [r.event.result.text for r in played.records if isinstance(r.event, e.ToolCallFinished)]
        assert results == ["changed", "nothing 9"]

    with decimal.localcontext(prec=9) as ours:
        volatile.run(watch)
        assert ours.prec == 9, "it is ours: what calls cost is counted with it"


@pytest.mark.requirement("L1", "H3")
def test_a_call_that_was_left_has_no_effect_any_more_and_ends_nobody(volatile: Stage) -> None:
    """It looks whether it was cancelled before it would act."""

    def tools_of(world: World) -> Iterable[Tool]:
        @tool(effect="write", timeout_s=10.0)
        async def hang(context: Context) -> str:
            """Act after a minute, whatever happens."""
            loop = asyncio.get_running_loop()
            end_s = loop.time() + 60
            while (left_s := end_s - loop.time()) > 0:
                try:
                    await asyncio.sleep(left_s)
                except asyncio.CancelledError:
                    world.called.append(("cancelled", ""))
            context.progress("Nobody hears this.")
            if not context.cancelled:
                world.effects.append("late")
            return "late"

        @tool(effect="exec", timeout_s=200.0)
        async def work() -> str:
            """Work."""
            await asyncio.sleep(100)
            world.effects.append("worked")
            return "worked"

        return (hang, work)

    async def leave(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        lines = [calls(call("hang")), calls(call("work")), words("Done.")]
        played = await play(Scenario("left", lines, tools_of), clock, inner, workspace)
        assert played.world.called == [("cancelled", "")]
        assert played.world.effects == ["worked"]
        assert sum(isinstance(r.event, e.Attached) for r in played.records) == 1
        assert played.state.run is not None
        assert played.state.run.status == "done"

    volatile.run(leave)


@pytest.mark.requirement("L1", "L7")
def test_a_call_that_was_left_may_not_act_although_its_driver_has_the_lease(volatile: Stage) -> None:
    """Built-in tools look only at the check."""

    class Late(Unplanned):
        spec = ToolSpec("late", "Act late.", arguments_object([]), "write", timeout_s=10.0)

        def __init__(self, world: World) -> None:
            self._world = world

        async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
            loop = asyncio.get_running_loop()
            end_s = loop.time() + 60
            while (left_s := end_s - loop.time()) > 0:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(left_s)
            try:
                context.check()
            except Lapsed:
                self._world.effects.append("lapsed")
            return RawResult("ok", "")

    @tool(effect="read", timeout_s=200.0)
    async def work() -> str:
        """Work."""
        await asyncio.sleep(100)
        return "worked"

    async def leave(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        lines = [calls(call("late")), calls(call("work")), words("Done.")]
        scenario = Scenario("late", lines, lambda world: (Late(world), work))
        played = await play(scenario, clock, inner, workspace)
        assert played.world.effects == ["lapsed"]

    volatile.run(leave)


@pytest.mark.requirement("L1")
def test_a_run_that_left_a_call_keeps_nobody_waiting(volatile: Stage) -> None:
    def tools_of(_: World) -> Iterable[Tool]:
        @tool(effect="write", timeout_s=100.0)
        async def hang() -> str:
            """Wait ten minutes, whatever happens."""
            for _ in range(10):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
            return "late"

        return (hang,)

    scenario = Scenario("left", [calls(call("hang")), words("Done.")], tools_of)

    async def leave(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, ANN, Send("Go.", settings_of(scenario, workspace)))
            state = await controller.drive(session)
            assert clock.now_ms() - state.at_ms < 1_000
        await asyncio.sleep(3_600)

    volatile.run(leave)


@pytest.mark.requirement("H1", "L7")
def test_nothing_begins_when_its_driver_was_ended_while_the_intent_was_written(
    volatile: Stage,
) -> None:
    class Ended(FaultyStore):
        driver: Callable[[], Driver]

        async def commit(self, commit: Commit) -> bool:
            done = await super().commit(commit)
            if any(record.type == "ToolCallStarted" for record in commit.records):
                self.driver().fail(StorageError("gone"))
            return done

    def tools_of(world: World) -> Iterable[Tool]:
        @tool(effect="write")
        async def act() -> str:
            """Act."""
            world.effects.append("acted")
            return "acted"

        return (act,)

    scenario = Scenario("ended", [calls(call("act")), words("Done.")], tools_of)

    async def end(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store, world = Ended(inner), World(workspace)
        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.open("a:b")
            store.driver = lambda: controller._drivers[session]
            await controller.submit(session, ANN, Send("Go.", settings_of(scenario, workspace)))
            with pytest.raises(StorageError, match="gone"):
                await controller.drive(session)
        assert world.effects == []

    volatile.run(end)


@pytest.mark.requirement("L2-06", "C11")
def test_a_stop_that_came_while_a_run_was_ending_stops_the_next_one(volatile: Stage) -> None:
    def tools_of(_: World) -> Iterable[Tool]:
        @tool(effect="read", timeout_s=1_000.0)
        async def neat() -> str:
            """Stay, and clear up when that is cut short."""
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.5)
            return "stayed"

        @tool(effect="read", timeout_s=1_000.0)
        async def long() -> str:
            """Take long."""
            await asyncio.sleep(20)
            return "long"

        return (neat, long)

    lines = [calls(call("neat")), calls(call("long")), words("Done.")]
    scenario = Scenario("ending", lines, tools_of, limits=Limits(wall_s=30.0))

    async def stop(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, ANN, Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(5)
            await controller.submit(session, ANN, Send("And this.", settings_of(scenario, workspace)))
            async for item in controller.follow(session):
                if isinstance(item, e.Record) and isinstance(item.event, e.RunStopping):
                    break
            stopped_ms = clock.now_ms()
            await controller.submit(session, ANN, Stop())
            state = await driving
        assert state.run is not None
        assert (state.run.number, state.run.status) == (2, "interrupted")
        assert state.at_ms - stopped_ms < 3_000

    volatile.run(stop)


@pytest.mark.requirement("L7")
def test_a_drive_that_has_not_looked_yet_ends_when_its_runtime_closes(stage: Stage) -> None:
    scenario = Scenario("closed", [words("Done.")])

    async def close(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.begin("a:b", ANN, Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(0)
        with pytest.raises(StorageError):
            await asyncio.wait_for(driving, 1_000)

    stage.run(close)


@pytest.mark.requirement("H5")
def test_a_follower_sees_a_record_whose_drive_was_cancelled_while_it_was_written(volatile: Stage) -> None:
    def tools_of(_: World) -> Iterable[Tool]:
        @tool(effect="read")
        async def quick() -> str:
            """Take a second."""
            await asyncio.sleep(1)
            return "quick"

        @tool(effect="read")
        async def neat() -> str:
            """Stay, and clear up when that is cut short."""
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(2)
            return "stayed"

        return (quick, neat)

    class Sure(FaultyStore):
        """Completes a commit even if its caller has stopped waiting, as a writer thread does."""

        async def commit(self, commit: Commit) -> bool:
            if all(record.type != "ToolCallFinished" for record in commit.records):
                return await super().commit(commit)
            writing = asyncio.create_task(super().commit(commit))
            await asyncio.sleep(0.3)
            return await writing

    scenario = Scenario("followed", [calls(call("quick"), call("neat")), words("Done.")], tools_of)

    async def follow(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store, seen = Sure(inner), []
        async with controller_of(scenario, store, clock, World(workspace)) as controller:
            session = await controller.open("a:b")

            async def read() -> None:
                async for item in controller.follow(session):
                    if isinstance(item, e.Record):
                        seen.append(item.seq)

            reading = asyncio.create_task(read())
            await controller.submit(session, ANN, Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(1.1)
            driving.cancel()
            await asyncio.wait({driving})
            await asyncio.sleep(60)
            assert seen[-1] == await inner.last_seq(session)
            assert seen == list(range(1, seen[-1] + 1))
            reading.cancel()
            await asyncio.wait({reading})

    volatile.run(follow)
