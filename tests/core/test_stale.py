"""What comes too late: findings that do not know the last words, and words that no request of a run carries."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.causes import Finding
from holdfast.core.state import open_run, phase
from holdfast.protocol import events as e
from holdfast.protocol.commands import Continue, Pause, Principal, Resolve, Send, Stop
from holdfast.protocol.failures import Failure
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Reasoning, Usage
from holdfast.protocol.outcomes import Unaffordable, Unready
from holdfast.protocol.tools import Allowed, Asked, Decision
from tests.core.stories import (
    FACTS,
    Story,
    a_turn,
    acting,
    asking,
    call,
    calling,
    kinds,
    only,
    opened,
    proposing,
    request,
    settings,
    words,
)

GUEST = Principal("guest", "telegram", ("answer",))
ASK = (Decision("policy", "ask", reason="runs a command"),)


def other_model(story: Story) -> None:
    story.go_on(facts=ModelFacts("openai", "dear", input_microusd_per_mtok=10**9))


CHANGES: dict[str, Any] = {
    "words": lambda story: story.send("Wait, do not delete it!"),
    "another model": other_model,
    "another limit": lambda story: story.go_on(tokens=100),
    "stop": lambda story: story.command(Stop()),
}


@pytest.mark.requirement("H1", "H3")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_request_that_was_prepared_before_a_change_is_not_sent(change: Any) -> None:
    story = opened()
    stale = Finding(story.step("m1"), request(), story.state)
    change(story)
    assert story.when(stale) == []


@pytest.mark.requirement("H1")
def test_an_ordinary_request_is_not_sent_as_the_last_pass() -> None:
    story = opened(turns=2)
    a_turn(story)
    stale = Finding(story.step("m2"), request())
    story.go_on(turns=1)
    assert story.run.landing == "turns"
    assert story.when(stale) == []


@pytest.mark.requirement("H5", "C12")
@pytest.mark.parametrize(
    "change",
    [
        lambda story: story.go_on(autonomy="read-only"),
        lambda story: story.command(Send("Hm."), Principal("bob", "telegram", ("speak",))),
    ],
    ids=["autonomy", "rights"],
)
def test_a_call_that_was_judged_before_a_change_is_judged_again(change: Any) -> None:
    story = proposing()
    stale = Finding(story.step("t1.c1#0"), Allowed(arguments="{}"))
    change(story)
    assert story.when(stale) == []
    assert phase(story.state) == "admitting"


@pytest.mark.requirement("H5")
def test_a_finding_that_comes_twice_does_not_take_a_permission_away() -> None:
    story = proposing(call("shell", '{"command":"make"}'))
    asked = Finding(story.step("t1.c1#0"), Asked(decisions=ASK))
    story.when(asked)
    story.resolve("approve")
    assert story.when(asked) == []
    assert story.call("t1.c1").permission is not None


# --- words that come too late for the run ---------------------------------------------------------


def last_pass() -> Story:
    story = opened(turns=1)
    a_turn(story)
    story.prepared()
    story.send("And this?")
    story.answered(words())
    return story


def failed() -> Story:
    story = calling()
    story.send("And this?")
    story.failed("provider_fatal")
    return story


def stuck() -> Story:
    story = opened(repeat_note=2, repeat_stop=2)
    a_turn(story)
    story.prepared()
    story.send("And this?")
    story.answered(call())
    story.admitted("t2.c1")
    story.finished("t2.c1")
    return story


def out_of_time() -> Story:
    story = acting(wall_s=60)
    story.send("And this?")
    story.due("wall")
    story.finished("t1.c1", status="cancelled")
    return story


@pytest.mark.requirement("H1", "B4")
@pytest.mark.parametrize("make", [last_pass, failed, stuck, out_of_time])
def test_words_that_no_request_of_the_run_carried_open_the_next_run(make: Any) -> None:
    story = make()
    stopped = [record.event for record in story.records if isinstance(record.event, e.RunStopped)]
    assert [event.run for event in stopped] == [1]
    assert (story.run.number, story.run.status) == (2, "")
    assert story.records[story.run.goal_seq - 1].event.text == "And this?"
    story.prepared()
    assert only(e.RunStopped, story.answered(words())).status == "done"


def test_words_before_a_stop_are_stopped_too() -> None:
    story = calling()
    story.send("And this?")
    story.visit(Stop())
    assert open_run(story.state) is None


def test_words_that_cannot_be_carried_at_all_do_not_open_run_after_run() -> None:
    story = opened()
    story.send("And this?")
    story.found("m1", Unready(Failure("provider_unready", "No key is set.")))
    assert open_run(story.state) is None
    assert story.run.number == 1


# --- who may do what --------------------------------------------------------------------------------


@pytest.mark.requirement("C12")
def test_who_may_only_answer_changes_no_settings_and_ends_no_pause_and_narrows_the_rights() -> None:
    story = proposing(call("ask_user"))
    story.asked_for("t1.c1", question="Which?")
    story.given(e.RunPaused("cli:ann"))
    events = story.command(Send("Red.", settings(autonomy="full", cost_microusd=10**9)), GUEST)
    assert kinds(events) == ["ApprovalResolved", "ToolCallFinished"]
    assert story.run.is_paused
    assert story.state.settings == story.settings
    assert (story.state.principal.name, story.state.principal.scopes) == ("telegram:guest", ("answer",))


@pytest.mark.requirement("C12")
def test_an_answer_through_resolve_narrows_the_rights_too() -> None:
    story = proposing(call("ask_user"))
    story.asked_for("t1.c1", question="Which?")
    story.command(Resolve(story.asked().approval_id, "answer", "Red."), GUEST)
    assert story.state.principal.scopes == ("answer",)


@pytest.mark.requirement("C12")
def test_settings_of_somebody_who_may_not_configure_do_not_count() -> None:
    bob = Principal("bob", "telegram", ("speak",))
    story = opened()
    assert kinds(story.command(Continue(settings(autonomy="full")), bob)) == []
    assert kinds(story.command(Send("x", settings(autonomy="full")), bob)) == ["MessageReceived"]


@pytest.mark.requirement("C12")
def test_words_left_over_keep_the_rights_of_their_speaker() -> None:
    story = calling()
    story.command(Send("Delete it all."), Principal("bob", "telegram", ("speak",)))
    story.visit(Stop())
    story.attach()
    story.send("Hi.")
    assert story.state.principal.scopes == ("speak",)


def test_approving_a_call_says_nothing_of_its_own() -> None:
    story = asking()
    before = story.state.principal
    story.command(Resolve(story.asked().approval_id, "approve"), Principal("bob", "telegram", ("approve",)))
    assert story.state.principal == before


# --- waits ------------------------------------------------------------------------------------------


@pytest.mark.requirement("H1", "C16")
def test_a_wait_that_began_under_a_wrong_clock_ends_with_the_next_cause() -> None:
    story = calling()
    story.asleep(10**9)
    story.failed("rate_limited", retry_after_s=60)
    story.asleep(-(10**9))
    assert kinds(story.attach()) == ["Attached", "RunResumed"]
    assert phase(story.state) == "preparing"


def test_another_model_does_not_wait_for_the_one_before() -> None:
    story = calling()
    story.failed("rate_limited", retry_after_s=3_600)
    other_model(story)
    assert phase(story.state) == "preparing"
    assert story.state.models.failed_attempts == 0


def test_another_window_in_the_settings_replaces_the_learnt_one() -> None:
    story = calling()
    story.failed("context_overflow", tokens=8_192)
    story.go_on(facts=ModelFacts(FACTS.provider, FACTS.model, context_tokens=500_000))
    assert story.state.models.learnt_window_tokens == 0


def test_an_approval_deadline_holds_for_words_as_for_decisions() -> None:
    story = proposing(call("ask_user"))
    story.asked_for("t1.c1", question="Which?")
    story.asleep(10**7)
    events = story.send("Red.")
    assert [event.decision for event in events if isinstance(event, e.ApprovalResolved)] == ["expired"]
    assert "MessageReceived" in kinds(events)


@pytest.mark.requirement("C12")
def test_who_may_only_approve_answers_no_question() -> None:
    approver = Principal("bob", "telegram", ("approve",))
    story = proposing(call("ask_user"))
    story.asked_for("t1.c1", question="Which?")
    approval_id = story.asked().approval_id
    assert story.command(Resolve(approval_id, "approve", "Blue."), approver) == []
    assert story.command(Resolve(approval_id, "answer", "Blue."), approver) == []


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(("note", "rights"), [("Rather run this.", ("approve",)), ("", None)])
def test_the_note_of_a_denial_narrows_the_rights_as_other_words_do(note: str, rights: Any) -> None:
    story = asking()
    before = story.state.principal.scopes
    denial = Resolve(story.asked().approval_id, "deny", note)
    story.command(denial, Principal("bob", "telegram", ("approve",)))
    assert story.state.principal.scopes == (rights or before)


@pytest.mark.requirement("H3", "H1")
def test_a_finding_of_one_run_does_not_count_in_the_next() -> None:
    story = opened(wall_s=60)
    story.prepared()
    story.answered(call())
    story.admitted("t1.c1")
    story.finished("t1.c1")
    story.send("And this?")
    stale = Finding(story.step("m2"), Unaffordable("cost", "With $0.01 left.", 1_000, 1_000))
    story.due("wall")
    assert story.run.number == 2
    assert story.when(stale) == []


def test_a_wrong_clock_does_not_end_a_pause() -> None:
    story = calling()
    story.asleep(10**9)
    story.failed("rate_limited", retry_after_s=60)
    story.command(Pause())
    story.asleep(-(10**9))
    story.attach()
    assert story.run.is_paused


@pytest.mark.requirement("C16")
def test_the_end_of_a_pause_does_not_end_a_wait_unless_somebody_says_to_go_on() -> None:
    def paused() -> Story:
        story = calling()
        story.failed("rate_limited", retry_after_s=3_600)
        story.command(Pause())
        return story

    story = paused()
    story.send("And this?")
    assert phase(story.state) == "backing_off"
    story = paused()
    story.go_on()
    assert phase(story.state) == "preparing"


def test_a_call_that_came_again_after_a_conversation_is_no_repeat() -> None:
    story = opened(repeat_note=2, repeat_stop=2)
    for _ in range(3):
        a_turn(story)
        story.prepared()
        story.send("Go on.")
        story.answered(words())
    assert story.run.status == ""


def test_thoughts_with_half_a_letter_are_counted() -> None:
    story = calling()
    assert kinds(story.answered(Reasoning("openai", "m", "half \ud83d"), usage=Usage()))[0] == "Responded"


def test_a_change_of_other_limits_does_not_land_a_run_twice() -> None:
    story = opened(turns=1)
    a_turn(story)
    assert kinds(story.go_on(turns=1, idle_s=7.0)) == ["SettingsStored", "SettingsChanged"]
    assert story.run.landing == "turns"
