"""Plans of whole sessions: what is secret in them is masked, and no call that tells one is lost or taken twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.context.requests import requests
from holdfast.protocol.codec import encode_json
from holdfast.protocol.events import (
    ContextCompacted,
    ModelCallStarted,
    NoteAdded,
    PlanChanged,
    Record,
    Responded,
    ToolCallRefused,
)
from holdfast.protocol.limits import Limits, ModelFacts
from holdfast.protocol.messages import calls_of
from holdfast.protocol.plan import Plan
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session
from holdfast.testing.scenarios import Played, Scenario, play_with_crash
from holdfast.views.replay import replay
from tests.scenarios.scenes import BY_NAME, call, calls, tools_of, words
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


def _long(turns: int) -> Scenario:
    """A session that looks at many things, and begins the next step of its plan now and then."""

    def line(turn: int) -> dict[str, object]:
        at = turn // 9
        steps = [
            {"text": f"Do part {n}.", "status": "done" if n < at else "in_progress" if n == at else "pending"}
            for n in range(turns // 9 + 1)
        ]
        made = call("update_plan", steps=steps) if turn % 9 == 0 else call("look", name=f"{turn} " * 400)
        return calls(made)

    return Scenario(
        "a long plan",
        [*map(line, range(turns)), words("Done.")],
        tools_of,
        settings={"facts": ModelFacts("script", "model", price="free", context_tokens=16_000)},
        limits=Limits(turns=turns + 1),
    )


@pytest.mark.requirement("L2-02", "C9")
def test_every_request_of_a_long_session_has_the_step_at_work(volatile: Stage) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        return await play_with_crash(_long(90), clock, store, workspace, Faults(crash_after_commit=100))

    came = volatile.run(play)
    sent = {each.record.seq: b"".join(each.fragments) for each in requests(came.records, {})}
    at_work, cuts = "", 0
    for record in came.records:
        cuts += isinstance(record.event, ContextCompacted)
        if isinstance(record.event, PlanChanged):
            (at_work,) = [step.text for step in record.event.plan.steps if step.status == "in_progress"]
        if isinstance(record.event, ModelCallStarted):
            assert at_work.encode() in sent[record.seq], record.seq
    assert cuts > 2
    assert plans(came.records)[-1].revision == 10


def _step_by_step(count: int) -> Scenario:
    """A task of so many steps: planned first, then one step a turn. One of them fails, and the plan is revised."""

    def plan(done: int, dropped: int = 0) -> dict[str, object]:
        statuses = ["done"] * done + ["in_progress"] + ["pending"] * (count - done - 1)
        if dropped:
            statuses[dropped - 1] = "dropped"
        steps = [{"text": f"Do part {n}.", "status": each} for n, each in enumerate(statuses[:count], 1)]
        more = [{"text": f"Do part {dropped} otherwise.", "status": "pending"}] if dropped else []
        return call("update_plan", steps=[*steps, *more])

    lines = [calls(call("note", text="too early")), calls(plan(0))]
    lines += [calls(call("note", text=f"part {n}"), plan(n)) for n in range(1, 7)]
    lines += [calls(call("fail", why=f"{n} ")) for n in range(3)]
    lines += [calls(plan(7, dropped=7))]
    lines += [calls(call("note", text=f"part {n}"), plan(n, dropped=7)) for n in range(8, count + 1)]
    return Scenario("step by step", [*lines, words("Done.")], tools_of, settings={"needs_plan": True})


@pytest.mark.requirement("L2-02")
def test_a_task_of_fifteen_steps_is_planned_before_its_first_effect_and_revised_on_a_failure(
    volatile: Stage,
) -> None:
    scenario = _step_by_step(15)
    whole = played(volatile, scenario)
    seqs = {type(r.event).__name__: r.seq for r in reversed(whole.records)}
    assert seqs["ToolCallRefused"] < seqs["PlanChanged"] < seqs["ToolCallStarted"]
    notes = [r.event for r in whole.records if isinstance(r.event, NoteAdded) and r.event.about == "plan"]
    assert ["while step 7 of the plan" in each.text for each in notes] == [True]
    statuses = [step.status for step in plans(whole.records)[-1].steps]
    assert statuses == ["done"] * 6 + ["dropped"] + ["done"] * 8 + ["pending"]
    for number in range(3, whole.commits, 5):
        came = played(volatile, scenario, Faults(crash_after_commit=number))
        assert plans(came.records) == plans(whole.records)
        assert len(came.world.effects) == len(set(came.world.effects))
