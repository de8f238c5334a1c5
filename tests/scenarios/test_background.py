"""Processes in the background over the life of a run: they end with it, however it ends, and after a crash a note
tells the model which of them are gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.errors import ProviderUnavailable
from holdfast.protocol import events as e
from holdfast.protocol.commands import Resolve, Stop, owner
from holdfast.protocol.ports import Store, Wire
from holdfast.protocol.rows import Commit
from holdfast.runtime.holder import LEASE_MS
from holdfast.runtime.prepare import Planner
from holdfast.sandbox import trees
from holdfast.testing import scenarios
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import lease_of
from holdfast.testing.faults import Crash, Faults, FaultyStore
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import Scenario, World, controller_of, finish, records_of, say, settings_of
from holdfast.tools.dispatcher import Dispatcher
from holdfast.views.replay import replay
from tests.scenarios.scenes import DONE, calls, tools_of
from tests.scenarios.scenes import call as tool_call
from tests.scenarios.stage import Stage

PATIENCE_S = 60.0
SERVE = tool_call("shell", command="echo up; exec sleep 1000", background=True)
READ = tool_call("process_output", id="t1.c1")
SERVES = Scenario(
    "serves", [calls(SERVE), calls(READ), calls(tool_call("look", name="x"), READ), DONE], tools_of
)
STOPS = Scenario("stops", [calls(SERVE), calls(tool_call("process_stop", id="t1.c1")), calls(READ), DONE])
ASKS = Scenario(
    "asks",
    [calls(SERVE), calls(tool_call("ask_user", question="Which?")), calls(READ), DONE],
    settings={"autonomy": "full"},
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Dispatcher]:
    """The tools of every runtime, in order. A runtime that a test kills ends its processes when its tools close."""
    made: list[Dispatcher] = []
    make = scenarios.make_tools

    def recorded(*arguments: object, **options: object) -> Dispatcher:
        made.append(make(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(scenarios, "make_tools", recorded)
    return made


def living(session: str, id_: str = "t1.c1") -> set[int]:
    return trees.members([f"{session}:{id_}"])


def is_gone(session: str, id_: str = "t1.c1") -> bool:
    """Whether nothing of a process is left. Its guard ends it in real time, and the clock of a scenario jumps."""
    until = time.monotonic() + PATIENCE_S
    while living(session, id_) and time.monotonic() < until:
        time.sleep(0.02)
    return not living(session, id_)


def notes(records: tuple[e.Record, ...]) -> list[str]:
    return [
        r.event.text for r in records if isinstance(r.event, e.NoteAdded) and r.event.about == "processes"
    ]


async def begin(scenario: Scenario, store: Store, clock: JumpingClock, workspace: Path) -> str:
    """The first words, sent and nothing more; returns the session."""
    async with controller_of(scenario, store, clock, World(workspace)) as controller:
        session = await controller.open("test:background")
        told = say("Do it.", settings_of(scenario, workspace)).body
        await controller.submit(session, owner("tester"), told)
    return session


async def closed(made: list[Dispatcher]) -> None:
    for tools in made:
        await tools.aclose()


def played(stage: Stage, scenario: Scenario, made: list[Dispatcher], faults: Faults) -> int:
    """Play with these faults; returns how many commits there were."""

    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> int:
        session = await begin(scenario, inner, clock, workspace)
        store, left = FaultyStore(inner, faults), None
        try:
            async with controller_of(scenario, store, clock, World(workspace)) as controller:
                await finish(controller, store, clock, session)
        except Crash:
            left = await records_of(inner, session)
            await closed(made)  # the guards of a process that was killed end what it had
            clock.advance(LEASE_MS / 1000 + 1)
            async with controller_of(scenario, inner, clock, World(workspace)) as controller:
                await finish(controller, inner, clock, session)
        records = await records_of(inner, session)
        await check_session(inner, session, records)
        assert ended(records) == [("done", "answer")]
        assert not fold(list(records)).background
        assert is_gone(session), faults
        lost = [each.id for each in fold(list(left)).background] if left else []
        assert [note.count("t1.c1") for note in notes(records)] == [1] * len(lost), faults
        await closed(made)
        assert is_gone(session)
        return store.commits

    return stage.run(play)


@pytest.mark.requirement("H1", "C8")
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", [SERVES, STOPS], ids=lambda each: each.name)
def test_whenever_it_crashes_nothing_is_left_and_the_model_is_told(
    stage: Stage, made: list[Dispatcher], scenario: Scenario, every: int
) -> None:
    commits = played(stage, scenario, made, Faults())
    assert commits > 6
    moments = [
        faults
        for number in range(1, commits + 1)
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number))
    ]
    for faults in moments[len(stage.kind) % every :: every]:
        made.clear()
        played(stage, scenario, made, faults)


class Watched(FaultyStore):
    """A store that counts the processes when the end of a call or of a run is to be recorded."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.seen: list[int] = []

    async def commit(self, commit: Commit) -> bool:
        types = {record.type for record in commit.records}
        async with asyncio.timeout(PATIENCE_S):
            while "ToolCallFinished" in types and not living(commit.session):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        if types & {"ToolCallFinished", "RunStopped"}:
            self.seen.append(len(living(commit.session)))
        return await super().commit(commit)


@pytest.mark.requirement("H1", "C8")
def test_the_end_of_a_run_is_recorded_when_its_processes_have_ended(
    stage: Stage, made: list[Dispatcher]
) -> None:
    async def play(clock: JumpingClock, inner: Store, workspace: Path) -> None:
        session, store = await begin(SERVES, inner, clock, workspace), Watched(inner)
        async with controller_of(SERVES, store, clock, World(workspace)) as controller:
            await finish(controller, store, clock, session)
        await closed(made)
        assert store.seen == [1, 1, 1, 1, 0]

    stage.run(play)


