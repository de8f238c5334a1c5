"""What the state knows of processes in the background, and what a note says of those that are gone."""

from __future__ import annotations

import pytest

from holdfast.core.causes import Attach, Outcome
from holdfast.protocol import events as e
from holdfast.protocol.messages import Text
from holdfast.protocol.tools import BackgroundProcess, CallResult
from tests.core.stories import SESSION, Story, call, kinds, only, proposing

SERVER = BackgroundProcess("t1.c1", "make serve")


def serving(*more: BackgroundProcess) -> Story:
    """A run whose calls told of these processes."""
    told = (SERVER, *more)
    story = proposing(*[call() for _ in told])
    for number, each in enumerate(told, start=1):
        story.admitted(f"t1.c{number}")
        story.when(Outcome(f"t1.c{number}#1", CallResult("ok", "up", background=each)))
    return story


def attached(story: Story, *still: str) -> list[e.Event]:
    story.epoch, story.awake_ms = story.epoch + 1, 0
    return story.when(Attach(story.epoch, "host:2", background=still))


@pytest.mark.requirement("H1", "C8")
def test_a_driver_that_finds_a_process_gone_tells_the_model() -> None:
    story = serving(BackgroundProcess("t1.c2", "make watch"))
    assert [each.id for each in story.state.background] == ["t1.c1", "t1.c2"]
    events = attached(story, "t1.c2")
    note = only(e.NoteAdded, events)
    assert note.about == "processes"
    assert "t1.c1 (`make serve`)" in note.text
    assert "t1.c2" not in note.text
    assert [each.id for each in story.state.background] == ["t1.c2"]
    assert not [event for event in attached(story, "t1.c2") if isinstance(event, e.NoteAdded)]


def test_a_process_that_still_runs_needs_no_note() -> None:
    events = attached(serving(), "t1.c1")
    assert only(e.Attached, events).background == ("t1.c1",)
    assert "NoteAdded" not in kinds(events)


def test_a_process_that_somebody_has_seen_end_is_not_gone() -> None:
    story = serving(BackgroundProcess("t1.c1", "make serve", is_over=True))
    assert story.state.background == ()
    assert "NoteAdded" not in kinds(attached(story))


def test_when_a_run_ends_so_do_its_processes() -> None:
    story = serving()
    story.prepared()
    story.answered(Text("Done."))
    assert story.run.status == "done"
    assert story.state.background == ()


def test_a_branch_is_not_told_that_the_processes_of_its_parent_have_ended() -> None:
    story = serving()
    story.given(e.SessionForked("branch", SESSION, story.state.seq))
    story.epoch = 0
    assert "may still run there: t1.c1 (`make serve`)" in only(e.NoteAdded, attached(story)).text
    assert story.state.background == ()
