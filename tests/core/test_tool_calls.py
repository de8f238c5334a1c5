"""Tool calls: in which order they start, what an attempt comes to, and what a crash leaves of them."""

from __future__ import annotations

import math
import sys

import pytest

from holdfast.core.causes import Attach, Commanded, Due, Finding, Outcome
from holdfast.core.decide import decision
from holdfast.core.state import admissible, phase, started_calls
from holdfast.core.wanted import Admit, PrepareRequest, RunTool, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Command, Pause, Stop, owner
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import ModelReply, ToolCall, Usage, calls_of
from holdfast.protocol.outcomes import ModelCut, Probed
from holdfast.protocol.tools import EVERYTHING, CallResult, FileChange, Files, Refused, Resource, Touched
from tests.core.stories import (
    SESSION,
    Story,
    acting,
    call,
    calling,
    kinds,
    only,
    opened,
    proposing,
    request,
    steps,
    words,
)

CHANGE = Files((FileChange("a.py", "before", "after"),))


def admissions(story: Story) -> list[str]:
    return [action.key for action in wanted(story.state) if isinstance(action, Admit)]


def running(story: Story) -> list[str]:
    return [action.key for action in wanted(story.state) if isinstance(action, RunTool)]


def test_calls_get_our_ids_whatever_the_provider_named_them() -> None:
    events = calling().answered(ToolCall("", "a", "{}"), ToolCall("x", "b", "{}"), ToolCall("x", "c", "{}"))
    parts = only(e.Responded, events).parts
    assert [part.call_id for part in parts if isinstance(part, ToolCall)] == ["t1.c1", "t1.c2", "t1.c3"]


@pytest.mark.requirement("L1")
def test_reads_run_side_by_side() -> None:
    story = proposing(call("read_file"), call("grep"), call("read_file"))
    for call_id in ("t1.c1", "t1.c2", "t1.c3"):
        assert admissions(story) == [f"{call_id}#0"], "the gates see one after the other"
        story.admitted(call_id)
    assert running(story) == ["t1.c1#1", "t1.c2#1", "t1.c3#1"]


A, B, BOTH = ((Resource("write", path),) for path in ("/w/a", "/w/b", "/w"))
READ_A, READ_BOTH = ((Resource("read", path),) for path in ("/w/a", "/w"))
READ = (Resource("read"),)


@pytest.mark.requirement("L1")
@pytest.mark.parametrize(
    ("first", "second", "are_together"),
    [
        (READ, READ, True),
        (READ_BOTH, READ_A, True),
        (A, B, True),
        (A, READ_A, False),
        (READ_A, A, False),
        (A, A, False),
        (A, BOTH, False),
        (BOTH, READ_A, False),
        (A, READ, False),
        (READ, A, False),
        (EVERYTHING, READ_A, False),
        (READ_A, EVERYTHING, False),
        (EVERYTHING, EVERYTHING, False),
        (A, (*B, *READ_A), False),
        ((Resource("write", "/w/A"),), READ_A, False),
        ((Resource("write", "/w/ab"),), READ_A, True),
        ((), EVERYTHING, True),
    ],
)
def test_two_calls_run_side_by_side_unless_one_writes_what_the_other_touches(
    first: tuple[Resource, ...], second: tuple[Resource, ...], are_together: bool
) -> None:
    story = proposing(call("one"), call("two"))
    story.admitted("t1.c1", resources=first)
    events = story.admitted("t1.c2", resources=second)
    assert running(story) == (["t1.c1#1", "t1.c2#1"] if are_together else ["t1.c1#1"])
    if not are_together:
        is_seen = first != EVERYTHING
        assert events == ([e.ToolCallQueued("t1.c2", "two", second)] if is_seen else [])
        assert admissions(story) == []
        story.finished("t1.c1")
        assert admissions(story) == ["t1.c2#0"], "the gates see it again"
        assert kinds(story.admitted("t1.c2", resources=second)) == ["ToolCallStarted"]


