"""Replay over every scenario, crashed ones and branches too: today's code decides what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.evolve import fold
from holdfast.protocol.ports import Store
from holdfast.runtime.fork import fork
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.scenarios import (
    SESSION_KEY,
    Played,
    Scenario,
    World,
    controller_of,
    finish,
    play,
    play_with_crash,
    records_of,
)
from holdfast.views.replay import replay
from tests.scenarios.scenes import BY_NAME, SCENARIOS
from tests.scenarios.stage import Stage

BRANCHED = (
    "several turns",
    "approved",
    "retries",
    "budget",
    "stopped in mid-tool",
    "words join",
    "another wire",
)


@pytest.fixture
def volatile(tmp_path: Path) -> Stage:
    return Stage("volatile", tmp_path)


def check(played: Played) -> None:
    found = replay(played.session, SESSION_KEY, played.records)
    assert not found.differences
    assert found.records == len(played.records)


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_is_decided_again_as_it_was_recorded(volatile: Stage, scenario: Scenario) -> None:
    played = volatile.run(lambda clock, store, place: play(scenario, clock, store, place))
    check(played)


@pytest.mark.requirement("H2", "H1")
@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_session_that_was_killed_in_mid_flight_replays_the_same(
    volatile: Stage, scenario: Scenario, every: int
) -> None:
    whole = volatile.run(lambda clock, store, place: play(scenario, clock, store, place))
    for number in range(1 + len(scenario.name) % every, whole.commits + 1, every):
        faults = Faults(crash_after_commit=number)

        async def crash(clock: JumpingClock, store: Store, place: Path, faults: Faults = faults) -> Played:
            return await play_with_crash(scenario, clock, store, place, faults)

        check(volatile.run(crash))


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", [BY_NAME[name] for name in BRANCHED], ids=BRANCHED)
def test_a_branch_from_any_record_comes_to_an_end_and_replays_the_same(
    volatile: Stage, scenario: Scenario, every: int
) -> None:
    async def branch_everywhere(clock: JumpingClock, store: Store, place: Path) -> None:
        parent = await play(scenario, clock, store, place)
        last = len(parent.records)
        for at in range(1 + len(scenario.name) % every, last + 1, every):
            branch = await fork(store, clock, parent.session, at)
            shared = await records_of(store, branch)
            assert [r.event for r in shared[:-1]] == [r.event for r in parent.records[:at]]
            assert not replay(parent.session, SESSION_KEY, shared).differences, at
            if fold(list(shared)).run is None:
                continue
            async with controller_of(scenario, store, clock, World(place)) as controller:
                await finish(controller, store, clock, branch)
            differences = replay(parent.session, SESSION_KEY, await records_of(store, branch)).differences
            assert not differences, (at, differences)
        assert await records_of(store, parent.session) == parent.records

    volatile.run(branch_everywhere)
