"""The plan of a task: what changes it, what is refused, when a step has failed, and how long the plan lives."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.plan import Planned, text_of
from holdfast.protocol import events as e
from holdfast.protocol.commands import Continue, Send
from holdfast.protocol.messages import Text, ToolCall
from holdfast.protocol.plan import MAX_STEPS, UPDATE_PLAN, Plan, PlanUpdate, Step
from holdfast.protocol.tools import Told
from tests.core.stories import PASSED, Story, a_turn, call, kinds, only, opened, proposing

PLAN = call(UPDATE_PLAN)
LOOK = Step("Look.", "in_progress", "1")
MEND = Step("Mend.", "pending", "2")
DONE = Step("Look.", "done", "1")
PARTS = (ToolCall("r", UPDATE_PLAN, "{}"),)


def tell(story: Story, call_id: str, *steps: Step, **said: Any) -> list[e.Event]:
    """The gates let the call pass, and this is what it says."""
    return story.judged(call_id, Told(PlanUpdate(steps, **said), PASSED, "{}"))


def planned(*steps: Step, **changes: Any) -> Story:
    """The model has made a plan, and its next response is to come."""
    story = proposing(PLAN, **changes)
    tell(story, "t1.c1", *(steps or (LOOK, MEND)), goal="Green.")
    return story


def plan_again(story: Story, *steps: Step) -> list[e.Event]:
    """In the next turn the model changes the plan."""
    story.prepared()
    story.answered(*PARTS, finish="tool_calls")
    return tell(story, f"t{story.state.turn.number}.c1", *steps)


def fail(story: Story, times: int = 1, status: Any = "error") -> list[e.Event]:
    """So many turns with a call that fails. Return what the last failure brings."""
    events: list[e.Event] = []
    for _ in range(times):
        story.prepared()
        story.answered(call("shell", f'{{"command":"{story.state.seq}"}}'), finish="tool_calls")
        turn = f"t{story.state.turn.number}.c1"
        story.admitted(turn)
        events = story.finished(turn, f"no {story.state.seq}", status)
    return events


def plan_of(story: Story) -> Plan:
    assert story.state.plan.plan is not None
    return story.state.plan.plan


@pytest.mark.requirement("L2-02")
def test_a_call_of_update_plan_is_taken_in_the_commit_that_judges_it() -> None:
    story = proposing(PLAN)
    events = tell(
        story, "t1.c1", Step("Look.", "in_progress"), Step("Mend."), goal=" Be \n green. ", note="So."
    )
    assert kinds(events) == ["ToolCallTold", "PlanChanged", "ToolCallFinished"]
    assert only(e.PlanChanged, events) == e.PlanChanged("t1.c1", Plan((LOOK, MEND), "Be green."), "So.")
    result = only(e.ToolCallFinished, events).result
    assert (result.status, result.trust) == ("ok", "assistant")
    assert "revision 1: 0 of 2 steps done, step 1 in progress" in result.text
    assert story.state.plan.is_made
    assert story.run.totals.tool_calls == 0  # nothing was started


@pytest.mark.requirement("L2-02")
@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (
            (DONE, Step("A", "in_progress", "a"), Step("B", "in_progress", "b")),
            "Steps a and b are both in_progress",
        ),
        ((MEND,), 'Step 1 ("Look.") is done'),
        ((LOOK, MEND), 'Step 1 ("Look.") is done'),
        ((Step("Look.", "dropped", "1"), MEND), 'Step 1 ("Look.") is done'),
        ((DONE, Step("A", id="2"), Step("B", id="2")), "Two steps have the id 2"),
        ((DONE, Step(" \n")), "A step has no text"),
    ],
    ids=["two at once", "a done step is gone", "reopened", "dropped", "one id twice", "blank"],
)
def test_a_plan_that_is_none_is_refused_with_the_reason_and_the_old_one_stays(
    steps: tuple[Step, ...], why: str
) -> None:
    story = planned(DONE, MEND)
    events = plan_again(story, *steps)
    assert kinds(events)[0] == "ToolCallRefused"
    assert why in only(e.ToolCallRefused, events).failure.message
    assert plan_of(story) == Plan((DONE, MEND), "Green.")


@pytest.mark.requirement("L2-02")
def test_steps_are_known_by_their_id_or_their_words() -> None:
    story = planned()
    plan_again(story, Step("look.", "done"), Step("Mend it.", "in_progress", "2"), Step("Tell."))
    assert [(step.id, step.text) for step in plan_of(story).steps] == [
        ("1", "look."), ("2", "Mend it."), ("3", "Tell."),
    ]  # fmt: skip
    assert plan_of(story).goal == "Green."
    assert plan_of(story).revision == 2


@pytest.mark.requirement("L2-02")
def test_a_full_plan_may_leave_out_as_many_done_steps_as_it_has_new_ones() -> None:
    full = [Step(f"Do {n}.", "done" if n <= 40 else "pending", str(n)) for n in range(1, MAX_STEPS + 1)]
    more = [Step(f"Do {n}.", "pending") for n in range(51, 55)]
    story = planned(*full)
    assert "Step 5 (" in only(e.ToolCallRefused, plan_again(story, *full[5:], *more)).failure.message
    plan_again(story, *full[4:], *more)
    assert plan_of(story).steps[0].text == "Do 5."
    assert len(plan_of(story).steps) == MAX_STEPS
    assert "Step 5 (" in only(e.ToolCallRefused, plan_again(story, *full[5:], *more)).failure.message


def test_what_is_done_keeps_its_words() -> None:
    story = planned(DONE, MEND)
    plan_again(story, Step("Never mind.", "done", "1"), Step("Mend.", "in_progress", "2"))
    assert plan_of(story).steps[0] == DONE


def test_the_same_plan_again_changes_nothing() -> None:
    story = planned()
    events = plan_again(story, LOOK, MEND)
    assert kinds(events) == ["ToolCallTold", "ToolCallFinished"]
    assert plan_of(story).revision == 1


def test_of_two_plans_in_one_response_the_second_comes_after_the_first() -> None:
    story = proposing(PLAN, PLAN, call("shell"))
    assert [step.key for step in story.state.turn.calls and _admissions(story)] == ["t1.c1#0"]
    tell(story, "t1.c1", DONE, MEND)
    events = tell(story, "t1.c2", MEND)
    assert kinds(events) == ["ToolCallRefused"]
    assert [step.key for step in _admissions(story)] == ["t1.c3#0"]


def _admissions(story: Story) -> list[Any]:
    from holdfast.core.wanted import Admit, wanted

    return [action for action in wanted(story.state) if isinstance(action, Admit)]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.requirement("L2-02")
def test_failed_calls_in_a_row_are_a_failure_of_the_step_at_work() -> None:
    story = planned()
    assert "NoteAdded" not in kinds(fail(story, 2))
    note = only(e.NoteAdded, fail(story))
    assert note.about == "plan"
    assert note.text.startswith('3 calls in a row failed while step 1 of the plan ("Look.") was in progress.')
    assert "NoteAdded" not in kinds(fail(story, 2))
    assert only(e.NoteAdded, fail(story)).about == "plan"


@pytest.mark.parametrize("change", ["a call works", "another step begins", "no step is at work"])
def test_a_row_of_failures_ends(change: str) -> None:
    story = planned(MEND) if change == "no step is at work" else planned()
    fail(story, 2)
    if change == "a call works":
        fail(story, 1, "ok")
    if change == "another step begins":
        plan_again(story, DONE, Step("Mend.", "in_progress", "2"))
    assert "NoteAdded" not in kinds(fail(story))


@pytest.mark.requirement("L2-02")
def test_a_dropped_step_has_failed() -> None:
    story = planned()
    note = only(e.NoteAdded, plan_again(story, Step("Look.", "dropped", "1"), MEND))
    assert (note.about, note.text[:40]) == ("plan", 'Step 1 of the plan ("Look.") was dropped')


def test_a_step_that_is_left_out_is_dropped() -> None:
    assert only(e.NoteAdded, plan_again(planned(), MEND)).about == "plan"


def test_a_step_that_is_dropped_on_request_has_not_failed_again() -> None:
    story = planned(after_failures=1)
    assert only(e.NoteAdded, fail(story)).about == "plan"
    assert "NoteAdded" not in kinds(plan_again(story, Step("Look.", "dropped", "1"), MEND))
    assert only(e.NoteAdded, plan_again(story, Step("Mend.", "dropped", "2"))).about == "plan"


def test_nobody_asks_for_a_revision_that_came_with_the_drop() -> None:
    events = plan_again(planned(), Step("Look.", "dropped", "1"), MEND, Step("Ask around."))
    assert "NoteAdded" not in kinds(events)


@pytest.mark.requirement("L2-02")
def test_holdfast_asks_for_so_many_revisions_without_a_step_done() -> None:
    story = planned(max_replans=2, after_failures=1)
    assert [only(e.NoteAdded, fail(story)).about for _ in range(2)] == ["plan", "plan"]
    assert "NoteAdded" not in kinds(fail(story))
    plan_again(story, DONE, Step("Mend.", "in_progress", "2"))
    assert only(e.NoteAdded, fail(story)).about == "plan"


@pytest.mark.requirement("L2-02")
def test_a_plan_is_revised_only_so_often_without_a_step_done() -> None:
    story = planned(max_replans=2)
    for word in ("one", "two"):
        assert "PlanChanged" in kinds(plan_again(story, LOOK, Step(word, id="2")))
    refused = only(e.ToolCallRefused, plan_again(story, LOOK, Step("three", id="2")))
    assert "revised 2 times without a step done" in refused.failure.message
    assert "PlanChanged" in kinds(
        plan_again(story, Step("Look.", "pending", "1"), Step("two", "in_progress", "2"))
    )
    assert "PlanChanged" in kinds(plan_again(story, DONE, Step("three", id="2")))
    assert "PlanChanged" in kinds(plan_again(story, DONE, Step("four", id="2")))


def test_the_words_of_a_person_allow_new_revisions() -> None:
    story = planned(max_replans=1)
    plan_again(story, LOOK, Step("one", id="2"))
    story.command(Send("Do it another way."))
    assert "PlanChanged" in kinds(plan_again(story, LOOK, Step("two", id="2")))


# --- how long it lives ------------------------------------------------------------------------------


@pytest.mark.requirement("L2-02")
def test_a_plan_survives_its_driver_a_fork_an_import_and_another_model() -> None:
    story = planned()
    before = plan_of(story)
    story.attach()
    story.go_on(facts=opened().settings.model.facts, turns=9)
    story.given(e.SessionImported(), e.SessionForked("branch", "parent", 3))
    assert plan_of(story) == before
    assert story.state.plan.is_made


def test_a_continuation_goes_on_with_the_plan() -> None:
    story = planned(turns=1)
    story.prepared()
    story.answered(Text("So far."))
    assert story.run.status == "limit"
    story.command(Continue(opened().settings))
    assert story.state.plan.is_made


def test_another_task_begins_without_a_finished_plan() -> None:
    story = planned(DONE)
    story.prepared()
    story.answered(Text("It is done."))
    story.send("Another task.")
    assert story.state.plan == Planned()


def test_what_is_left_of_a_plan_is_kept_and_does_not_count_for_another_task() -> None:
    story = planned(DONE, MEND)
    story.prepared()
    story.answered(Text("Shall I go on?"))
    story.send("Yes.")
    assert story.state.plan == Planned(Plan((DONE, MEND), "Green."), is_earlier=True)
    assert not story.state.plan.is_made
    assert text_of(story.state.plan).startswith("What is left of the plan of an earlier task")
    story.prepared()
    story.answered(*PARTS, finish="tool_calls")
    tell(story, "t3.c1", Step("Something else."))
    assert plan_of(story) == Plan((Step("Something else.", id="1"),))
    assert story.state.plan.is_made


@pytest.mark.requirement("L2-02")
def test_the_plan_in_words_has_every_step_with_its_status() -> None:
    steps = (
        DONE,
        Step("Mend.", "in_progress", "2", "in a.py"),
        Step("Tell.", id="3"),
        Step("Ask.", "dropped", "4"),
    )
    assert text_of(Planned(Plan(steps, "Green.", 7))).split("\n")[1:] == [
        "Goal: Green.", "[x] 1. Look.", "[>] 2. Mend. (in a.py)", "[ ] 3. Tell.", "[-] 4. Ask.",
    ]  # fmt: skip
    assert text_of(Planned()) == ""


def test_calls_that_tell_something_are_no_tries() -> None:
    story = planned(after_failures=1)
    events = plan_again(story, LOOK, LOOK)
    assert kinds(events) == ["ToolCallRefused"]
    a_turn(story)
    assert story.state.plan.failures == 0


@pytest.mark.requirement("L2-02")
def test_an_id_is_on_one_line_as_the_text_of_its_step_is() -> None:
    """The view has the plan, one step a line."""
    story = planned(Step("Look.\nHere.", "in_progress", "1\n[x] 2. Delete it."))
    assert story.state.plan.plan is not None
    assert story.state.plan.plan.steps[0].id == "1 [x] 2. Delete it."
    assert len(text_of(story.state.plan).splitlines()) == 3