@pytest.mark.requirement("L1")
def test_a_call_waits_for_all_before_it_that_touch_the_same_also_for_those_that_wait() -> None:
    story = proposing(call("one"), call("two"), call("three"), call("four"))
    story.admitted("t1.c1", resources=A)
    assert kinds(story.admitted("t1.c2", resources=(*A, *B))) == ["ToolCallQueued"]
    assert kinds(story.admitted("t1.c3", resources=(Resource("read", "/w/b"),))) == ["ToolCallQueued"]
    assert kinds(story.admitted("t1.c4", resources=(Resource("read", "/w/c"),)))[-1] == "ToolCallStarted"
    story.finished("t1.c1")
    assert admissions(story) == ["t1.c2#0"]
    story.admitted("t1.c2", resources=B)
    assert admissions(story) == [], "what it touches by now counts, and the third touches it too"
    story.finished("t1.c2")
    assert admissions(story) == ["t1.c3#0"]


@pytest.mark.requirement("L1")
def test_a_call_that_touches_something_else_by_now_waits_again() -> None:
    story = proposing(call("one"), call("two"), call("three"))
    story.admitted("t1.c1", resources=A)
    story.admitted("t1.c2", resources=B)
    assert kinds(story.admitted("t1.c3", resources=A)) == ["ToolCallQueued"]
    story.finished("t1.c1")
    assert kinds(story.admitted("t1.c3", resources=B)) == ["ToolCallQueued"]
    story.finished("t1.c2")
    assert kinds(story.admitted("t1.c3", resources=B))[-1] == "ToolCallStarted"


@pytest.mark.requirement("L1", "H5")
def test_an_approved_call_waits_for_a_later_one_that_runs_and_touches_what_it_touches_by_now() -> None:
    story = proposing(call("one"), call("two"), call("three"))
    story.asked_for("t1.c1", resources=B)
    story.admitted("t1.c2", resources=A)
    story.resolve("approve")
    assert kinds(story.admitted("t1.c1", resources=A)) == ["ToolCallQueued"]
    assert admissions(story) == ["t1.c3#0"], "it is not judged again before something has changed"
    story.finished("t1.c2")
    assert admissions(story) == ["t1.c1#0", "t1.c3#0"]
    assert kinds(story.admitted("t1.c1", resources=A))[-1] == "ToolCallStarted"
    assert running(story) == ["t1.c1#1"]


@pytest.mark.requirement("L1", "H5")
def test_a_question_about_a_call_that_must_wait_is_not_asked_yet() -> None:
    story = proposing(call("one"), call("two"))
    story.admitted("t1.c1", resources=A)
    assert kinds(story.asked_for("t1.c2", resources=A)) == ["ToolCallQueued"]
    story.finished("t1.c1")
    assert kinds(story.asked_for("t1.c2", resources=A)) == ["ApprovalRequested"]


@pytest.mark.requirement("L1")
def test_writes_of_anything_take_effect_in_the_order_in_which_the_model_wrote_them() -> None:
    story = proposing(call("shell"), call("shell"), call("read_file"))
    assert admissions(story) == ["t1.c1#0"]
    story.admitted("t1.c1")
    assert admissions(story) == []
    story.finished("t1.c1")
    assert admissions(story) == ["t1.c2#0"], "a read after a write waits for it"


@pytest.mark.requirement("L1")
def test_after_a_crash_the_calls_that_ran_side_by_side_do_so_again() -> None:
    story = proposing(call("one"), call("two"), call("three"))
    story.admitted("t1.c1", resources=A, on_interrupt="rerun")
    story.admitted("t1.c2", resources=B, on_interrupt="rerun")
    story.admitted("t1.c3", resources=A, on_interrupt="rerun")
    story.attach()
    assert admissions(story) == ["t1.c1#1", "t1.c2#1"]


def test_results_in_any_order_complete_the_turn() -> None:
    story = proposing(call("read_file"), call("grep"))
    story.admitted("t1.c1")
    story.admitted("t1.c2")
    story.finished("t1.c2")
    assert phase(story.state) == "acting"
    story.finished("t1.c1")
    assert [type(action) for action in steps(story.state)] == [PrepareRequest]


def test_a_call_that_may_not_start_yet_is_not_admitted() -> None:
    story = proposing(call("write_file"), call("write_file"))
    assert story.admitted("t1.c2") == []
    assert story.when(Finding(story.step("t9.c9#0"), Probed("yes"))) == []


