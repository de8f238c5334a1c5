"""Every scenario again with a crash before and after each commit: the same conversation comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol.events import ToolCallStarted
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import (
    abandoned,
    check_session,
    conversation,
    ended,
    found_done,
    in_flight,
)
from holdfast.testing.scenarios import Played, Scenario, play_with_crash
from tests.scenarios.scenes import BY_NAME, ENDS, SCENARIOS
from tests.scenarios.stage import Stage


def run(stage: Stage, scenario: Scenario, *faults: Faults) -> Played:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        played = await play_with_crash(scenario, clock, store, workspace, *faults)
        await check_session(store, played.session, played.records)
        return played

    return stage.run(play)


def compare(scenario: Scenario, whole: Played, broken: Played) -> None:
    """The journal after a crash against the one without."""
    cut = [(c, intent.on_interrupt) for left in broken.left for c, intent in in_flight(left).items()]
    lost = {call_id for call_id, rule in cut if rule == "unknown"}
    probed = {call_id for call_id, rule in cut if rule == "probe"}
    if not scenario.is_timed:
        assert abandoned(broken.records) == lost
        assert found_done(broken.records) <= probed
        but = lost | found_done(broken.records)
        assert conversation(broken.records, but) == conversation(whole.records, but)
        assert sorted(broken.world.effects) == sorted(whole.world.effects) or lost
    assert ended(broken.records) == ended(whole.records)


def entered(played: Played) -> list[tuple[str, str]]:
    """(tool, call) of every time that a tool was entered."""
    return [(name, key.partition(":")[2]) for name, key in played.world.called]


def check_effects(played: Played) -> None:
    """Nothing that leaves no trace of itself was done twice; what was done again was done under one key."""
    unknown = [r.event for r in played.records if isinstance(r.event, ToolCallStarted)]
    once = {f"{played.session}:{c.call_id}" for c in unknown if c.on_interrupt != "rerun"}
    keys = [key for _, key in played.world.called]
    assert all(keys.count(key) == 1 for key in once if key in keys)
    assert set(keys) <= {f"{played.session}:{c.call_id}" for c in unknown}
    assert len(set(played.world.effects)) == len(played.world.effects)


def crash(stage: Stage, scenario: Scenario, every: int = 1) -> None:
    """Play it with a crash at every commit, or at each so-manieth moment: for each store and scenario, others."""
    whole = run(stage, scenario)
    assert ended(whole.records) == ENDS.get(scenario.name, [("done", "answer")])
    assert not abandoned(whole.records) or scenario.is_timed
    check_effects(whole)
    moments = [
        faults
        for number in range(1, whole.commits + 1)
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number))
    ]
    for faults in moments[(len(scenario.name) + (stage.kind == "sqlite")) % every :: every]:
        broken = run(stage, scenario, faults)
        assert len(broken.left) == 1, faults
        compare(scenario, whole, broken)
        check_effects(broken)


ON_DISK = [
    *(pytest.param(scenario, 29, id=scenario.name) for scenario in SCENARIOS[::3]),
    *(pytest.param(each, 1, id=f"{each.name} everywhere", marks=pytest.mark.long) for each in SCENARIOS),
]
"""The disk knows no scenario from another: a third of them in the everyday suite, each in the long one."""


@pytest.mark.requirement("H1", "H5", "L2-05", "C16")
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_at_any_commit_changes_nothing_but_what_nobody_can_know(
    volatile: Stage, scenario: Scenario, every: int
) -> None:
    crash(volatile, scenario, every)


@pytest.mark.requirement("H1", "H5", "L2-05", "C16")
@pytest.mark.parametrize(("scenario", "every"), ON_DISK)
def test_a_crash_at_a_commit_to_the_disk_changes_nothing_else(
    durable: Stage, scenario: Scenario, every: int
) -> None:
    crash(durable, scenario, every)


@pytest.mark.requirement("L7", "C8")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENARIOS[:8], ids=lambda scenario: scenario.name)
def test_a_disk_that_fills_at_any_commit_loses_nothing_that_was_acknowledged(
    volatile: Stage, scenario: Scenario, every: int
) -> None:
    whole = run(volatile, scenario)
    for number in range(1 + len(scenario.name) % every, whole.commits + 1, every):
        broken = run(volatile, scenario, Faults(full_from_commit=number))
        compare(scenario, whole, broken)
        check_effects(broken)


@pytest.mark.requirement("C8", "L1")
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.long if number % 3 else ())
        for number, each in enumerate(SCENARIOS)
    ],
)
def test_a_slow_disk_changes_nothing_and_nothing_is_done_twice(volatile: Stage, scenario: Scenario) -> None:
    whole = run(volatile, scenario)
    slow = run(volatile, scenario, Faults(delay_s=0.07))
    assert entered(slow) == entered(whole)
    assert len(set(entered(slow))) == len(entered(slow))
    assert ended(slow.records) == ended(whole.records)
    check_effects(slow)
    if not scenario.is_timed:
        assert conversation(slow.records) == conversation(whole.records)


@pytest.mark.requirement("H1", "L2-05")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "scenario",
    [BY_NAME[name] for name in ("approved", "side by side", "probe", "unknown", "retries", "paused")],
    ids=lambda scenario: scenario.name,
)
def test_two_crashes_change_no_more_than_one(volatile: Stage, scenario: Scenario, every: int) -> None:
    whole = run(volatile, scenario)
    for first in range(1, whole.commits + 1):
        for second in (1, 2, 3)[first % every :: every]:
            faults = Faults(crash_after_commit=first), Faults(crash_before_commit=second)
            broken = run(volatile, scenario, *faults)
            compare(scenario, whole, broken)
            check_effects(broken)
