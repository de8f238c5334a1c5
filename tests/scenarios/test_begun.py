"""A new session begins with the first commit of its driver. Before it nothing is stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.state import State
from holdfast.errors import Fenced, UsageError
from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, Stop, owner
from holdfast.protocol.ports import Provider, Store
from holdfast.protocol.rows import Commit, Holder
from holdfast.runtime.controller import SessionController
from holdfast.runtime.driver import AT_ONCE_S
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import lease_of
from holdfast.testing.faults import Crash, Faults, FaultyStore
from holdfast.testing.invariants import check_session, conversation, ended
from holdfast.testing.scenarios import Scenario, World, controller_of, finish, records_of, settings_of
from tests.scenarios.scenes import call, calls, tools_of, words
from tests.scenarios.stage import Stage

ANN = owner("ann")
KEY = "cli:demo"
NOTED = Scenario("noted", [calls(call("note", text="a")), words("Done.")], tools_of)
SAID = Scenario("said", [words("Done.")])
SLOW = Scenario("slow", [calls(call("wait", seconds=500)), words("Done.")], tools_of)


def told(records: tuple[e.Record, ...]) -> list[str]:
    return [each.event.text for each in records if isinstance(each.event, e.MessageReceived)]


async def once(
    scenario: Scenario, clock: JumpingClock, store: Store, workspace: Path, begun: list[str]
) -> State:
    """One runtime, and what its run of a new session comes to."""
    async with controller_of(scenario, store, clock, World(workspace)) as controller:
        return await controller.run(KEY, ANN, Send("Go.", settings_of(scenario, workspace)), begun.append)


@pytest.mark.requirement("L7", "S1")
def test_a_new_session_costs_no_commit_more_than_its_turns(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        store = FaultyStore(inner)
        state = await once(NOTED, clock, store, workspace, begun)
        assert begun == [state.session]
        assert store.commits == 4  # what begins it, the call, its result, the answer
        assert await lease_of(inner, state.session) is None
        records = await records_of(inner, state.session)
        await check_session(inner, state.session, records)
        assert (told(records), ended(records)) == (["Go."], [("done", "answer")])

    stage.run(play)


@pytest.mark.requirement("H1", "H5", "L2-05")
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("is_before", [True, False])
def test_a_crash_leaves_no_session_or_one_that_goes_on(stage: Stage, number: int, is_before: bool) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        faults = Faults(**{"crash_before_commit" if is_before else "crash_after_commit": number})
        with pytest.raises(Crash):
            await once(NOTED, clock, FaultyStore(inner, faults), workspace, begun)
        clock.advance(11)
        found = await inner.find(KEY)
        assert len(await inner.sessions()) == len(found) == (number > 1 or not is_before)
        assert begun == (found if number > 1 else [])
        world = World(workspace)
        async with controller_of(NOTED, inner, clock, world) as controller:
            if found:
                state = await finish(controller, inner, clock, found[0])
            else:
                state = await controller.run(KEY, ANN, Send("Go.", settings_of(NOTED, workspace)))
        records = await records_of(inner, state.session)
        await check_session(inner, state.session, records)
        assert (told(records), ended(records)) == (["Go."], [("done", "answer")])
        assert conversation(records)

    stage.run(play)


@pytest.mark.requirement("C11", "L7")
def test_of_two_that_begin_a_session_of_one_key_both_speak_in_the_same_one(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        states = await asyncio.gather(*(once(NOTED, clock, inner, workspace, begun) for _ in range(2)))
        (row,) = await inner.sessions()
        assert {state.session for state in states} == set(begun) == {row.session}
        assert len(begun) == 2
        records = await records_of(inner, row.session)
        await check_session(inner, row.session, records)
        assert told(records) == ["Go.", "Go."]

    stage.run(play)


@pytest.mark.requirement("L7", "C11")
def test_words_for_a_key_that_has_a_session_go_there(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        one = await once(NOTED, clock, inner, workspace, begun)
        two = await once(NOTED, clock, inner, workspace, begun)
        assert one.session == two.session
        assert begun == [one.session] * 2
        assert told(await records_of(inner, one.session)) == ["Go.", "Go."]

    stage.run(play)


@pytest.mark.requirement("C4", "L7")
def test_another_process_stops_a_session_as_soon_as_it_has_begun(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        body = Send("Go.", settings_of(SLOW, workspace))
        one, other = (controller_of(SLOW, inner, clock, World(workspace)) for _ in range(2))
        async with one, other:
            has_begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            running = asyncio.create_task(one.run(KEY, ANN, body, has_begun.set_result))
            await other.submit(await has_begun, ANN, Stop())
            began_ms = clock.now_ms()
            state = await running
            assert state.run is not None
            assert (state.run.status, clock.now_ms() - began_ms < 10_000) == ("interrupted", True)

    stage.run(play)


class Cancelling(FaultyStore):
    """Cancels its caller while the session begins."""

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        await super().begin(commit, holder, duration_ms)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)
        raise AssertionError("it was cancelled")


@pytest.mark.requirement("C4", "L7")
def test_a_cancelled_run_leaves_its_session_to_whoever_resumes_it(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        with pytest.raises(asyncio.CancelledError):
            await once(NOTED, clock, Cancelling(inner), workspace, [])
        (session,) = await inner.find(KEY)
        assert await lease_of(inner, session) is None
        async with controller_of(NOTED, inner, clock, World(workspace)) as controller:
            state = await controller.drive(session)
        assert state.run is not None
        assert state.run.status == "done"

    stage.run(play)


@pytest.mark.requirement("L2-05")
def test_a_session_is_durable_before_a_provider_is_ready_that_takes_long(stage: Stage) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        seen: list[tuple[float, list[str]]] = []

        async def resolve(name: str) -> Provider:
            await asyncio.sleep(5)
            seen.append((clock.now_ms() - began_ms, await store.find(KEY)))
            raise UsageError("There is no such provider.")

        begun = list[int]()
        ports = controller_of(NOTED, store, clock, World(workspace))._ports
        began_ms = clock.now_ms()
        async with SessionController(replace(ports, resolve=resolve)) as controller:
            state = await controller.run(
                KEY, ANN, Send("Go.", settings_of(NOTED, workspace)), lambda _: begun.append(clock.now_ms())
            )
        assert state.run is not None
        assert state.run.status == "failed"
        assert begun[0] - began_ms <= AT_ONCE_S * 1000 + 1
        assert seen[0] == (pytest.approx(5_000, abs=100), [state.session])

    stage.run(play)


@pytest.mark.requirement("C4")
def test_a_provider_that_is_ready_is_waited_for_by_no_later_session(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        store = FaultyStore(inner)
        ports = controller_of(SAID, store, clock, World(workspace))._ports

        async def resolve(name: str) -> Provider:
            await asyncio.sleep(5)
            return await ports.resolve(name)

        commits = [0]
        async with SessionController(replace(ports, resolve=resolve)) as controller:
            for _ in range(2):
                await controller.run("", ANN, Send("Go.", settings_of(SAID, workspace)))
                commits.append(store.commits)
        assert commits == [0, 3, 5]  # the first session was durable before it had a request

    stage.run(play)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("key", ["no name", "cli:" + "AKIA" + "Z7" * 8])
def test_a_name_that_is_none_begins_nothing(stage: Stage, key: str) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async with controller_of(NOTED, store, clock, World(workspace)) as controller:
            with pytest.raises(UsageError):
                await controller.run(key, ANN, Send("Go.", settings_of(NOTED, workspace)))
        assert await store.sessions() == []

    stage.run(play)


class Slow(FaultyStore):
    """Takes half a minute to begin a session."""

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        await asyncio.sleep(30)
        return await super().begin(commit, holder, duration_ms)


@pytest.mark.requirement("C11", "L7")
def test_a_lease_is_not_lost_before_the_session_has_begun(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        state = await once(SLOW, clock, Slow(inner), workspace, begun)
        assert begun == [state.session]
        records = await records_of(inner, state.session)
        assert {each.epoch for each in records} == {1}
        assert (told(records), ended(records)) == (["Go."], [("done", "answer")])

    stage.run(play)


class Refusing(FaultyStore):
    """Refuses to begin a session, as if its key were taken each time."""

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        raise Fenced("taken")


@pytest.mark.requirement("L7")
def test_a_session_that_could_not_begin_so_begins_with_its_command(stage: Stage) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        begun: list[str] = []
        state = await once(NOTED, clock, Refusing(inner), workspace, begun)
        assert begun == [state.session]
        assert told(await records_of(inner, state.session)) == ["Go."]

    stage.run(play)