@pytest.mark.requirement("C15")
def test_a_refused_call_is_told_and_the_turn_goes_on() -> None:
    failure = Failure("tool_validation", "path is missing")
    story = proposing()
    assert story.judged("t1.c1", Refused(failure)) == [e.ToolCallRefused("t1.c1", "shell", failure)]
    assert phase(story.state) == "preparing"


def test_arguments_are_stored_again_only_when_the_gates_changed_them() -> None:
    story = proposing(call("shell", '{"b": 1, "a": 2}'))
    assert only(e.ToolCallStarted, story.admitted("t1.c1", arguments='{"a":2,"b":1}')).arguments == ""
    story = proposing(call("shell", '{"a": "1"}'))
    assert only(e.ToolCallStarted, story.admitted("t1.c1", arguments='{"a":1}')).arguments == '{"a":1}'
    assert story.call("t1.c1").arguments == '{"a":1}'


@pytest.mark.requirement("B2")
def test_a_timeout_is_clamped_to_what_the_run_has_left() -> None:
    story = calling(wall_s=100)
    story.later(40).answered(call())
    assert only(e.ToolCallStarted, story.admitted("t1.c1", timeout_s=300.0)).timeout_s == 60.0


@pytest.mark.requirement("C15")
@pytest.mark.parametrize("status", ["ok", "error", "timeout", "cancelled"])
def test_what_an_attempt_came_to_is_recorded_as_it_is(status: str) -> None:
    story = acting()
    assert story.finished("t1.c1", "text", status=status) == [
        e.ToolCallFinished("t1.c1", CallResult(status, "text"))  # type: ignore[arg-type]
    ]


@pytest.mark.requirement("H1")
def test_an_attempt_that_may_still_be_at_work_is_abandoned_with_what_is_known() -> None:
    assert acting().finished("t1.c1", "It cannot be killed.", status="unknown") == [
        e.ToolCallAbandoned("t1.c1", "It cannot be killed.")
    ]


def test_an_outcome_of_another_kind_means_nothing() -> None:
    story = acting()
    assert story.when(Outcome("t1.c1#1", ModelCut("x", Usage()))) == []
    story = calling()
    assert story.when(Outcome(story.model_call.key, CallResult("ok", "x"))) == []


# --- after a crash ------------------------------------------------------------------------------


@pytest.mark.requirement("H1", "L2-05")
def test_an_interrupted_call_of_unknown_effect_is_given_up_and_the_model_is_told() -> None:
    story = acting()
    events = story.attach()
    assert kinds(events) == ["Attached", "ToolCallAbandoned"]
    assert "unknown" in only(e.ToolCallAbandoned, events).text
    assert "not repeated" in only(e.ToolCallAbandoned, events).text
    assert running(story) == []


@pytest.mark.requirement("H1", "L2-05")
@pytest.mark.parametrize("on_interrupt", ["rerun", "probe"])
def test_an_interrupted_call_that_may_run_again_goes_before_the_gates_again(on_interrupt: str) -> None:
    story = proposing()
    story.admitted("t1.c1", on_interrupt=on_interrupt, expects=CHANGE)
    assert kinds(story.attach()) == ["Attached"]
    (action,) = steps(story.state)
    assert isinstance(action, Admit)
    interrupted = action.call.interrupted
    assert interrupted is not None
    assert (action.key, interrupted.expects) == ("t1.c1#1", CHANGE)
    started = only(e.ToolCallStarted, story.admitted("t1.c1", on_interrupt=on_interrupt))
    assert (started.attempt, started.epoch) == (2, 2)
    assert running(story) == ["t1.c1#2"]


@pytest.mark.requirement("H1", "L2-05")
def test_a_look_that_finds_the_effect_closes_the_call_without_repeating_it() -> None:
    story = proposing()
    story.admitted("t1.c1", on_interrupt="probe", expects=CHANGE)
    story.attach()
    events = story.found("t1.c1#1", Probed("yes"))
    assert kinds(events) == ["ToolCallFinished"]
    assert only(e.ToolCallFinished, events).result.status == "ok"


