"""When somebody is notified, once for each event."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.causes import Outcome
from holdfast.core.draft import Draft
from holdfast.core.notifying import add_due
from holdfast.core.wanted import Notify, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Stop
from holdfast.protocol.notify import NOTIFY_ABOUT, Notified
from tests.core.stories import SESSION, Story, asking, call, calling, kinds, only, proposing, words

ALL: dict[str, Any] = {"notify_on": NOTIFY_ABOUT}


def due(events: list[e.Event]) -> e.NotificationDue:
    return only(e.NotificationDue, events)


def notifying(story: Story) -> list[str]:
    return [action.key for action in wanted(story.state) if isinstance(action, Notify)]


@pytest.mark.requirement("H5")
def test_a_session_that_waits_notifies_with_the_command_that_decides() -> None:
    story = proposing(call("shell", "{}"), **ALL)
    told = due(story.asked_for("t1.c1"))
    assert told == e.NotificationDue(
        "n1",
        "waiting",
        "waiting",
        "approval",
        "This waits for you: shell.",
        (f"{SESSION}-1",),
        (f"holdfast approve {SESSION}-1",),
    )
    assert notifying(story) == ["notify n1"]


@pytest.mark.requirement("H5")
def test_a_question_is_answered_with_a_note() -> None:
    story = proposing(call("ask_user"), **ALL)
    told = due(story.asked_for("t1.c1", question="Which?"))
    assert (told.reason, told.next) == ("question", (f'holdfast approve {SESSION}-1 --note "TEXT"',))


@pytest.mark.requirement("H5")
def test_of_two_approvals_together_one_notification_tells_and_none_when_one_is_decided() -> None:
    story = proposing(call("read_file"), call("grep"), **ALL)
    assert not [each for each in story.asked_for("t1.c1") if isinstance(each, e.NotificationDue)]
    told = due(story.asked_for("t1.c2"))
    assert told.approvals == (f"{SESSION}-1", f"{SESSION}-2")
    assert kinds(story.resolve("deny", approval=f"{SESSION}-1"))[0] == "ApprovalResolved"
    assert story.state.notices == 1


@pytest.mark.requirement("H5")
def test_each_end_that_is_asked_for_notifies_in_the_commit_of_the_end() -> None:
    done = calling(**ALL)
    told = due(done.answered(words()))
    assert (told.about, told.next) == ("done", (f"holdfast show {SESSION}",))
    failed = calling(**ALL)
    told = due(failed.failed("provider_fatal"))
    assert (told.about, told.next) == ("failed", (f"holdfast resume {SESSION}",))
    stopped = calling(**ALL)
    stopped.command(Stop())
    assert stopped.state.notices == 0


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    ("status", "about", "does"),
    [
        ("limit", "limit", "resume"),
        ("stuck", "failed", "resume"),
        ("failed", "failed", "resume"),
        ("done", "done", "show"),
    ],
)
def test_each_status_of_an_end_is_notified_of_as_one_of_the_kinds(status: Any, about: str, does: str) -> None:
    story = calling(**ALL)
    draft = Draft(story.state, story.now_ms, story.now_ms, story.state.epoch, e.Trigger("command", "x"))
    draft.add(e.RunStopped(story.run.number, status, "why"))
    add_due(draft)
    told = due([record.event for record in draft.records])
    assert (told.about, told.status, told.next) == (about, status, (f"holdfast {does} {SESSION}",))


@pytest.mark.requirement("H5")
def test_only_what_is_asked_for_is_notified_of() -> None:
    assert asking().state.notices == 0
    assert asking(notify_on=("done",)).state.notices == 0


@pytest.mark.requirement("H5")
def test_a_notification_stays_wanted_until_it_is_over_also_for_the_next_driver() -> None:
    story = calling(**ALL)
    story.answered(words())
    story.attach()
    assert notifying(story) == ["notify n1"]
    ended = Outcome("notify n1", Notified("sent"))
    assert story.when(ended) == [e.NotificationEnded("n1", Notified("sent"))]
    assert (notifying(story), story.when(ended)) == ([], [])


@pytest.mark.requirement("H5")
def test_neither_a_branch_nor_an_imported_session_notifies_of_what_it_comes_from() -> None:
    for event in (e.SessionForked("b", SESSION, 3), e.SessionImported()):
        assert notifying(asking(**ALL).given(event)) == []
