"""Decisions that wait for a person: asked once, decided once, used once."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.approvals import EXPIRED, NO_ANSWER, NOBODY_HERE, UNANSWERED
from holdfast.core.causes import Commanded
from holdfast.core.state import Permission, Started, phase
from holdfast.core.summary import summary
from holdfast.core.wanted import Admit, PrepareRequest, Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import SCOPES, Command, Pause, Principal, Resolve, Send, Stop
from holdfast.protocol.failures import Failure
from holdfast.protocol.fence import Walled
from holdfast.protocol.tools import Asked, Bound, CallResult, Decision, Refused, bound
from tests.core.stories import (
    HEAD,
    PASSED,
    SESSION,
    Story,
    asking,
    call,
    kinds,
    only,
    opened,
    proposing,
    settings,
    steps,
)

ASK = {"decisions": (Decision("policy", "ask", reason="runs a command"),)}


def questioned(**changes: object) -> Story:
    """The model asks a person which colour."""
    story = proposing(call("ask_user"), **changes)
    story.asked_for("t1.c1", question="Which?", options=("red", "blue"))
    return story


@pytest.mark.requirement("H5")
def test_asking_records_everything_that_the_permission_binds_to() -> None:
    story = proposing(call("shell", '{"command":"make"}'))
    canonical = '{"command":"make","timeout_s":120}'
    bound = Bound("shell", "builtin", canonical, "w", "w/sub", "/usr/bin/make", "runs a command")
    asked = {"arguments": canonical, "source": "builtin", "cwd": "w/sub", "binary": "/usr/bin/make"}
    events = story.asked_for("t1.c1", **asked, **ASK)
    assert events == [
        e.ApprovalRequested(
            approval_id=f"{SESSION}-1",
            call_id="t1.c1",
            name="shell",
            arguments=canonical,
            sha256=bound.sha256,
            deadline_ms=story.now_ms + 604_800_000,
            source="builtin",
            workspace="w",
            cwd="w/sub",
            binary="/usr/bin/make",
            reason="runs a command",
            decisions=ASK["decisions"],
        )
    ]
    assert phase(story.state) == "waiting"
    assert wanted(story.state) == [Wait(f"approval {SESSION}-1", story.now_ms + 604_800_000)]
    assert summary(story.state).status == "waiting"


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("name", Bound.__struct_fields__)
def test_whatever_differs_of_what_was_shown_is_something_else(name: str) -> None:
    bound = Bound("shell", "builtin", "{}", "w", "w", "/bin/make", "runs a command")
    assert msgspec.structs.replace(bound, **{name: "other"}).sha256 != bound.sha256


@pytest.mark.requirement("H5")
def test_a_yes_puts_the_call_before_the_gates_again_and_is_used_with_the_start() -> None:
    story = asking()
    assert kinds(story.resolve("approve")) == ["ApprovalResolved"]
    (action,) = steps(story.state)
    assert isinstance(action, Admit)
    bound = Bound("shell", "", '{"command":"make"}', "w", "", "", "runs a command")
    assert action.call.permission == Permission(f"{SESSION}-1", bound.sha256)
    events = story.admitted("t1.c1")
    assert kinds(events) == ["ApprovalConsumed", "ToolCallStarted"]


@pytest.mark.requirement("H5")
def test_a_yes_for_a_second_attempt_is_used_with_its_start_and_one_for_the_first_only_once() -> None:
    story = asking()
    story.resolve("approve")
    story.admitted("t1.c1", on_interrupt="rerun")
    story.attach()
    assert kinds(story.admitted("t1.c1", on_interrupt="rerun")) == ["ToolCallStarted"]
    story.attach()
    story.asked_for("t1.c1", decisions=(Decision("policy", "ask", reason="runs another command"),))
    story.resolve("approve")
    assert kinds(story.admitted("t1.c1")) == ["ApprovalConsumed", "ToolCallStarted"]


@pytest.mark.requirement("H5")
def test_all_reasons_for_asking_are_shown_and_bound() -> None:
    asks = [Decision("policy", "ask", reason=reason) for reason in ("One.", "Two.", "One.", "")]
    asked = Asked(decisions=(*asks, Decision("policy", "allow", reason="Three.")))
    assert bound("shell", "w", asked).reason == "One. Two."


@pytest.mark.requirement("H5")
def test_a_yes_that_is_not_needed_any_more_is_not_used() -> None:
    story = asking()
    story.resolve("approve")
    assert kinds(story.admitted("t1.c1", decisions=PASSED)) == ["ToolCallStarted"]


@pytest.mark.requirement("H5")
def test_arguments_that_changed_after_a_yes_are_asked_about_again() -> None:
    story = asking()
    story.resolve("approve")
    again = only(e.ApprovalRequested, story.asked_for("t1.c1", arguments='{"command":"rm"}', **ASK))
    assert again.approval_id == f"{SESSION}-2"
    assert story.call("t1.c1").permission is None
    story.resolve("approve")
    assert only(e.ApprovalConsumed, story.admitted("t1.c1")).approval_id == f"{SESSION}-2"


@pytest.mark.requirement("H5")
def test_a_policy_that_denies_by_now_rules_over_a_yes() -> None:
    story = asking()
    story.resolve("approve")
    events = story.judged("t1.c1", Refused(Failure("policy_denied", "No longer.")))
    assert kinds(events) == ["ToolCallRefused"]


@pytest.mark.requirement("H5")
def test_a_no_is_told_to_the_model_with_what_the_person_said() -> None:
    story = asking()
    events = story.resolve("deny", "Use ninja.")
    assert kinds(events) == ["ApprovalResolved", "ToolCallRefused"]
    assert only(e.ToolCallRefused, events).failure == Failure(
        "policy_denied", "A person denied this call. They said: Use ninja."
    )
    assert [type(action) for action in steps(story.state)] == [PrepareRequest]


@pytest.mark.requirement("H5")
def test_the_first_answer_counts_and_a_later_one_means_nothing() -> None:
    story = asking()
    approval = story.asked().approval_id
    story.resolve("approve")
    assert story.resolve("deny", approval=approval) == []
    assert story.resolve("approve", approval="another") == []


@pytest.mark.requirement("H5")
def test_an_approval_that_nobody_answers_in_time_expires_and_the_model_is_told_so() -> None:
    story = asking(approval_deadline_s=60)
    approval = story.asked().approval_id
    events = story.due(f"approval {approval}")
    assert only(e.ApprovalResolved, events) == e.ApprovalResolved(approval, "expired", "deadline")
    failure = only(e.ToolCallRefused, events).failure
    assert failure == Failure("policy_denied", EXPIRED)
    assert "expired" in failure.message
    assert "nobody decided" in failure.message
    assert "A person denied" not in failure.message


@pytest.mark.requirement("H5")
def test_a_question_that_nobody_answers_in_time_expires_and_the_model_is_told_so() -> None:
    story = questioned(approval_deadline_s=60)
    events = story.due(f"approval {story.asked().approval_id}")
    assert only(e.ApprovalResolved, events).decision == "expired"
    assert only(e.ToolCallRefused, events).failure == Failure("policy_denied", UNANSWERED)
    assert "denied" not in UNANSWERED


@pytest.mark.requirement("H5")
def test_an_approval_survives_crashes_and_its_deadline_is_when_the_session_is_due() -> None:
    story = asking()
    deadline = story.asked().deadline_ms
    for _ in range(3):
        story.later(86_400).attach()
    assert story.asked().deadline_ms == deadline == summary(story.state).due_ms
    assert kinds(story.resolve("approve")) == ["ApprovalResolved"]


@pytest.mark.requirement("H5", "H1")
def test_a_permission_is_used_once_also_when_the_call_is_run_again_after_a_crash() -> None:
    story = asking()
    story.resolve("approve")
    story.admitted("t1.c1", on_interrupt="rerun")
    story.attach()
    events = story.admitted("t1.c1", on_interrupt="rerun")
    assert kinds(events) == ["ToolCallStarted"]
    assert only(e.ToolCallStarted, events).attempt == 2


@pytest.mark.requirement("L2")
def test_the_intent_of_each_attempt_records_its_own_sandbox() -> None:
    story = asking()
    story.resolve("approve")
    first, second = Walled("bubblewrap", "a" * 64), Walled("bubblewrap", "b" * 64)
    assert (
        only(e.ToolCallStarted, story.admitted("t1.c1", on_interrupt="rerun", walled=first)).walled == first
    )
    story.attach()
    assert only(e.ToolCallStarted, story.admitted("t1.c1", walled=second)).walled == second
    (call,) = story.state.turn.calls
    assert isinstance(call.stage, Started)
    assert call.stage.attempt.walled == second


@pytest.mark.requirement("H5")
def test_an_open_approval_is_withdrawn_when_the_run_is_stopped() -> None:
    events = asking().command(Stop())
    assert kinds(events) == ["RunStopping", "ApprovalResolved", "ToolCallRefused", "RunStopped"]
    assert only(e.ApprovalResolved, events).decision == "withdrawn"


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(("question", "text"), [("", NOBODY_HERE), ("Which?", NO_ANSWER)])
def test_a_run_without_people_refuses_what_would_have_to_be_asked(question: str, text: str) -> None:
    events = proposing(approve_by="deny").asked_for("t1.c1", question=question, **ASK)
    assert only(e.ToolCallRefused, events).failure == Failure("policy_denied", text)


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("decision", ["answer", "approve"])
def test_an_answer_to_a_question_is_the_result_of_its_call(decision: str) -> None:
    events = questioned().resolve(decision, "red")
    assert kinds(events) == ["ApprovalResolved", "ToolCallFinished"]
    assert only(e.ApprovalResolved, events).decision == "answer"
    assert only(e.ToolCallFinished, events).result == CallResult("ok", "red", trust="user", origin="user")


def test_words_answer_an_open_question_and_are_not_said_twice() -> None:
    events = questioned().send("blue")
    assert kinds(events) == ["ApprovalResolved", "ToolCallFinished"]
    assert only(e.ToolCallFinished, events).result.text == "blue"


def test_words_of_somebody_who_may_not_answer_join_the_run_and_leave_the_question_open() -> None:
    story = questioned()
    assert story.command(Send("blue"), Principal("bob", "chat", ("speak",))) == [
        e.MessageReceived("blue", "chat:bob", ("speak",), head=HEAD)
    ]
    assert story.asked().is_question


def test_an_answer_that_came_too_late_is_no_message_of_somebody_who_may_only_answer() -> None:
    story = questioned()
    story.resolve("answer", "red")
    assert story.command(Send("blue"), Principal("bob", "chat", ("answer",))) == []


def test_words_do_not_answer_an_approval_and_wait_for_it() -> None:
    story = asking()
    assert kinds(story.send("Hurry.")) == ["MessageReceived"]
    assert phase(story.state) == "waiting"
    assert kinds(story.resolve("deny")) == ["ApprovalResolved", "ToolCallRefused"]


def test_an_approval_cannot_be_answered_with_words_by_mistake() -> None:
    assert asking().resolve("answer", "yes") == []


def test_an_answer_without_words_says_so() -> None:
    assert only(e.ToolCallFinished, questioned().resolve("answer")).result.text == "(no words)"


@pytest.mark.requirement("B4", "H5")
def test_an_approval_can_be_answered_during_a_pause_and_the_call_starts_after_it() -> None:
    story = asking()
    story.command(Pause())
    assert wanted(story.state) == [], "the deadline does not run"
    story.resolve("approve")
    assert wanted(story.state) == []
    story.go_on()
    assert [type(action) for action in steps(story.state)] == [Admit]


@pytest.mark.requirement("H5")
def test_a_visitors_answer_to_a_question_starts_nothing() -> None:
    story = questioned()
    approval = story.asked().approval_id
    assert kinds(story.visit(Resolve(approval, "answer", "red"))) == ["ApprovalResolved", "ToolCallFinished"]
    assert story.visit(Send("more", settings())) == [e.MessageReceived("more", "cli:bob", SCOPES, head=HEAD)]


def test_reads_go_on_beside_an_open_approval_and_what_follows_it_waits() -> None:
    story = opened()
    story.prepared()
    story.answered(call("read_file"), call("grep"), call("shell"), call("read_file"))
    story.asked_for("t1.c1", **ASK)
    assert [action.key for action in wanted(story.state) if isinstance(action, Admit)] == ["t1.c2#0"]
    story.admitted("t1.c2")
    story.finished("t1.c2")
    assert kinds(story.admitted("t1.c3")) == ["ToolCallQueued"]
    assert phase(story.state) == "waiting"


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    ("after_s", "told"),
    [(59.999, ("approve", "cli:ann")), (60, ("expired", "deadline")), (61, ("expired", "deadline"))],
)
def test_a_yes_that_comes_at_the_deadline_and_before_its_timer_is_too_late(
    after_s: float, told: tuple[str, str]
) -> None:
    story = asking(approval_deadline_s=60)
    story.later(after_s)
    resolved = only(e.ApprovalResolved, story.resolve("approve"))
    assert (resolved.decision, resolved.by) == told


@pytest.mark.requirement("H5", "C12")
def test_who_may_only_answer_resumes_nothing_and_changes_no_settings_where_nothing_is_asked() -> None:
    story = proposing()
    story.command(Pause())
    guest = Principal("bob", "chat", ("answer",))
    command = Command("c", SESSION, guest, Send("Go on.", settings(turns=99)))
    assert story.when(Commanded(command, story.epoch)) == []
    assert phase(story.state) == "paused"