@pytest.mark.requirement("H1")
def test_a_look_that_finds_something_else_gives_the_call_up() -> None:
    story = proposing()
    story.admitted("t1.c1", on_interrupt="probe", expects=CHANGE)
    story.attach()
    assert kinds(story.found("t1.c1#1", Probed("unknown"))) == ["ToolCallAbandoned"]


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("ending", ["refused by the gates", "nobody to ask", "denied", "stopped"])
def test_an_interrupted_call_that_does_not_run_again_is_never_said_not_to_have_happened(ending: str) -> None:
    story = proposing(approve_by="deny" if ending == "nobody to ask" else "wait")
    story.admitted("t1.c1", on_interrupt="rerun")
    story.attach()
    if ending == "refused by the gates":
        events = story.judged("t1.c1", Refused(Failure("policy_denied", "No.")))
    elif ending == "nobody to ask":
        events = story.asked_for("t1.c1")
    elif ending == "denied":
        story.asked_for("t1.c1")
        events = story.resolve("deny")
    else:
        events = story.command(Stop())
    assert "ToolCallRefused" not in kinds(events)
    assert "unknown" in only(e.ToolCallAbandoned, events).text


@pytest.mark.requirement("H1")
def test_an_interrupted_call_that_waits_for_a_person_is_given_up_at_a_stop() -> None:
    story = proposing()
    story.admitted("t1.c1", on_interrupt="rerun")
    story.attach()
    story.asked_for("t1.c1")
    assert kinds(story.command(Stop())) == [
        "RunStopping",
        "ApprovalResolved",
        "ToolCallAbandoned",
        "RunStopped",
    ]


@pytest.mark.requirement("H1")
def test_a_crash_in_a_pause_leaves_the_interrupted_call_for_later() -> None:
    story = proposing()
    story.admitted("t1.c1", on_interrupt="rerun")
    story.command(Pause())
    story.attach()
    assert wanted(story.state) == []
    story.go_on()
    assert admissions(story) == ["t1.c1#1"]


@pytest.mark.requirement("H1", "L2-05")
@pytest.mark.requirement("A3")
@pytest.mark.parametrize(("count", "taken"), [(128, 128), (129, 128), (1_000, 128)])
def test_of_more_calls_than_a_response_may_have_the_rest_is_refused_and_the_model_is_told(
    count: int, taken: int
) -> None:
    story = calling()
    events = story.answered(*(call("read_file", str(n)) for n in range(count)), finish="tool_calls")
    responded = only(e.Responded, events)
    assert [part.call_id for part in calls_of(responded.parts)] == [f"t1.c{n + 1}" for n in range(taken)]
    assert [each.call_id for each in story.state.turn.calls] == [f"t1.c{n + 1}" for n in range(taken)]
    notes = [event for event in events if isinstance(event, e.NoteAdded)]
    assert [(note.about, f"{count:,} calls" in note.text) for note in notes] == (
        [("calls", True)] if count > taken else []
    )
    assert calls_of(responded.parts)[-1].arguments == str(taken - 1)


def test_a_crash_between_two_calls_repeats_nothing_that_is_done() -> None:
    story = opened()
    story.prepared()
    story.answered(call("write_file"), call("write_file"))
    story.admitted("t1.c1")
    story.finished("t1.c1")
    assert kinds(story.attach()) == ["Attached"]
    assert admissions(story) == ["t1.c2#0"]


@pytest.mark.requirement("H1", "L2-05")
def test_a_call_after_a_crash_is_named_as_it_would_have_been_without_one() -> None:
    story = calling()
    story.attach()
    story.prepared()
    story.answered(call())
    assert [each.call_id for each in story.state.turn.calls] == ["t1.c1"]


@pytest.mark.requirement("H1", "L2-05")
@pytest.mark.parametrize("on_interrupt", ["rerun", "probe"])
def test_a_call_that_was_interrupted_three_times_is_given_up(on_interrupt: str) -> None:
    story = proposing()
    for _ in range(2):
        story.admitted("t1.c1", on_interrupt=on_interrupt)
        assert kinds(story.attach()) == ["Attached"]
    story.admitted("t1.c1", on_interrupt=on_interrupt)
    events = story.attach()
    assert kinds(events) == ["Attached", "ToolCallAbandoned"]
    assert "each of its 3 attempts was interrupted" in only(e.ToolCallAbandoned, events).text
    assert phase(story.state) == "preparing"


