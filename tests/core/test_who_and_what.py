"""On whose behalf a run works, and where all comes from that a session holds: what gates judge a call by."""

from __future__ import annotations

import pytest

from holdfast.context.transcript import Transcript
from holdfast.protocol import events as e
from holdfast.protocol.commands import NOBODY, Continue, Principal, Send
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import Attachment, Message
from holdfast.protocol.tools import CallResult, Refused
from holdfast.protocol.trust import Label, Trust
from tests.core.stories import ANN, Story, acting, call, calling, opened, proposing

BOB = Principal("bob", "telegram", ("speak", "answer"))


def spoken(story: Story, who: Principal) -> Story:
    story.command(Send("And this."), who)
    return story


@pytest.mark.requirement("C12")
def test_a_run_works_for_whoever_spoke_last_with_the_rights_that_all_have_who_spoke() -> None:
    story = opened()
    assert (story.state.principal.name, story.state.principal.scopes) == (ANN.label, ANN.scopes)
    spoken(story, BOB)
    assert (story.state.principal.name, story.state.principal.scopes) == (BOB.label, BOB.scopes)
    spoken(story, ANN)
    assert (story.state.principal.name, story.state.principal.scopes) == (ANN.label, BOB.scopes)


@pytest.mark.requirement("C12")
def test_a_new_run_begins_with_the_rights_of_whoever_opens_it() -> None:
    story = spoken(opened(), BOB)
    story.prepared()
    story.answered()
    for _ in range(2):
        story.prepared()
        story.answered()
    assert story.run.status
    story.send()
    assert story.state.principal.scopes == ANN.scopes
    assert Story().state.principal == NOBODY


@pytest.mark.requirement("C12")
def test_a_continuation_has_the_rights_that_both_have_who_spoke_and_who_continued() -> None:
    story = calling()
    story.failed("provider_fatal")
    story.command(Continue(), BOB)
    assert story.run.number == 2
    assert (story.state.principal.name, story.state.principal.scopes) == (BOB.label, BOB.scopes)
    story.prepared()
    story.failed("provider_fatal")
    story.command(Continue(), ANN)
    assert (story.state.principal.name, story.state.principal.scopes) == (ANN.label, BOB.scopes)


@pytest.mark.requirement("C14")
def test_a_session_knows_where_all_comes_from_that_it_ever_held_each_once() -> None:
    story = opened()
    for trust in ("data", "untrusted", "data"):
        story.prepared()
        story.answered(call("read_file"), call("shell"))
        for call_id, kind in (("c1", trust), ("c2", "data")):
            name = f"t{story.state.turn.number}.{call_id}"
            story.admitted(name)
            story.given(e.ToolCallFinished(name, CallResult("ok", "x", trust=kind)))  # type: ignore[arg-type]
    expected = {
        Label("user", "user"), Label("read_file", "data"), Label("read_file", "untrusted"), Label("shell", "data"),
    }  # fmt: skip
    assert set(story.state.labels) == expected
    assert len(story.state.labels) == len(expected)


@pytest.mark.requirement("C14")
def test_what_comes_with_a_message_is_labelled_with_its_own_trust() -> None:
    story = opened()
    files = [Attachment(origin, "a", "text/plain", 1, origin) for origin in ("file", "stdin")]
    story.command(Send("Look.", story.settings, tuple(files)))
    assert set(story.state.labels) == {Label("user", "user"), Label("file", "data"), Label("stdin", "data")}


def said(story: Story) -> list[Message]:
    """The conversation so far."""
    transcript = Transcript()
    return [each.message for record in story.records for each in transcript.add(record)]


@pytest.mark.requirement("C14")
@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("data", "data", "data"),
        ("data", "untrusted", "untrusted"),
        ("untrusted", "user", "untrusted"),
        ("user", "data", "data"),
    ],
)
def test_the_results_of_a_turn_are_as_trusted_as_the_least_of_them(
    first: Trust, second: Trust, whole: Trust
) -> None:
    story = proposing(call("one"), call("two"))
    story.admitted("t1.c1")
    story.given(e.ToolCallFinished("t1.c1", CallResult("ok", "x", trust=first)))
    story.given(e.ToolCallFinished("t1.c2", CallResult("ok", "y", trust=second)))
    assert [(message.role, message.trust) for message in said(story)] == [
        ("user", "user"), ("assistant", "assistant"), ("tool", whole),
    ]  # fmt: skip


@pytest.mark.requirement("C14")
def test_what_the_runtime_says_of_a_call_is_no_more_than_data_and_its_own_notes_are_the_users() -> None:
    story = proposing(call("one"))
    story.judged("t1.c1", Refused(Failure("policy_denied", "No.")))
    story.given(e.NoteAdded("repeat", "Again?"))
    assert [message.trust for message in said(story)] == ["user", "assistant", "data", "user"]


def test_a_result_that_says_nothing_of_itself_is_not_trusted() -> None:
    assert CallResult("ok", "x").trust == "untrusted"
    assert Message("tool", ()).trust == "untrusted"
    story = acting()
    story.finished("t1.c1")
    assert story.state.labels[-1] == Label("shell", "untrusted")
    assert calling().state.labels == (Label("user", "user"),)
