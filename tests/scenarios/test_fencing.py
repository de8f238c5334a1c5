"""Two who would drive one session, inboxes that are full, and many sessions begun and stopped at random."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import Overloaded, StorageFull
from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Send, Stop, owner
from holdfast.protocol.ports import Blobs, Store, Tool
from holdfast.protocol.rows import Lease, Recovered, Situation, Verified
from holdfast.runtime.controller import INBOX_CAPACITY
from holdfast.runtime.holder import LEASE_MS, this_process
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import lease_of
from holdfast.testing.faults import Faults, FaultyStore
from holdfast.testing.invariants import check_session, conversation, ended
from holdfast.testing.scenarios import Scenario, World, controller_of, play, records_of, settings_of
from holdfast.tools.context import Context
from holdfast.tools.dispatcher import Dispatcher
from holdfast.tools.function import tool
from tests.scenarios.scenes import BY_NAME, call, calls, words
from tests.scenarios.stage import Stage


class Frozen(FaultyStore):
    """A store whose process can be stopped: nothing that it asks goes through until it is woken."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.awake = asyncio.Event()
        self.awake.set()

    async def pass_on(self, operation):  # type: ignore[no-untyped-def]
        await self.awake.wait()
        return await super().pass_on(operation)


def stubborn(world: World) -> Iterable[Tool]:
    """A tool that takes a minute and tells when it is cancelled."""

    @tool(effect="read", timeout_s=1_000.0)
    async def stay(context: Context) -> str:
        """Stay for a minute."""
        world.called.append(("stay", context.key))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            world.effects.append("cancelled")
            raise
        world.effects.append("stayed")
        return "stayed"

    return (stay,)


LONG = Scenario("long", [calls(call("stay")), calls(call("stay")), words("Done.")], stubborn)


async def until_event(store: Store, session: str, name: str) -> None:
    """Wait until the journal holds such an event."""
    while name not in [record.type for record in await store.read(session)]:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.requirement("C11", "H1", "H5")
