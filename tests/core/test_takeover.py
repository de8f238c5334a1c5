"""What a driver or a visitor tells the model of a driver before that may still be alive."""

from __future__ import annotations

import pytest

from holdfast.core.causes import Attach, Commanded
from holdfast.protocol import events as e
from holdfast.protocol.commands import Command, Stop, owner
from holdfast.protocol.tools import Effect, OnInterrupt
from tests.core.stories import SESSION, Story, call, kinds, only, proposing


def interrupted(effect: Effect, on_interrupt: OnInterrupt) -> Story:
    """A call is at work, and the next epoch begins."""
    story = proposing(call())
    story.admitted("t1.c1", effect=effect, on_interrupt=on_interrupt)
    story.epoch, story.awake_ms = story.epoch + 1, 0
    return story


@pytest.mark.requirement("H1", "H5")
@pytest.mark.parametrize("on_interrupt", ["rerun", "probe", "unknown"])
def test_who_takes_over_from_a_driver_that_may_still_live_warns_of_what_it_began(
    on_interrupt: OnInterrupt,
) -> None:
    story = interrupted("network", on_interrupt)
    events = story.when(Attach(story.epoch, "host:2", is_contested=True))
    assert kinds(events)[:2] == ["Attached", "NoteAdded"]
    note = only(e.NoteAdded, events)
    assert note.about == "takeover"
    assert "may still be alive" in note.text
    assert "shell (t1.c1)" in note.text


@pytest.mark.requirement("H1", "H5")
def test_a_visitor_who_takes_over_from_a_driver_that_may_still_live_warns_too() -> None:
    story = interrupted("exec", "unknown")
    stop = Command("c", SESSION, owner("bob", "cli"), Stop())
    events = story.when(Commanded(stop, story.epoch, is_contested=True))
    assert kinds(events) == ["NoteAdded", "RunStopping", "ToolCallAbandoned", "RunStopped"]


@pytest.mark.parametrize(("effect", "is_contested"), [("read", True), ("network", False)])
def test_nobody_is_warned_of_a_driver_that_is_gone_or_that_only_read(
    effect: Effect, is_contested: bool
) -> None:
    story = interrupted(effect, "rerun")
    events = story.when(Attach(story.epoch, "host:2", is_contested))
    assert not [event for event in events if isinstance(event, e.NoteAdded)]
