"""Hooks in whole sessions: with a crash at every commit, when they hang, and when somebody stops."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Resolve, Send, Stop, owner
from holdfast.protocol.ports import Store
from holdfast.protocol.rules import PolicyRule
from holdfast.runtime.controller import SessionController
from holdfast.runtime.prepare import PREPARE_LIMIT_S
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import SESSION_KEY, Scenario, World, controller_of, records_of, settings_of
from holdfast.views.replay import replay
from tests.scenarios.hook_functions import HEARD
from tests.scenarios.hook_scenes import (
    ALL_ASKED,
    ALL_EVENTS,
    ALL_KINDS,
    ENDS,
    REFUSED_CALL,
    SCENES,
    scene,
    source,
)
from tests.scenarios.scenes import DONE, LONG, call, calls, words
from tests.scenarios.stage import Stage
from tests.scenarios.test_crashes import crash, run
from tests.scenarios.test_slow_steps import played


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.scenarios.test_crashes.ENDS", ENDS)


def events_of(records: Any, kind: type[Any]) -> list[Any]:
    return [record.event for record in records if isinstance(record.event, kind)]


def heard(workspace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workspace / HEARD).read_text().splitlines()]


@pytest.mark.requirement("S4", "H1")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENES, ids=lambda scenario: scenario.name)
def test_a_crash_at_any_commit_changes_nothing_that_hooks_decided(
    volatile: Stage, scenario: Scenario, every: int
) -> None:
    crash(volatile, scenario, every)


@pytest.mark.requirement("S4", "H1")
@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENES, ids=lambda scenario: scenario.name)
def test_a_crash_at_a_commit_to_the_disk_changes_nothing_that_hooks_decided(
    durable: Stage, scenario: Scenario, every: int
) -> None:
    crash(durable, scenario, every)


@pytest.mark.requirement("S4", "H5")
def test_each_kind_of_hook_does_what_it_says(stage: Stage) -> None:
    whole = run(stage, ALL_KINDS)
    refusals = {each.call_id: each.failure.message for each in events_of(whole.records, e.ToolCallRefused)}
    assert refusals == {
        "t1.c1": "Refused by the hook deny: Not this.",
        "t2.c1": "Refused by the hook hang: the hook failed: it did not answer within 2 s.",
        "t2.c2": "Refused by the hook die: the hook failed: it raised RuntimeError: I am gone.",
    }
    assert list(whole.world.by_key.values()) == ["10"]
    (asked,) = events_of(whole.records, e.ApprovalRequested)
    assert (asked.call_id, asked.reason) == ("t1.c3", "Is it so?")
    (charged,) = [each for each in events_of(whole.records, e.ToolCallStarted) if each.name == "charge"]
    assert charged.arguments == '{"amount":10}'
    (said,) = [each for each in events_of(whole.records, e.Responded) if each.key == "m1"]
    assert '{"amount":5}' in [getattr(part, "arguments", "").replace(" ", "") for part in said.parts]


@pytest.mark.requirement("S4")
def test_hooks_are_told_of_everything_that_happens(stage: Stage) -> None:
    whole = run(stage, ALL_EVENTS)
    told = heard(whole.world.workspace)
    assert [(each["event"], each.get("call") or each.get("request") or each.get("turn")) for each in told] == [
        ("after_model", "m1"), ("after_tool", "t1.c1"), ("after_tool", "t1.c2"), ("turn_end", 1),
        ("after_model", "m2"), ("approval", "t2.c1"), ("after_tool", "t2.c1"), ("turn_end", 2),
        ("after_model", "m3"), ("turn_end", 3), ("run_end", None),
    ]  # fmt: skip
    assert told[1]["tool"] == "look"
    assert told[1]["arguments"] == {"name": "x"}
    assert (told[1]["status"], told[1]["result"]) == ("ok", "x is fine")
    assert told[5]["question"] == "Which?"
    assert (told[-1]["run"], told[-1]["status"], told[-1]["reason"]) == (1, "done", "answer")
    assert {each["hook"] for each in told} == {"note"}
    assert [each.status for each in events_of(whole.records, e.HookEnded)] == ["ok"] * len(told)


@pytest.mark.requirement("S4")
def test_hooks_are_asked_before_a_run_and_each_model_call_and_a_failure_may_be_allowed(stage: Stage) -> None:
    whole = run(stage, ALL_ASKED)
    asked = [
        (each["event"], each.get("request") or each.get("run") or each.get("call"))
        for each in heard(whole.world.workspace)
    ]
    assert asked == [
        ("run_start", 1), ("before_model", "m1"), ("before_tool", "t1.c1"), ("before_model", "m2"),
        ("before_tool", "t2.c1"), ("before_model", "m3"),
    ]  # fmt: skip
    failed = [each for each in events_of(whole.records, e.HookEnded) if each.hook == "fail"]
    assert {each.status for each in failed} == {"failed"}
    assert "I am gone" in failed[0].reason


@pytest.mark.requirement("S4")
@pytest.mark.parametrize("name", ["refuse", "doubt", "fail"])
@pytest.mark.parametrize("event", ["run_start", "before_model"])
def test_a_denial_before_a_model_call_ends_the_run_before_anything_is_sent(
    volatile: Stage, name: str, event: str
) -> None:
    """A question counts as a denial, because nobody can approve a whole request; so does a failure."""
    whole = run(volatile, scene("refused", [DONE], source(name, event)))
    assert ended(whole.records) == [("failed", f"hook:{name}")]
    assert events_of(whole.records, e.ModelCallStarted) == []
    (end,) = events_of(whole.records, e.RunStopped)
    assert end.message.startswith(f"The hook {name} ended the run: ")


@pytest.mark.requirement("S4")
def test_what_hooks_say_that_are_only_told_is_ignored(volatile: Stage) -> None:
    lines = [calls(call("look", name="x")), DONE]
    whole = run(
        volatile, scene("told", lines, source("refuse", "after_tool", "after_model", "turn_end", "run_end"))
    )
    assert ended(whole.records) == [("done", "answer")]
    assert {(each.status, each.reason) for each in events_of(whole.records, e.HookEnded)} == {("ok", "")}


@pytest.mark.requirement("S4")
def test_a_hook_that_is_told_and_hangs_delays_nothing_and_is_told_again_after_its_time(
    volatile: Stage,
) -> None:
    lines = [calls(call("look", name="x")), DONE]
    whole = run(
        volatile, scene("hang", lines, source("hang_always", "after_model", "run_end", timeout_s=30.0))
    )
    assert ended(whole.records) == [("done", "answer")]
    (end,) = [record for record in whole.records if isinstance(record.event, e.RunStopped)]
    assert end.at_ms - whole.records[0].at_ms < 5_000
    late = events_of(whole.records, e.HookEnded)
    assert [each.event for each in late] == ["after_model", "after_model", "run_end"]
    assert {each.status for each in late} == {"failed"}


@pytest.mark.requirement("S4")
def test_hooks_are_asked_before_a_compaction(volatile: Stage) -> None:
    lines = [*[calls(call("look", name=f"{LONG} {n}")) for n in range(6)], words("Done.")]
    settings = {"max_messages": 10}
    noting = scene("compacted", lines, source("note", "before_compaction"), settings=settings)
    whole = run(volatile, noting)
    compacted = events_of(whole.records, e.ContextCompacted)
    assert compacted
    assert not replay(whole.session, SESSION_KEY, whole.records).differences
    assert len(events_of(whole.records, e.HooksDue)) == len(compacted)
    assert {each["reason"] for each in heard(whole.world.workspace)} == {"full"}
    refused = run(volatile, scene("kept", lines, source("refuse", "before_compaction"), settings=settings))
    assert ended(refused.records) == [("failed", "hook:refuse")]
    assert events_of(refused.records, e.ContextCompacted) == []


def hanging(*on: str) -> Scenario:
    lines = [calls(call("look", name="x"), call("note", text="n")), DONE]
    return scene("hanging", lines, source("hang_always", *on, timeout_s=600.0))


async def until(store: Store, session: str, kind: str, count: int = 1) -> None:
    while [record.type for record in await store.read(session)].count(kind) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.requirement("S4", "C4")
@pytest.mark.parametrize("on", ["run_start", "before_model", "before_tool", "after_model"])
def test_a_hook_that_hangs_keeps_nobody_from_stopping(stage: Stage, on: str) -> None:
    async def stop(controller: SessionController, session: str, world: World) -> None:
        await asyncio.sleep(3)
        await controller.submit(session, owner("tester"), Stop())

    _, records, took_ms = stage.run(played(hanging(on), stop))
    ends = ended(records)
    assert ends in ([("interrupted", "stopped")], [("done", "answer")])
    assert (ends[0][0] == "done") == (on == "after_model")
    assert took_ms < 10_000 or on == "after_model"


@pytest.mark.requirement("S4", "C4")
def test_a_stop_leaves_untold_what_hooks_did_not_hear_but_for_the_end(volatile: Stage) -> None:
    lines = [calls(call("wait", seconds=20)), DONE]
    scenario = scene("hanging", lines, source("hang_always", "after_model", "run_end", timeout_s=600.0))

    async def stop(controller: SessionController, session: str, world: World) -> None:
        await asyncio.sleep(3)
        await controller.submit(session, owner("tester"), Stop())

    _, records, took_ms = volatile.run(played(scenario, stop))
    assert [(each.event, each.status) for each in events_of(records, e.HookEnded)] == [("run_end", "failed")]
    assert took_ms < 10_000


@pytest.mark.requirement("S4", "C4")
def test_a_hook_that_hangs_keeps_nobody_from_pausing_and_is_asked_again(volatile: Stage) -> None:
    async def pause(controller: SessionController, session: str, world: World) -> None:
        await asyncio.sleep(3)
        await controller.submit(session, owner("tester"), Pause())

    for on in ("before_tool", "before_model"):
        world, records, _ = volatile.run(played(hanging(on), pause))
        assert isinstance(records[-1].event, e.RunPaused)
        assert events_of(records, e.HookEnded) == []
        assert world.effects == []


@pytest.mark.requirement("S4", "C4")
def test_the_time_limit_ends_a_run_whose_hook_hangs(volatile: Stage) -> None:
    async def nothing(controller: SessionController, session: str, world: World) -> None:
        """Wait."""

    for on in ("before_tool", "before_model", "run_start"):
        scenario = scene(
            "limit", hanging(on).lines, source("hang_always", on, timeout_s=600.0), settings={"wall_s": 9.0}
        )
        _, records, _ = volatile.run(played(scenario, nothing))
        assert ended(records) == [("limit", "wall")]


@pytest.mark.requirement("S4", "H5")
def test_a_person_decides_about_one_call_while_the_hook_of_another_hangs(stage: Stage) -> None:
    async def play(clock: JumpingClock, store: Store, workspace: Path) -> list[e.Record]:
        lines = [
            calls(call("write_file", path="a", content="a"), call("write_file", path="b", content="endless")),
            DONE,
        ]
        asked = {"ask": (PolicyRule("write_file(a)"),)}
        scenario = scene("two", lines, source("hang", timeout_s=500.0), settings=asked)
        world = World(workspace)
        async with controller_of(scenario, store, clock, world) as controller:
            session = await controller.open("a:b")
            await controller.submit(session, owner("tester"), Send("Go.", settings_of(scenario, workspace)))
            driving = asyncio.create_task(controller.drive(session))
            await until(store, session, "ApprovalRequested")
            await asyncio.sleep(1)
            (waiting,) = await store.approvals(session)
            await controller.submit(session, owner("tester"), Resolve(waiting.id, "approve"))
            await until(store, session, "ToolCallFinished")
            assert (workspace / "a").read_text() == "a"
            await controller.submit(session, owner("tester"), Stop())
            await driving
        records = await records_of(store, session)
        await check_session(store, session, records)
        return list(records)

    records = stage.run(play)
    assert ended(records) == [("interrupted", "stopped")]


def test_a_run_that_a_hook_refused_goes_on_when_somebody_continues_it(volatile: Stage) -> None:
    whole = run(volatile, REFUSED_CALL)
    assert [each.key for each in events_of(whole.records, e.ModelCallStarted)] == ["m1"]


@pytest.mark.requirement("S4", "A4")
def test_a_hook_changes_a_call_with_a_secret_and_only_a_masked_copy_is_stored(volatile: Stage) -> None:
    secret = "password=" + "Tr0ub4dor" + "-and-3"
    lines = [calls(call("note", text=f"beer {secret}")), DONE]
    whole = run(volatile, scene("masked", lines, source("water")))
    assert whole.world.effects == [f"water {secret}"]
    (started,) = events_of(whole.records, e.ToolCallStarted)
    assert started.is_masked
    assert "water" in started.arguments
    assert secret not in repr(whole.records)
    leaking = run(volatile, scene("leaking", [calls(call("note", text="n")), DONE], source("leak")))
    (refused,) = events_of(leaking.records, e.ToolCallRefused)
    assert "a hook put what looks like a secret into its arguments" in refused.failure.message
    assert leaking.world.effects == []
    assert secret not in repr(leaking.records)


@pytest.mark.requirement("S4", "H2")
@pytest.mark.parametrize("scenario", SCENES, ids=lambda scenario: scenario.name)
def test_a_session_with_hooks_is_decided_again_as_it_was_recorded(
    volatile: Stage, scenario: Scenario
) -> None:
    whole = run(volatile, scenario)
    found = replay(whole.session, SESSION_KEY, whole.records)
    assert not found.differences
    assert found.records == len(whole.records)


@pytest.mark.requirement("S4", "H1")
def test_a_hook_has_its_own_time_beside_the_limit_of_a_prepare_step(volatile: Stage) -> None:
    async def nothing(*_: object) -> None:
        """Nobody asks for anything."""

    patient = scene(
        "patient",
        [calls(call("note", text="endless")), DONE],
        source("hang", timeout_s=2 * PREPARE_LIMIT_S),
    )
    _, records, took_ms = volatile.run(played(patient, nothing))
    (refused,) = events_of(records, e.ToolCallRefused)
    assert "hang" in refused.failure.message, refused
    assert took_ms >= 2_000 * PREPARE_LIMIT_S
