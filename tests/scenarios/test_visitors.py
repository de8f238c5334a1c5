"""Somebody decides, pauses or stops from another door, at every point of a session's life."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.commands import CommandBody, Pause, Resolve, Stop, owner
from holdfast.protocol.ids import approval_id
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Commit
from holdfast.runtime.holder import LEASE_MS
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import lease_of
from holdfast.testing.faults import Crash, Faults, FaultyStore
from holdfast.testing.invariants import check_session, ended, is_of_rival
from holdfast.testing.scenarios import Scenario, World, controller_of, finish, records_of, say, settings_of
from tests.scenarios.scenes import BY_NAME
from tests.scenarios.stage import Stage

KINDS = ("approve", "deny", "pause", "stop")
PLAYED = [BY_NAME[name] for name in ("approved", "side by side", "retries", "words join", "reflections")]
MAX_COMMITS = 40

SWEEPS = pytest.mark.parametrize("sweep", [29, pytest.param(1, marks=pytest.mark.long)])
"""Every moment before and after a commit in the long suite, every 29th one in the everyday one."""


def moments(scenario: Scenario, kind: str, sweep: int) -> list[tuple[int, bool]]:
    """Commits by their number, and whether it is before them; for each scenario and kind of visit, others."""
    every = [(number, is_before) for number in range(1, MAX_COMMITS) for is_before in (True, False)]
    return every[(len(scenario.name) + KINDS.index(kind)) % sweep :: sweep]


def body_of(kind: str, session: str) -> CommandBody:
    """What the visitor asks."""
    match kind:
        case "approve" | "deny":
            return Resolve(approval_id(session, 1), kind)  # type: ignore[arg-type]
        case "pause":
            return Pause()
        case _:
            return Stop("visited")


async def begin(scenario: Scenario, store: Store, clock: JumpingClock, world: World) -> str:
    """The first words, sent and nothing more; returns the session."""
    async with controller_of(scenario, store, clock, world) as controller:
        session = await controller.open("test:scenario")
        await controller.submit(
            session, owner("tester"), say("Do it.", settings_of(scenario, world.workspace)).body
        )
    return session


def check_visit(records: tuple[e.Record, ...], world: World, kind: str, command: str) -> None:
    """What the visitor asked was obeyed, and the command started nothing of its own."""
    # With the command, the visitor records that nobody hears the dead driver's reflection any longer.
    facts = [
        r
        for r in records
        if r.cause.name == command and not is_of_rival(r.event) and type(r.event) is not e.ModelCallAbandoned
    ]
    names = [type(r.event).__name__ for r in facts]
    if names == ["RunStopped"] and ended(records)[-1] == ("done", "answer"):
        return  # the run waited only for that reflection, so that nothing is left to decide
    match kind:
        case "stop" if facts:
            assert names[0] in ("RunStopping", "RunStopped")
            assert ended(records)[-1] == ("interrupted", "visited")
        case "pause" if facts:
            assert names[0] == "RunPaused"
        case "deny" if facts:
            assert names[0] == "ApprovalResolved"
            assert not world.effects
            refused = [r.event.failure.code for r in records if isinstance(r.event, e.ToolCallRefused)]
            assert refused == ["policy_denied"]
        case "approve" if facts:
            assert names[0] == "ApprovalResolved"
            assert world.effects == ["s"] or any(isinstance(r.event, e.ToolCallAbandoned) for r in records)


async def visit_when_nobody_drives(
    scenario: Scenario, clock: JumpingClock, store: Store, workspace: Path, faults: Faults, kind: str
) -> bool:
    """Crash as told, visit, look, and go on to the end; whether the crash came at all."""
    world = World(workspace)
    session = await begin(scenario, store, clock, world)
    dying = FaultyStore(store, faults)
    try:
        async with controller_of(scenario, dying, clock, world) as controller:
            await controller.drive(session)
    except Crash:
        clock.advance(LEASE_MS / 1000 + 1)
    before = await records_of(store, session)
    async with controller_of(scenario, store, clock, world) as visitor:
        command = await visitor.decide_now(session, owner("visitor"), body_of(kind, session))
        after = await records_of(store, session)
        fresh = after[len(before) :]
        assert not await store.inbox(session)
        assert await lease_of(store, session) is None
        assert not [
            r for r in fresh if isinstance(r.event, e.Attached | e.ModelCallStarted | e.ToolCallStarted)
        ]
        attached = [r.event.epoch for r in after if isinstance(r.event, e.Attached)]
        assert all(r.epoch > max(attached, default=0) for r in fresh)
    async with controller_of(scenario, store, clock, world) as controller:
        await finish(controller, store, clock, session)
    records = await records_of(store, session)
    check_visit(records, world, kind, command)
    assert ended(records)
    await check_session(store, session, records)
    return dying.is_crashed


@pytest.mark.requirement("H5", "B4", "C11")
@SWEEPS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
def test_a_visit_while_nobody_drives_states_its_facts_and_starts_nothing(
    volatile: Stage, scenario: Scenario, kind: str, sweep: int
) -> None:
    for number, is_before in moments(scenario, kind, sweep):
        faults = Faults(crash_before_commit=number) if is_before else Faults(crash_after_commit=number)
        if not volatile.run(lambda c, s, w, f=faults: visit_when_nobody_drives(scenario, c, s, w, f, kind)):
            return
    raise AssertionError("no end")


class Interrupted(FaultyStore):
    """A store at whose N-th commit, before or after it, somebody comes in through another door."""

    def __init__(self, inner: Store, number: int, *, is_before: bool) -> None:
        super().__init__(inner)
        self._at = (number, is_before)
        self.came = asyncio.Event()

    async def commit(self, commit: Commit) -> None:
        if self._at == (self.commits + 1, True):
            await self._let_in()
        await super().commit(commit)
        if self._at == (self.commits, False):
            await self._let_in()

    async def _let_in(self) -> None:
        self.came.set()
        for _ in range(5):  # so that the visitor gets as far as it can
            await asyncio.sleep(0)


async def visit_while_driven(
    scenario: Scenario,
    clock: JumpingClock,
    inner: Store,
    workspace: Path,
    number: int,
    is_before: bool,
    kind: str,
) -> bool:
    """Visit at the commit while the first controller drives, and go on to the end; whether it came to that."""
    world = World(workspace)
    session = await begin(scenario, inner, clock, world)
    store = Interrupted(inner, number, is_before=is_before)
    async with (
        controller_of(scenario, store, clock, world) as first,
        controller_of(scenario, inner, clock, world) as second,
    ):

        async def visit() -> str:
            await store.came.wait()
            return await second.decide_now(session, owner("visitor"), body_of(kind, session))

        visiting = asyncio.create_task(visit())
        await first.drive(session)
        if not store.came.is_set():
            visiting.cancel()
            await asyncio.wait((visiting,))
            return False
        command = await visiting
        await finish(first, store, clock, session)
    records = await records_of(inner, session)
    check_visit(records, world, kind, command)
    assert ended(records)
    await check_session(inner, session, records)
    return True


@pytest.mark.requirement("H5", "B4", "C11")
@SWEEPS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
def test_a_visit_while_another_drives_is_handled_by_the_one_who_drives(
    volatile: Stage, scenario: Scenario, kind: str, sweep: int
) -> None:
    for number, is_before in moments(scenario, kind, sweep):
        if not volatile.run(
            lambda c, s, w, n=number, b=is_before: visit_while_driven(scenario, c, s, w, n, b, kind)
        ):
            return
    raise AssertionError("no end")


@pytest.mark.requirement("H5", "B4")
@pytest.mark.parametrize("numbers", [(2, 5), pytest.param((4, 6), marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_visits_are_the_same_on_every_store(stage: Stage, kind: str, numbers: tuple[int, int]) -> None:
    scenario = BY_NAME["approved"]
    for number in numbers:
        faults = Faults(crash_after_commit=number)
        stage.run(lambda c, s, w, f=faults: visit_when_nobody_drives(scenario, c, s, w, f, kind))
        stage.run(lambda c, s, w, n=number: visit_while_driven(scenario, c, s, w, n, False, kind))


@pytest.mark.requirement("C11", "H5")
def test_many_visitors_at_once_are_all_heard_and_the_first_answer_counts(stage: Stage) -> None:
    scenario = BY_NAME["approved"]

    async def play(clock: JumpingClock, store: Store, workspace: Path) -> None:
        world = World(workspace)
        session = await begin(scenario, store, clock, world)
        async with (
            controller_of(scenario, store, clock, world) as one,
            controller_of(scenario, store, clock, world) as two,
        ):
            await one.drive(session)
            await asyncio.gather(
                *(
                    door.decide_now(session, owner(f"{kind}r"), body_of(kind, session))
                    for door in (one, two)
                    for kind in KINDS
                )
            )
            await finish(one, store, clock, session)
        records = await records_of(store, session)
        resolved = [r.event for r in records if isinstance(r.event, e.ApprovalResolved)]
        assert len(resolved) == 1
        approval = await store.approval(resolved[0].approval_id)
        assert approval is not None
        assert (approval.decision, approval.decided_by) == (resolved[0].decision, resolved[0].by)
        await check_session(store, session, records)

    stage.run(play)
