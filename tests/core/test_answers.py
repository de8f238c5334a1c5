"""Calibrated answers: the call that ends a run, the one doubt, and plain words instead of the call."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.answers import ANSWER, Answer
from holdfast.protocol.messages import Finish, Text, Verdict
from holdfast.protocol.outcomes import Unaffordable
from holdfast.protocol.plan import UPDATE_PLAN
from holdfast.protocol.settings import Output, name_of
from holdfast.protocol.tools import Told
from tests.core.stories import PASSED, Story, a_turn, call, calling, kinds, only, proposing

SURE = Answer("42.", 0.9, ("I counted.",), ("Twice.",))
UNSURE = Answer("41?", 0.3)
OUTPUT = Output('{"type":"integer"}')
WRONG, RIGHT = Verdict(name_of(OUTPUT), "it must be an integer"), Verdict(name_of(OUTPUT))


def tell(story: Story, answer: Answer, verdict: Verdict | None = None, place: int = 1) -> list[e.Event]:
    """The gates let the call pass, and this is what it says."""
    told = Told(answer, PASSED, "{}", verdict)
    return story.judged(f"t{story.state.turn.number}.c{place}", told)


def answering(answer: Answer, verdict: Verdict | None = None, **changes: Any) -> tuple[Story, list[e.Event]]:
    """The first response is this answer."""
    story = proposing(call(ANSWER), **{"is_calibrated": True} | changes)
    return story, tell(story, answer, verdict)


def answer_again(story: Story, answer: Answer, verdict: Verdict | None = None) -> list[e.Event]:
    story.prepared()
    story.answered(call(ANSWER), finish="tool_calls")
    return tell(story, answer, verdict)


@pytest.mark.requirement("L2-03")
def test_an_answer_ends_the_run_in_the_commit_that_judges_it() -> None:
    story, events = answering(SURE)
    assert kinds(events) == ["ToolCallTold", "AnswerGiven", "ToolCallFinished", "RunStopped"]
    assert only(e.AnswerGiven, events) == e.AnswerGiven("t1.c1", SURE)
    assert (story.run.status, story.run.reason) == ("done", "answer")
    assert story.records[story.run.answer_seq - 1].event == only(e.AnswerGiven, events)


@pytest.mark.requirement("L2-03")
@pytest.mark.parametrize("second", [SURE, UNSURE], ids=["sure", "still unsure"])
def test_a_doubtful_answer_is_doubted_once(second: Answer) -> None:
    story, events = answering(UNSURE)
    assert kinds(events) == ["ToolCallTold", "AnswerGiven", "ToolCallFinished"]
    assert only(e.AnswerGiven, events).is_doubted
    assert "0.3 is below 0.5" in only(e.ToolCallFinished, events).result.text
    assert not story.run.status
    a_turn(story)  # it verifies with a tool
    assert only(e.RunStopped, answer_again(story, second)).status == "done"


@pytest.mark.parametrize(("confidence", "is_doubted"), [(0.69, True), (0.7, False)])
def test_the_threshold_itself_is_enough(confidence: float, is_doubted: bool) -> None:
    _, events = answering(Answer("42.", confidence), answer_threshold=0.7)
    assert only(e.AnswerGiven, events).is_doubted is is_doubted


@pytest.mark.requirement("L2-03")
def test_without_a_turn_left_the_first_answer_counts() -> None:
    story, _ = answering(UNSURE, turns=1)
    assert (story.run.status, story.run.reason) == ("done", "answer")


@pytest.mark.requirement("L2-03")
def test_plain_words_are_asked_once_for_the_call() -> None:
    story = calling(is_calibrated=True)
    assert only(e.NoteAdded, story.answered(Text("42."))).about == "answer"
    assert not story.run.status
    assert only(e.RunStopped, answer_again(story, SURE)).status == "done"


@pytest.mark.requirement("L2-03")
def test_plain_words_again_are_the_answer() -> None:
    story = calling(is_calibrated=True)
    story.answered(Text("42."))
    story.prepared()
    assert kinds(story.answered(Text("42, I said."))) == ["Responded", "RunStopped"]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_nobody_asks_for_a_call_that_cannot_come(finish: Finish) -> None:
    story = calling(is_calibrated=True, turns=1)
    story.answered(Text("42."), finish=finish)
    assert story.run.status == "done"


def test_plain_words_are_the_answer_if_no_money_is_left_to_ask_for_the_call() -> None:
    story = calling(is_calibrated=True)
    story.answered(Text("42."))
    story.found("m2", Unaffordable("cost", "Too much.", 900, 100))
    assert (story.run.status, story.run.reason) == ("done", "answer")


def test_a_run_without_calibration_ends_with_plain_words() -> None:
    story = calling()
    story.answered(Text("42."))
    assert story.run.status == "done"


@pytest.mark.requirement("L2-03")
def test_an_answer_beside_another_call_is_refused_because_its_result_is_not_known() -> None:
    story = proposing(call(ANSWER), call("shell"), is_calibrated=True)
    assert "comes alone" in only(e.ToolCallRefused, tell(story, SURE)).failure.message
    story = proposing(call(UPDATE_PLAN), call(ANSWER), is_calibrated=True)
    story.judged("t1.c1", Told(_plan(), PASSED))
    assert only(e.RunStopped, tell(story, SURE, place=2)).status == "done"


def _plan() -> Any:
    from holdfast.protocol.plan import PlanUpdate, Step

    return PlanUpdate((Step("Count.", "done"),))


def test_an_empty_answer_is_refused() -> None:
    _, events = answering(Answer(" \n", 1.0))
    assert kinds(events) == ["ToolCallRefused"]


@pytest.mark.requirement("L2-03", "S1")
def test_the_text_of_an_answer_has_to_match_the_schema() -> None:
    story, events = answering(UNSURE, WRONG, output=OUTPUT)
    assert not only(e.AnswerGiven, events).is_doubted
    assert "Call answer again" in only(e.NoteAdded, events).text
    assert only(e.AnswerGiven, answer_again(story, UNSURE, RIGHT)).is_doubted
    assert only(e.RunStopped, answer_again(story, UNSURE, RIGHT)).status == "done"


@pytest.mark.requirement("L2-03", "S1")
def test_answers_that_never_match_fail_the_run() -> None:
    story, _ = answering(SURE, WRONG, output=OUTPUT)
    answer_again(story, SURE, WRONG)
    ended = only(e.RunStopped, answer_again(story, SURE, WRONG))
    assert (ended.status, ended.reason) == ("failed", "output_schema")


@pytest.mark.requirement("L2-03", "S1")
def test_plain_words_that_do_not_match_are_first_asked_for_the_call_and_then_repaired() -> None:
    story = calling(is_calibrated=True, output=OUTPUT)
    assert only(e.NoteAdded, story.answered(Text("x"), verdict=WRONG)).about == "answer"
    story.prepared()
    assert only(e.NoteAdded, story.answered(Text("x"), verdict=WRONG)).about == "output"


def test_words_that_arrived_meanwhile_are_answered_too() -> None:
    story = proposing(call(ANSWER), is_calibrated=True)
    story.send("And 43?")
    assert "RunStopped" not in kinds(tell(story, SURE))
    assert only(e.RunStopped, answer_again(story, SURE)).status == "done"


def test_an_answer_in_the_last_pass_does_not_count() -> None:
    story = proposing(call("shell"), is_calibrated=True, turns=1)
    story.admitted("t1.c1")
    story.finished("t1.c1")
    story.prepared()
    assert "ToolCallRefused" in kinds(story.answered(call(ANSWER), finish="tool_calls"))
    assert story.run.status == "limit"
