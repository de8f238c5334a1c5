"""A branch from every record of a session goes on to an end, and its parent stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.evolve import fold
from holdfast.core.state import open_run
from holdfast.protocol import events as e
from holdfast.protocol.ports import Store
from holdfast.runtime.fork import fork
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import abandoned, check_session, conversation, ended, in_flight
from holdfast.testing.scenarios import Scenario, controller_of, finish, play, records_of
from tests.scenarios.scenes import BY_NAME
from tests.scenarios.stage import Stage

FORKED = (
    "several turns",
    "side by side",
    "probe",
    "unknown",
    "approved",
    "retries",
    "paused",
    "turn limit",
    "stopped in mid-tool",
    "two runs",
    "another wire",
    "reflections",
)


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("every", [59, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FORKED)
def test_a_branch_from_any_record_ends_well_and_leaves_its_parent_alone(
    stage: Stage, name: str, every: int
) -> None:
    """From a few of them in the everyday suite, on each store from others."""
    first = 1 + FORKED.index(name) + 2 * (stage.kind == "sqlite")
    stage.run(lambda c, s, w: branch_everywhere(BY_NAME[name], c, s, w, first % every, every))


async def branch_everywhere(
    scenario: Scenario, clock: JumpingClock, store: Store, workspace: Path, first: int, every: int
) -> None:
    parent = await play(scenario, clock, store, workspace)
    for seq in sorted({*range(first or every, len(parent.records), every), len(parent.records)}):
        shared = parent.records[:seq]
        branch = await fork(store, clock, parent.session, seq)
        async with controller_of(scenario, store, clock, parent.world) as controller:
            await finish(controller, store, clock, branch)
        records = await records_of(store, branch)
        assert [r.event for r in records[:seq]] == [r.event for r in shared]
        assert isinstance(records[seq].event, e.SessionForked)
        await check_session(store, branch, records)
        open_calls = in_flight(shared)
        lost = {c for c, intent in open_calls.items() if intent.on_interrupt == "unknown"}
        run = open_run(fold(list(shared)))
        is_ending = run is not None and run.stopping is not None
        # The files are as the parent left them: what a look finds there may be neither before nor after.
        maybe = {c for c, intent in open_calls.items() if is_ending or intent.on_interrupt == "probe"}
        assert lost <= abandoned(records) - abandoned(shared) <= lost | maybe
        if run is not None:
            assert ended(records), f"the branch at {seq} has no end"
        if seq == len(parent.records):
            assert conversation(records) == conversation(parent.records)
    assert await records_of(store, parent.session) == parent.records
    await check_session(store, parent.session, parent.records)