def test_who_lost_the_session_writes_nothing_starts_nothing_and_follows_to_its_end(stage: Stage) -> None:
    async def play_both(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world = World(workspace)
        frozen = Frozen(inner)
        first = controller_of(LONG, frozen, clock, world)
        second = controller_of(LONG, inner, clock, world)
        async with first, second:
            session = await first.open("a:b")
            await first.submit(session, owner("tester"), Send("Go.", settings_of(LONG, workspace)))
            driving = asyncio.create_task(first.drive(session))
            await until_event(inner, session, "ToolCallStarted")
            frozen.awake.clear()
            asyncio.get_running_loop().call_later(75, frozen.awake.set)
            state = await second.drive(session)
            followed = await driving
        assert state.run is not None
        assert followed.run is not None
        assert (followed.run.status, followed.seq) == (state.run.status, state.seq) == ("done", followed.seq)
        records = await records_of(inner, session)
        taken = next(r.seq for r in records if r.epoch == 2)
        assert all(r.epoch == 2 for r in records[taken - 1 :])
        assert [name for name, _ in world.called] == ["stay"] * 3, "the lost one and the two of the second"
        assert world.effects.count("stayed") >= 2
        await check_session(inner, session, records)

    stage.run(play_both)


@pytest.mark.requirement("C11", "H1")
def test_tools_of_a_fenced_driver_are_cancelled(volatile: Stage) -> None:
    async def play_both(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world = World(workspace)
        frozen = Frozen(inner)
        first, second = controller_of(LONG, frozen, clock, world), controller_of(LONG, inner, clock, world)
        async with first, second:
            session = await first.open("a:b")
            await first.submit(session, owner("tester"), Send("Go.", settings_of(LONG, workspace)))
            driving = asyncio.create_task(first.drive(session))
            await until_event(inner, session, "ToolCallStarted")
            frozen.awake.clear()
            asyncio.get_running_loop().call_later(LEASE_MS / 1000 + 5, frozen.awake.set)
            await second.drive(session)
            await driving
        assert world.effects == ["cancelled", "stayed", "stayed"]
        assert ended(await records_of(inner, session)) == [("done", "answer")]

    volatile.run(play_both)


class Asleep(FaultyStore):
    """A store whose process sleeps, once the test says so, when it has read a session that it will take over."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.awake = asyncio.Event()
        self.has_read = asyncio.Event()

    async def recover(self, session: str) -> Recovered:
        found = await super().recover(session)
        self.has_read.set()
        await self.awake.wait()
        return found

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        await self.awake.wait()
        return await super().renew(leases, duration_ms)


@pytest.mark.requirement("C11", "H5")
@pytest.mark.parametrize("is_visit", [False, True], ids=["driver", "visitor"])
def test_who_slept_before_it_ended_orphans_does_not_end_what_runs_for_another(
    volatile: Stage, monkeypatch: pytest.MonkeyPatch, is_visit: bool
) -> None:
    ended_keys: list[str] = []

    async def end_orphans(self: Dispatcher, keys: Sequence[str]) -> None:
        ended_keys.extend(keys)

    monkeypatch.setattr(Dispatcher, "end_orphans", end_orphans)

    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world, asleep = World(workspace), Asleep(inner)
        first, second, third = (controller_of(LONG, store, clock, world) for store in (inner, asleep, inner))
        async with first, second, third:
            session = await first.open("a:b")
            await first.submit(session, owner("tester"), Send("Go.", settings_of(LONG, workspace)))
            driving = asyncio.create_task(first.drive(session))
            await until_event(inner, session, "ToolCallStarted")
            driving.cancel()
            await asyncio.wait((driving,))
            task = second.decide_now(session, owner("tester"), Pause()) if is_visit else second.drive(session)
            sleeping: asyncio.Task[object] = asyncio.create_task(task)
            await asleep.has_read.wait()
            clock.advance(LEASE_MS / 1000 + 1)
            going_on = asyncio.create_task(third.drive(session))
            while len(ended_keys) < 1:  # noqa: ASYNC110 - the clock jumps
                await asyncio.sleep(0.05)
            asleep.awake.set()
            await asyncio.gather(sleeping, going_on)
        assert len(ended_keys) == 1, "only who has the session ends what its dead driver left"

    volatile.run(play)


def writing(world: World) -> Iterable[Tool]:
    """A tool that takes a minute and changes something at its end."""

    @tool(effect="write", timeout_s=1_000.0)
    async def stay() -> str:
        """Stay for a minute."""
        world.called.append(("stay", ""))
        await asyncio.sleep(60)
        return "stayed"

    return (stay,)


WRITING = Scenario("writing", [calls(call("stay")), words("Done.")], writing)


@pytest.mark.requirement("C11", "H5")
def test_the_model_is_told_of_a_sleeper_also_if_a_process_between_died_before_its_first_record(
    volatile: Stage,
) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world, frozen = World(workspace), Frozen(inner)
        first, second = (controller_of(WRITING, store, clock, world) for store in (frozen, inner))
        async with first, second:
            session = await first.open("a:b")
            await first.submit(session, owner("tester"), Send("Go.", settings_of(WRITING, workspace)))
            driving = asyncio.create_task(first.drive(session))
            await until_event(inner, session, "ToolCallStarted")
            frozen.awake.clear()
            clock.advance(LEASE_MS / 1000 + 1)
            dead = replace(this_process(), pid=2**22 + 1, started="1")
            assert (await inner.lease(session, dead, LEASE_MS)).epoch == 2
            await second.drive(session)
            frozen.awake.set()
            await driving
        records = await records_of(inner, session)
        (note,) = [
            r.event for r in records if isinstance(r.event, e.NoteAdded) and r.event.about == "takeover"
        ]
        assert "stay (t1.c1)" in note.text

    volatile.run(play)


@pytest.mark.requirement("C11", "H5")
def test_a_lease_that_lapsed_and_that_nobody_took_is_renewed_in_place(volatile: Stage) -> None:
    async def sleep_and_wake(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world = World(workspace)
        async with controller_of(LONG, inner, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(LONG, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await until_event(inner, session, "ToolCallStarted")
            clock.advance(3 * LEASE_MS / 1000)
            await driving
        records = await records_of(inner, session)
        assert {record.epoch for record in records} == {1}
        assert world.effects == ["stayed", "stayed"]

    volatile.run(sleep_and_wake)


@pytest.mark.requirement("C11")
def test_two_who_start_at_once_drive_one_session_once(stage: Stage) -> None:
    scenario = BY_NAME["side by side"]

    async def race(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        one, two = (controller_of(scenario, store, clock, world) for _ in range(2))
        async with one, two:
            sessions = await asyncio.gather(one.open("a:b"), two.open("a:b"))
            assert sessions[0] == sessions[1]
            session, body = sessions[0], Send("Do it.", settings_of(scenario, workspace))
            await asyncio.gather(
                one.submit(session, owner("one"), body, "same"),
                two.submit(session, owner("two"), body, "same"),
            )
            states = await asyncio.gather(*(controller.drive(session) for controller in (one, two, one, two)))
        assert {state.seq for state in states} == {states[0].seq}
        records = await records_of(store, session)
        whole = conversation(records)
        assert sum(isinstance(r.event, e.MessageReceived) for r in records) == 1
        assert len(world.called) == 6
        assert whole[-1][0] == "end"
        await check_session(store, session, records)

    stage.run(race)


class Slow(FaultyStore):
    """A store that answers one look at a session late: what it says was true when it looked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.has_looked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def situation(self, session: str) -> Situation | None:
        found = await super().situation(session)
        if not self.has_looked.is_set():
            self.has_looked.set()
            await self.may_answer.wait()
        return found


@pytest.mark.requirement("C11")
def test_who_comes_when_a_session_has_just_come_to_rest_adds_nothing(stage: Stage) -> None:
    scenario = BY_NAME["side by side"]

    async def come_late(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world, slow = World(workspace), Slow(store)
        early, lately = (controller_of(scenario, each, clock, world) for each in (store, slow))
        async with early, lately:
            session = await early.open("a:b")
            await early.submit(session, owner("one"), Send("Do it.", settings_of(scenario, workspace)))
            late = asyncio.create_task(lately.drive(session))
            await slow.has_looked.wait()
            state = await early.drive(session)
            slow.may_answer.set()
            assert (await late).seq == state.seq

    stage.run(come_late)


@pytest.mark.requirement("C11", "B4")
def test_a_full_inbox_refuses_clearly_and_what_it_took_is_not_lost(stage: Stage) -> None:
    scenario = Scenario("many", [{**words("Heard."), "repeat": True}])

    async def flood(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        settings = settings_of(scenario, workspace)
        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.open("a:b")
            for number in range(INBOX_CAPACITY):
                await controller.submit(
                    session, owner("tester"), Send(f"word {number}", settings), f"c{number}"
                )
            with pytest.raises(Overloaded, match="Nothing was accepted"):
                await controller.submit(session, owner("tester"), Send("one too many", settings))
            await controller.submit(session, owner("tester"), Send("word 0", settings), "c0")
            await controller.drive(session)
            await controller.submit(session, owner("tester"), Send("word 7", settings), "c7")
            state = await controller.drive(session)
        records = await records_of(store, session)
        said = [r.event.text for r in records if isinstance(r.event, e.MessageReceived)]
        assert said == [f"word {number}" for number in range(INBOX_CAPACITY)]
        assert state.run is not None
        assert state.run.status == "done"
        await check_session(store, session, records)

    stage.run(flood)


@pytest.mark.requirement("B8", "C8", "L2-06")
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_many_sessions_begun_and_stopped_at_random_leave_nothing_behind(stage: Stage, count: int) -> None:
    """Some are stopped by a command, some are cancelled like a program that is ended, some end by themselves."""
    threads_before = threading.active_count()
    dice = random.Random(20_240)
    lines = [
        calls(call("wait", seconds=2), call("look", name="x")),
        words("word " * 20, chunks=10, delay_s=1.0),
    ]
    scenario = Scenario("short", lines, BY_NAME["unknown"].make)

    async def one(clock: JumpingClock, store: Store, world: World, number: int) -> str:
        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.open(f"chaos:{number}")
            body = Send("Go.", settings_of(scenario, world.workspace))
            await controller.submit(session, owner("tester"), body)
            driving = asyncio.create_task(controller.drive(session))
            await asyncio.sleep(dice.random() * 4)
            match dice.choice(("stop", "cancel", "wait")):
                case "stop":
                    await controller.submit(session, owner("tester"), Stop())
                    await driving
                case "cancel":
                    driving.cancel()
                    await asyncio.wait((driving,))
                case _:
                    await driving
        return session

    async def chaos(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        sessions = await asyncio.gather(*(one(clock, store, world, number) for number in range(count)))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for session in sessions:
            assert await lease_of(store, session) is None
        async with controller_of(scenario, store, clock, world) as controller:
            for session in sessions:
                await controller.drive(session)
                records = await records_of(store, session)
                assert len(ended(records)) == 1
                row = await store.session(session)
                assert row is not None
                assert row.status in ("done", "interrupted")
        assert await store.verify() == Verified()

    stage.run(chaos)
    assert threading.active_count() <= threads_before + 1


@pytest.mark.requirement("L2-06")
@pytest.mark.parametrize("name", ["stopped in mid-stream", "stopped in mid-tool"])
def test_a_stop_in_the_middle_is_clean_within_a_second(volatile: Stage, name: str) -> None:
    async def stop(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        played = await play(BY_NAME[name], clock, inner, workspace)
        asked = next(r for r in played.records if isinstance(r.event, e.RunStopping))
        ended_ms = played.records[-1].at_ms
        assert ended_ms - asked.at_ms <= 1_000
        cut = [r.event.text for r in played.records if isinstance(r.event, e.ModelCallCut)]
        if name == "stopped in mid-stream":
            assert len(cut) == 1
            assert cut[0].startswith("word word")
            assert not cut[0].endswith("word " * 50)

    volatile.run(stop)


@pytest.mark.requirement("L7", "C8")
def test_a_full_disk_says_so_and_the_session_goes_on_when_there_is_room(volatile: Stage) -> None:
    scenario = BY_NAME["rerun"]

    async def fill(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world = World(workspace)
        full = FaultyStore(inner, Faults(full_from_commit=3))
        async with controller_of(scenario, full, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(
                session, owner("tester"), Send("Do it.", settings_of(scenario, workspace))
            )
            with pytest.raises(StorageFull):
                await controller.drive(session)
            with pytest.raises(StorageFull):
                await controller.submit(session, owner("tester"), Stop())
        clock.advance(LEASE_MS / 1000 + 1)
        async with controller_of(scenario, inner, clock, world) as controller:
            state = await controller.drive(session)
        assert state.run is not None
        assert state.run.status == "done"
        await check_session(inner, session, await records_of(inner, session))

    volatile.run(fill)


class NoRoomForBlobs:
    """Blobs of which only those before the messages of a request still find room."""

    def __init__(self, inner: Blobs) -> None:
        self._inner = inner

    async def put(self, content: bytes) -> str:
        if not content.startswith(b'{"model"'):
            raise StorageFull
        return await self._inner.put(content)

    async def get(self, sha256: str) -> bytes:
        return await self._inner.get(sha256)


@pytest.mark.requirement("L7", "C8")
def test_an_output_that_finds_no_room_is_no_failure_of_its_tool(volatile: Stage) -> None:
    scenario = Scenario("big", [calls(call("shout")), words("Done.")], big)

    async def fill(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        world, full = World(workspace), FaultyStore(inner)
        full.blobs = NoRoomForBlobs(inner.blobs)
        async with controller_of(scenario, full, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(
                session, owner("tester"), Send("Do it.", settings_of(scenario, workspace))
            )
            with pytest.raises(StorageFull):
                await controller.drive(session)
        assert not [r for r in await records_of(inner, session) if isinstance(r.event, e.ToolCallFinished)]
        async with controller_of(scenario, inner, clock, world) as controller:
            await controller.drive(session)
        records = await records_of(inner, session)
        finished = [r.event.result.status for r in records if isinstance(r.event, e.ToolCallFinished)]
        assert finished == ["ok"]
        await check_session(inner, session, records)

    volatile.run(fill)


def big(world: World) -> Iterable[Tool]:
    """A tool whose output goes to a blob."""

    @tool(effect="read")
    async def shout() -> str:
        """A lot."""
        return "words " * 10_000

    return (shout,)