@pytest.mark.requirement("C8", "L11")
def test_a_run_that_a_request_ends_tells_what_was_put_aside_of_its_processes(
    stage: Stage, made: list[Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request cannot be made, so no attempt and no command ends this run."""
    usual, usual_end, have_ended = Planner.wire, Dispatcher.end_background, False

    def wire(planner: Planner, state: State) -> Wire:
        if state.background:
            raise ProviderUnavailable("It is gone.")
        return usual(planner, state)

    async def end_background(tools: Dispatcher, session: str) -> None:
        nonlocal have_ended
        have_ended = have_ended or bool(tools.in_background(session))
        await usual_end(tools, session)

    async def put_aside(_: Dispatcher, session: str, *, is_first: bool) -> str:
        assert not living(session) or not have_ended
        return "A file was put aside." if have_ended else ""

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        session = await begin(SERVES, store, clock, workspace)
        monkeypatch.setattr(Planner, "wire", wire)
        monkeypatch.setattr(Dispatcher, "end_background", end_background)
        monkeypatch.setattr(Dispatcher, "put_aside", put_aside)
        async with controller_of(SERVES, store, clock, World(workspace)) as controller:
            await controller.drive(session)
        monkeypatch.undo()
        await closed(made)
        records = await records_of(store, session)
        assert ended(records) == [("failed", "provider_unready")]
        told = [
            r.event.text for r in records if isinstance(r.event, e.NoteAdded) and r.event.about == "aside"
        ]
        assert told == ["A file was put aside."]
        assert replay(session, "test:background", records).differences == ()

    stage.run(play)


async def driven_until_it_waits(
    scenario: Scenario, clock: JumpingClock, store: Store, workspace: Path, then: Callable[..., object]
) -> tuple[e.Record, ...]:
    """Drive until a person is asked, do something then, and drive on."""
    session = await begin(scenario, store, clock, workspace)
    async with controller_of(scenario, store, clock, World(workspace)) as controller:
        await controller.drive(session)
        while not (before := living(session)):  # it begins in real time
            await asyncio.to_thread(time.sleep, 0.02)
        done = then(controller, session, before)
        if asyncio.iscoroutine(done):
            await done
    return await records_of(store, session)


@pytest.mark.requirement("C8")
def test_a_process_goes_on_while_a_person_is_asked(stage: Stage, made: list[Dispatcher]) -> None:
    """The session gives its lease back meanwhile, and another driver of the same runtime goes on."""

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async def answer(controller: scenarios.SessionController, session: str, before: set[int]) -> None:
            assert await lease_of(store, session) is None
            asked = (await store.approvals(session))[0]
            await controller.submit(session, owner("tester"), Resolve(asked.id, "answer", "this"))
            await controller.drive(session)
            assert is_gone(session)

        records = await driven_until_it_waits(ASKS, clock, store, workspace, answer)
        assert [r.event.background for r in records if isinstance(r.event, e.Attached)] == [(), ("t1.c1",)]
        results = [r.event.result.text for r in records if isinstance(r.event, e.ToolCallFinished)]
        assert results[-1].startswith("up\n[still running")
        assert not notes(records)
        await closed(made)

    stage.run(play)


@pytest.mark.requirement("C8")
def test_a_visitor_from_another_process_ends_no_process(stage: Stage, made: list[Dispatcher]) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async def visit(controller: scenarios.SessionController, session: str, before: set[int]) -> None:
            asked = (await store.approvals(session))[0]
            async with controller_of(ASKS, store, clock, World(workspace)) as other:
                await other.decide_now(session, owner("tester"), Resolve(asked.id, "answer", "this"))
            assert living(session) == before
            await controller.drive(session)

        records = await driven_until_it_waits(ASKS, clock, store, workspace, visit)
        assert not notes(records)
        assert ended(records) == [("done", "answer")]
        await closed(made)

    stage.run(play)


@pytest.mark.requirement("C8")
def test_a_process_ends_with_a_run_that_somebody_else_ended(stage: Stage, made: list[Dispatcher]) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async def stop(controller: scenarios.SessionController, session: str, before: set[int]) -> None:
            async with controller_of(ASKS, store, clock, World(workspace)) as other:
                await other.decide_now(session, owner("tester"), Stop("enough"))
            await controller.drive(session)
            assert is_gone(session)

        records = await driven_until_it_waits(ASKS, clock, store, workspace, stop)
        assert ended(records) == [("interrupted", "enough")]
        await closed(made)

    stage.run(play)


@pytest.mark.requirement("C8", "C11")
def test_a_driver_of_another_process_ends_it_and_tells_the_model(
    stage: Stage, made: list[Dispatcher]
) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        async def take_over(controller: scenarios.SessionController, session: str, before: set[int]) -> None:
            asked = (await store.approvals(session))[0]
            async with controller_of(ASKS, store, clock, World(workspace)) as other:
                await other.submit(session, owner("tester"), Resolve(asked.id, "answer", "this"))
                await other.drive(session)
            assert is_gone(session)

        records = await driven_until_it_waits(ASKS, clock, store, workspace, take_over)
        assert ended(records) == [("done", "answer")]
        (note,) = notes(records)
        assert "t1.c1 (`echo up; exec sleep 1000`)" in note
        results = [r.event.result for r in records if isinstance(r.event, e.ToolCallFinished)]
        assert results[-1].status == "error"
        await closed(made)

    stage.run(play)
