"""The loop's ways to an end, under the names that the mission asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.causes import Outcome
from holdfast.core.decide import decide
from holdfast.core.evolve import fold
from holdfast.protocol import events as e
from holdfast.protocol.approvals import ApprovalRequested
from holdfast.protocol.commands import Continue, Resolve
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Store
from holdfast.protocol.tools import CallResult
from holdfast.testing.clock import JumpingClock
from holdfast.testing.faults import Faults
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import Played, Scenario, Step, play, play_with_crash, say
from tests.scenarios.scenes import _with as with_steps
from tests.scenarios.scenes import call, calls, tools_of, words
from tests.scenarios.stage import Stage

Run = Callable[[Scenario], Played]


@pytest.fixture
def run(volatile: Stage) -> Run:
    """Play a scenario and check all that must hold of it."""

    def run(scenario: Scenario) -> Played:
        async def main(clock: JumpingClock, store: Store, workspace: Path) -> Played:
            played = await play(scenario, clock, store, workspace)
            await check_session(store, played.session, played.records)
            return played

        return volatile.run(main)

    return run


def looks(count: int, last: str = "That is all.") -> list[dict[str, object]]:
    """So many turns with a call, then an answer."""
    return [*(calls(call("look", name=f"thing {number}")) for number in range(count)), words(last)]


def answer_of(played: Played) -> str:
    """The last words of the model."""
    said = [r.event for r in played.records if isinstance(r.event, e.Responded)]
    return "".join(part.text for part in said[-1].parts if hasattr(part, "text"))


@pytest.mark.requirement("L12", "L1")
def test_loop_completes_without_tools(run: Run) -> None:
    played = run(Scenario("plain", [words("42")]))
    assert ended(played.records) == [("done", "answer")]
    assert answer_of(played) == "42"
    assert played.state.run is not None
    assert (played.state.run.totals.turns, played.state.run.totals.tool_calls) == (1, 0)


@pytest.mark.requirement("L12", "L1")
def test_loop_handles_tool_calls(run: Run) -> None:
    played = run(Scenario("tools", looks(3), tools_of))
    assert ended(played.records) == [("done", "answer")]
    assert [name for name, _ in played.world.called] == ["look"] * 3
    results = [r.event.result.text for r in played.records if isinstance(r.event, e.ToolCallFinished)]
    assert results == [f"thing {number} is fine" for number in range(3)]


@pytest.mark.requirement("L12", "L1", "B2", "B8")
@pytest.mark.parametrize(
    ("working_turns", "status", "turns", "model_calls"),
    [(18, "done", 19, 19), (19, "done", 20, 20), (20, "limit", 20, 21)],
    ids=["19 of 20", "20 of 20", "one too many"],
)
def test_loop_respects_max_turns(
    run: Run, working_turns: int, status: str, turns: int, model_calls: int
) -> None:
    played = run(Scenario("twenty", looks(working_turns), tools_of, limits=Limits(turns=20)))
    assert played.state.run is not None
    totals = played.state.run.totals
    assert (played.state.run.status, totals.turns, totals.model_calls) == (status, turns, model_calls)
    assert totals.tool_calls == working_turns
    assert answer_of(played) == "That is all."
    if status == "limit":
        last = [r.event for r in played.records if isinstance(r.event, e.ModelCallStarted)][-1]
        assert last.is_last_pass


@pytest.mark.requirement("L12", "L1", "B2", "B8")
@pytest.mark.parametrize(
    "lines",
    [[calls(call("wait", seconds=900))], [words("word " * 100, chunks=100, delay_s=900.0)]],
    ids=["in a tool", "in a response"],
)
def test_loop_respects_timeout(run: Run, lines: list[dict[str, object]]) -> None:
    played = run(Scenario("slow", lines, tools_of, limits=Limits(wall_s=60.0)))
    assert ended(played.records) == [("limit", "wall")]
    took_ms = played.records[-1].at_ms - played.records[0].at_ms
    assert 60_000 <= took_ms <= 61_000


@pytest.mark.requirement("L1", "B2")
def test_a_tool_that_outlives_its_own_timeout_is_ended_and_the_model_is_told(run: Run) -> None:
    played = run(Scenario("sulking", [calls(call("wait", seconds=2_000)), words("Then not.")], tools_of))
    finished = next(r.event for r in played.records if isinstance(r.event, e.ToolCallFinished))
    assert finished.result.status == "timeout"
    assert ended(played.records) == [("done", "answer")]


@pytest.mark.requirement("B2", "L1")
def test_no_time_left_starts_nothing_more(run: Run) -> None:
    lines = [calls(call("wait", seconds=500), call("note", text="late"), call("note", text="later"))]
    played = run(Scenario("late", lines, tools_of, limits=Limits(wall_s=60.0)))
    assert ended(played.records) == [("limit", "wall")]
    assert not played.world.effects
    assert sum(isinstance(r.event, e.ModelCallStarted) for r in played.records) == 1
    # The same when the tool's end is heard of before the timer of the run.
    begun = next(n for n, r in enumerate(played.records, 1) if isinstance(r.event, e.ToolCallStarted))
    state = fold(list(played.records[:begun]))
    cause = Outcome("t1.c1#1", CallResult("timeout", "It took too long."))
    events = decide(state, cause, state.at_ms, state.awake_ms + 60_000)
    assert isinstance(events[-1], e.RunStopped)
    assert (events[-1].status, events[-1].reason) == ("limit", "wall")


@pytest.mark.requirement("L12", "L1", "L7")
@pytest.mark.parametrize(
    ("errors", "status", "model_calls"),
    [
        ([{"status": 500}], "done", 2),
        ([{"status": 429, "retry_after": 3}, {"status": 503}], "done", 3),
        ([{"status": 500}] * 6, "failed", 6),
        ([{"status": 401}], "failed", 1),
    ],
)
def test_loop_handles_llm_failure(
    run: Run, errors: list[dict[str, object]], status: str, model_calls: int
) -> None:
    played = run(Scenario("failing", [*({"error": error} for error in errors), words("At last.")]))
    assert played.state.run is not None
    assert played.state.run.status == status
    assert played.state.run.totals.model_calls == model_calls
    if status == "failed":
        assert played.state.run.message


@pytest.mark.requirement("L12", "L2-05", "H1")
def test_session_resumed(volatile: Stage) -> None:
    """Killed at turn 10 of 20, resumed by another runtime, completed: no effect happened twice."""
    lines = [*(calls(call("note", text=f"note {number}")) for number in range(19)), words("Twenty turns.")]
    scenario = Scenario("twenty", lines, tools_of)

    async def main(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        faults = Faults(crash_after_commit=1 + 2 * 10)
        played = await play_with_crash(scenario, clock, store, workspace, faults)
        await check_session(store, played.session, played.records)
        return played

    played = volatile.run(main)
    assert sum(isinstance(r.event, e.Responded) for r in played.left[0]) == 10
    assert ended(played.records) == [("done", "answer")]
    assert played.world.effects == [f"note {number}" for number in range(19)]
    assert sum(isinstance(r.event, e.Attached) for r in played.records) == 2
    assert played.state.run is not None
    assert played.state.run.totals.turns == 20


@pytest.mark.requirement("L2-05")
def test_after_a_limit_another_run_goes_on_with_fresh_limits(run: Run) -> None:
    scenario = Scenario(
        "again",
        [*looks(2, "So far."), *looks(1, "Now all.")],
        tools_of,
        lambda settings: (say("Do it.", settings), Step(Continue())),
        limits=Limits(turns=2),
    )
    played = run(scenario)
    assert ended(played.records) == [("limit", "turns"), ("done", "answer")]
    assert answer_of(played) == "Now all."


def test_a_request_counts_as_new_what_the_last_one_did_not_have(run: Run) -> None:
    """What is new is charged in full, and what a provider keeps is not. A last pass shares most of its base."""
    played = run(Scenario("work", looks(2), tools_of))
    first, second, third = [
        r.event.request for r in played.records if isinstance(r.event, e.ModelCallStarted)
    ]
    assert first.size_bytes - len(first.tail) <= first.fresh_bytes <= first.size_bytes
    assert 0 < second.fresh_bytes < second.size_bytes // 4
    assert 0 < third.fresh_bytes < third.size_bytes // 4
    played = run(Scenario("limit", looks(1), tools_of, limits=Limits(turns=1)))
    first, last = [r.event.request for r in played.records if isinstance(r.event, e.ModelCallStarted)]
    assert last.base != first.base
    assert 0 < last.fresh_bytes < last.size_bytes // 2


def test_more_calls_than_an_hour_allows_wait_for_a_person(run: Run) -> None:
    hurried = Scenario(
        "hurried",
        looks(3),
        tools_of,
        with_steps(Step(Resolve("", "approve"))),
        settings={"actions_per_hour": 2},
    )
    events = [record.event for record in run(hurried).records]
    (asked,) = [event for event in events if isinstance(event, ApprovalRequested)]
    assert [each.by for each in asked.decisions if each.verdict == "ask"] == ["rate"]
    assert asked.call_id == "t3.c1"
