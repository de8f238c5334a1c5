"""Calls that wait for a person while the model works on something else (`approve_by = "defer"`)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import deferred
from holdfast.core.plan import is_waiting, text_of
from holdfast.core.state import open_run, phase
from holdfast.core.summary import status
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Resolve, Stop
from holdfast.protocol.plan import Plan, Step
from holdfast.protocol.tools import Allowed, Decision, Offer
from holdfast.protocol.trust import CLEAN
from tests.core.stories import SESSION, Story, call, kinds, only, proposing, words

COMMAND = call("shell", '{"command":"make"}')
ASK = (Decision("policy", "ask", "autonomy:supervised", "runs a command"),)
ID = f"{SESSION}-1"


def put_aside(**changes: Any) -> Story:
    """A call was put aside, and its turn is over."""
    story = proposing(COMMAND, approve_by="defer", **changes)
    story.asked_for("t1.c1", decisions=ASK, offer=Offer("shell(make)"))
    return story


def at_rest(**changes: Any) -> Story:
    """The model has nothing else to do."""
    story = put_aside(**changes)
    story.prepared()
    story.answered(words("I wait."))
    return story


def resolve(story: Story, decision: Any = "approve", note: str = "", **more: Any) -> list[e.Event]:
    return story.command(Resolve(ID, decision, note, **more))


def made_again(story: Story, call_id: str) -> list[e.Event]:
    """The gates find that the call is the one that was approved."""
    (found,) = story.state.deferred
    decisions = (*ASK, deferred.permission_of(found))
    return story.judged(call_id, Allowed(decisions, COMMAND.arguments))


@pytest.mark.requirement("H5")
def test_a_deferred_call_is_asked_about_and_answered_at_once() -> None:
    story = proposing(COMMAND, approve_by="defer")
    events = story.asked_for("t1.c1", decisions=ASK)
    assert kinds(events) == ["ApprovalRequested", "ToolCallFinished"]
    assert only(e.ApprovalRequested, events).is_deferred
    told = only(e.ToolCallFinished, events).result
    assert told.text.startswith("Asked; work on something else.")
    assert (told.status, told.trust) == ("deferred", "data")
    assert phase(story.state) == "preparing"


@pytest.mark.requirement("H4", "H5")
def test_a_deferred_call_has_read_nothing_so_it_sets_no_flag() -> None:
    assert put_aside().state.taint == CLEAN


@pytest.mark.requirement("H5")
def test_the_run_rests_only_when_the_model_has_nothing_else_to_do() -> None:
    story = at_rest()
    assert open_run(story.state) is not None
    assert (phase(story.state), status(story.state)) == ("waiting", "waiting")
    (deadline,) = wanted(story.state)
    assert isinstance(deadline, Wait)
    assert deadline.key == f"approval {ID}"


@pytest.mark.requirement("H5")
def test_an_approval_comes_as_a_message_and_covers_the_same_call_once() -> None:
    story = at_rest()
    assert kinds(resolve(story)) == ["ApprovalResolved", "MessageReceived"]
    assert phase(story.state) == "preparing"
    story.prepared()
    story.answered(COMMAND, finish="tool_calls")
    events = made_again(story, "t3.c1")
    assert kinds(events) == ["ApprovalConsumed", "ToolCallStarted"]
    assert only(e.ApprovalConsumed, events).approval_id == ID
    assert story.state.deferred == ()
    permission = story.call("t3.c1").permission
    assert permission is not None
    assert (permission.approval_id, permission.is_consumed) == (ID, True)
    story.finished("t3.c1")
    story.prepared()
    assert kinds(story.answered(words()))[-1] == "RunStopped"


@pytest.mark.requirement("H5", "C12")
def test_a_call_does_not_start_with_an_approval_that_nobody_gave() -> None:
    story = put_aside()
    story.prepared()
    story.answered(COMMAND, finish="tool_calls")
    assert kinds(made_again(story, "t2.c1")) == ["ToolCallRefused"]  # a person is asked already
    story = at_rest()
    (found,) = story.state.deferred
    resolve(story)
    story.command(Stop())
    story.send()
    story.prepared()
    story.answered(COMMAND, finish="tool_calls")
    gone = Allowed((*ASK, deferred.permission_of(found)), COMMAND.arguments)
    assert kinds(story.judged("t3.c1", gone)) == ["ApprovalRequested", "ToolCallFinished"]


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_what_a_person_says_with_the_decision_is_in_the_message(decision: str) -> None:
    story = at_rest()
    message = only(e.MessageReceived, resolve(story, decision, "not now"))
    assert message.text.endswith("They said: not now")
    assert message.sender == "cli:ann"
    assert "make" not in message.text.replace("Make", ""), "words of the model are not those of a person"


@pytest.mark.requirement("H5")
def test_the_same_call_is_not_asked_about_twice() -> None:
    story = put_aside()
    story.prepared()
    story.answered(COMMAND, finish="tool_calls")
    events = story.asked_for("t2.c1", decisions=ASK, offer=Offer("shell(make)"))
    assert kinds(events)[0] == "ToolCallRefused"
    assert "before (approval 1)" in only(e.ToolCallRefused, events).failure.message
    assert story.state.approvals == 1


@pytest.mark.requirement("H5")
def test_when_nobody_decides_in_time_a_note_tells_the_model() -> None:
    story = at_rest()
    events = story.due(f"approval {ID}")
    assert kinds(events) == ["ApprovalResolved", "NoteAdded"]
    assert phase(story.state) == "preparing"
    story.prepared()
    assert kinds(story.answered(words()))[-1] == "RunStopped"


@pytest.mark.requirement("H5")
def test_a_run_that_ends_withdraws_what_nobody_decided_and_drops_what_nobody_used() -> None:
    for decisions in ((), ("approve",)):
        story = at_rest()
        for decision in decisions:
            resolve(story, decision)
        events = story.command(Stop())
        withdrawn = [each for each in events if isinstance(each, e.ApprovalResolved)]
        assert [each.decision for each in withdrawn] == ([] if decisions else ["withdrawn"])
        assert story.state.deferred == ()


@pytest.mark.requirement("H5")
def test_an_interrupted_call_is_never_put_aside() -> None:
    story = proposing(COMMAND, approve_by="defer")
    story.admitted("t1.c1", on_interrupt="rerun")
    story.attach()
    asked = only(e.ApprovalRequested, story.asked_for("t1.c1", decisions=ASK))
    assert not asked.is_deferred
    assert phase(story.state) == "waiting"


@pytest.mark.requirement("H5", "S6")
def test_a_decision_that_makes_a_grant_leaves_no_approval_behind() -> None:
    story = at_rest()
    assert kinds(resolve(story, makes_grant=True)) == ["ApprovalResolved", "GrantMade", "MessageReceived"]
    assert story.state.deferred == ()
    assert len(story.state.grants) == 1


@pytest.mark.requirement("H5")
def test_the_step_at_work_waits_with_the_call_until_the_decision() -> None:
    story = proposing(COMMAND, approve_by="defer")
    plan = Plan((Step("Build.", "in_progress", "1"), Step("Tell.", "pending", "2")))
    story.given(e.PlanChanged("t0.c1", plan))
    asked = only(e.ApprovalRequested, story.asked_for("t1.c1", decisions=ASK))
    assert asked.step == "1"
    assert [is_waiting(story.state.plan, step) for step in plan.steps] == [True, False]
    assert "1. Build. (waits for a person)" in text_of(story.state.plan)
    resolve(story)
    assert "waits" not in text_of(story.state.plan)


@pytest.mark.requirement("H5")
def test_neither_a_branch_nor_an_imported_session_may_use_what_was_approved() -> None:
    for event in (e.SessionForked("b", SESSION, 3), e.SessionImported()):
        story = at_rest()
        resolve(story)
        assert not any(each.is_approved for each in story.given(event).state.deferred)


@pytest.mark.requirement("H5")
def test_in_a_branch_no_step_waits_for_a_decision_that_only_the_parent_hears() -> None:
    story = proposing(COMMAND, approve_by="defer")
    story.given(e.PlanChanged("t0.c1", Plan((Step("Build.", "in_progress", "1"),))))
    story.asked_for("t1.c1", decisions=ASK)
    story.given(e.SessionForked("b", SESSION, 3))
    assert "waits" not in text_of(story.state.plan)


@pytest.mark.requirement("H5")
def test_people_are_asked_about_a_bounded_number_of_calls_at_once() -> None:
    most = deferred.MOST_WAITING
    assert most == 32
    commands = [call("shell", f'{{"command":"make {number}"}}') for number in range(most + 1)]
    story = proposing(*commands, approve_by="defer")
    asked = [kinds(story.asked_for(f"t1.c{number}", decisions=ASK)) for number in range(1, most + 2)]
    assert asked[most - 1 :] == [["ApprovalRequested", "ToolCallFinished"], ["ToolCallRefused"]]
    resolve(story)
    story.prepared()
    story.answered(commands[-1], finish="tool_calls")
    assert kinds(story.asked_for("t2.c1", decisions=ASK))[0] == "ApprovalRequested"
