"""Plans of whole sessions: what is secret in them is masked, and no call that tells one is lost or taken twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol.codec import encode_json
from holdfast.protocol.events import PlanChanged, Record, Responded, ToolCallRefused
from holdfast.protocol.messages import calls_of
from holdfast.protocol.plan import Plan
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import Played, Scenario, play_with_crash
from holdfast.views.replay import replay
from tests.scenarios.scenes import BY_NAME, tools_of
from tests.scenarios.stage import Stage

SECRET = "Tr0ub4dor" + "-and-3"
STEP = {"text": f"Set password={SECRET} in the file.", "status": "in_progress", "note": f"api_key={SECRET}9x"}
NOTE = {"name": "note", "arguments": {"text": "n"}}
"""The plan waits for it, so that a crash may come between."""
PLAN = {"name": "update_plan", "arguments": {"steps": [STEP], "goal": f"password={SECRET}"}}
MASKED = Scenario("a masked plan", [{"tool_calls": [NOTE, PLAN]}, {"text": "Done."}], tools_of)


def played(stage: Stage, scenario: Scenario, *faults: Faults) -> Played:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        came = await play_with_crash(scenario, clock, store, workspace, *faults)
        await check_session(store, came.session, came.records)
        return came

    return stage.run(play)


def plans(records: list[Record]) -> list[Plan]:
    return [r.event.plan for r in records if isinstance(r.event, PlanChanged)]


@pytest.mark.requirement("L2-02", "A4")
def test_a_secret_in_a_plan_is_masked_and_the_plan_is_taken_after_any_crash(volatile: Stage) -> None:
    whole = played(volatile, MASKED)
    assert [
        c.is_masked for r in whole.records if isinstance(r.event, Responded) for c in calls_of(r.event.parts)
    ]
    (plan,) = plans(whole.records)
    assert "password=[redacted:" in plan.steps[0].text
    assert "[redacted:" in plan.goal
    assert SECRET.encode() not in b"".join(encode_json(record) for record in whole.records)
    for number in range(1, whole.commits + 1):
        for faults in (Faults(crash_before_commit=number), Faults(crash_after_commit=number)):
            came = played(volatile, MASKED, faults)
            assert plans(came.records) == [plan]
            assert not replay(came.session, "test:scenario", came.records).differences


@pytest.mark.requirement("L2-02")
def test_nothing_that_has_an_effect_starts_before_the_plan(volatile: Stage) -> None:
    came = played(volatile, BY_NAME["planned"])
    refused = [r.event for r in came.records if isinstance(r.event, ToolCallRefused)]
    assert [(each.name, each.decisions[-1].by) for each in refused][:1] == [("note", "plan")]
    assert "Call update_plan" in refused[0].failure.message
    assert [name for name, _ in came.world.called] == ["look", "note", "charge", "note"]
    assert [plan.revision for plan in plans(came.records)] == [1, 2, 3, 4]