@pytest.mark.requirement("L5")
def test_every_record_names_the_kind_and_the_name_of_its_cause() -> None:
    story = opened()
    told = [
        decision(story.state, Attach(9), story.now_ms, 0),
        decision(story.state, Commanded(Command("c1", SESSION, owner("ann"), Stop()), 1), story.now_ms, 0),
        decision(story.state, Finding(story.step("m1"), request()), story.now_ms, 0),
    ]
    story.prepared()
    told.append(decision(story.state, Outcome("m1", ModelReply((words(),), Usage(1, 1))), story.now_ms, 0))
    told.append(decision(story.state, Due("wall"), story.now_ms, 7_200_000))
    assert [{record.cause for record in draft.records} for draft in told] == [
        {e.Trigger("attach")},
        {e.Trigger("command", "c1")},
        {e.Trigger("finding", "m1")},
        {e.Trigger("outcome", "m1")},
        {e.Trigger("timer", "wall")},
    ]


@pytest.mark.requirement("H1", "L2-05")
def test_a_call_that_was_given_up_is_not_given_up_again_by_the_next_driver() -> None:
    story = proposing()
    for _ in range(3):
        story.admitted("t1.c1", on_interrupt="rerun")
        story.attach()
    assert phase(story.state) == "preparing"
    assert kinds(story.attach()) == ["Attached"]


@pytest.mark.requirement("H1")
def test_a_failure_that_arrives_during_a_stop_leaves_the_run_stopped_as_somebody_asked() -> None:
    story = calling()
    story.command(Stop())
    stopped = only(e.RunStopped, story.failed("provider_fatal"))
    assert (stopped.status, stopped.reason, stopped.by) == ("interrupted", "stopped", "cli:ann")


@pytest.mark.requirement("B2")
def test_the_time_before_a_call_starts_counts_for_its_limit() -> None:
    story = proposing(wall_s=100)
    story.later(90).admitted("t1.c1", timeout_s=1_000.0)
    ((_, attempt),) = started_calls(story.state)
    assert attempt.timeout_s == 10.0


@pytest.mark.parametrize("timeout_s", [math.nan, math.inf, -math.inf])
def test_a_time_limit_that_is_no_number_is_the_time_that_is_left(timeout_s: float) -> None:
    story = proposing(wall_s=100)
    story.admitted("t1.c1", timeout_s=timeout_s)
    ((_, attempt),) = started_calls(story.state)
    assert attempt.timeout_s == 100.0


def test_arguments_that_only_python_calls_equal_are_recorded() -> None:
    story = proposing(call("shell", '{"n":true}'))
    assert only(e.ToolCallStarted, story.admitted("t1.c1", arguments='{"n":1}')).arguments == '{"n":1}'
    story = proposing(call("shell", '{ "b": 2, "a": 1 }'))
    assert only(e.ToolCallStarted, story.admitted("t1.c1", arguments='{"a":1,"b":2}')).arguments == ""


def test_to_find_what_may_start_takes_time_in_proportion_to_the_calls_and_their_paths() -> None:
    def steps_of(count: int) -> int:
        story = proposing(*(call("write_file", f'{{"n":{number}}}') for number in range(count)))
        for number in range(count):
            paths = tuple(Resource("write", f"/w/{number}/{path}") for path in range(16))
            story.given(e.ToolCallQueued(f"t1.c{number + 1}", "write_file", paths))
        taken = 0

        def count_one(*_: object) -> None:
            nonlocal taken
            taken += 1

        sys.setprofile(count_one)
        try:
            found = len(list(admissible(story.state)))
        finally:
            sys.setprofile(None)
        assert found == count
        return taken

    assert steps_of(128) <= 4.4 * steps_of(32)


@pytest.mark.parametrize("path", ["/home/x", "/"])
def test_what_writes_the_root_folder_conflicts_with_every_path(path: str) -> None:
    assert Touched([Resource("read", path)]).is_in_conflict([Resource("write", "/")])
    assert not Touched([Resource("write", "/homes/x")]).is_in_conflict([Resource("write", "/home")])
