"""When a summary is asked for, which answers count, and what becomes of one that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.causes import Found, Outcome
from holdfast.core.side_calls import left_microusd
from holdfast.core.wanted import PrepareSide, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Compact, Stop
from holdfast.protocol.compaction import ContextCompacted, ViewPart
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import Finish, ModelReply, Part, Usage
from holdfast.protocol.outcomes import Unaffordable, Unready
from tests.core.stories import Story, a_turn, call, kinds, only, opened, words

pytestmark = pytest.mark.requirement("C9", "L6")
HOUR_S = 3_600
NO_KEY = Unready(Failure("provider_unready", "There is no key."))
TOO_DEAR = Unaffordable("cost", "It costs too much.", 1_000, 1_000)


def turn(story: Story) -> None:
    """A turn that brings something new."""
    a_turn(story, result=f"Look {story.state.seq}.")


def due(**changes: Any) -> Story:
    """After two turns, a summary is to be asked for."""
    story = opened(**{"reflect_turns": 1_000, "compact_turns": 2, "stall_turns": 1_000} | changes)
    turn(story)
    turn(story)
    return story


def asked(**changes: Any) -> Story:
    """A summary was asked for, and the next model call is open."""
    story = due(**changes)
    story.side_prepared()
    story.prepared()
    return story


def is_wanted(story: Story) -> bool:
    return any(isinstance(each, PrepareSide) for each in wanted(story.state))


def view(story: Story) -> ContextCompacted:
    """A compaction of what the session has."""
    return ContextCompacted(
        "full", ((3, 5),), story.state.seq, (ViewPart("head", "cut"),), "data", 9, 2, 900, 200
    )


def answered(story: Story, *parts: Part, finish: Finish = "stop", is_masked: bool = False) -> list[e.Event]:
    reply = ModelReply(parts, Usage(100, 10), finish, is_masked=is_masked)
    return story.when(Outcome(story.side_call.key, reply))


BAD: dict[str, dict[str, Any]] = {
    "it calls tools": {"parts": (words("All is well."), call())},
    "it is empty": {"parts": (words("  "),)},
    "it contains a secret": {"parts": (words("All is well."),), "is_masked": True},
    "it is cut at its end": {"parts": (words("All is w"),), "finish": "length"},
    "the model refused it": {"parts": (words("I cannot help with that."),), "finish": "refusal"},
    "it is too long": {"parts": (words("w" * 24_001),)},
}


@pytest.mark.parametrize("problem", BAD)
@pytest.mark.parametrize("is_ending", [False, True], ids=["at work", "while the run ends"])
def test_a_summary_that_fails_a_check_is_discarded_also_while_its_run_ends(
    problem: str, is_ending: bool
) -> None:
    story = asked()
    if is_ending:
        assert kinds(story.command(Stop())) == ["RunStopping"]
    how = BAD[problem]
    events = answered(story, *how["parts"], **{name: how[name] for name in how if name != "parts"})
    assert only(e.SummaryDiscarded, events).problem == problem
    assert not story.state.compaction.waiting


def test_a_good_summary_waits_for_the_next_request_also_after_the_end_of_its_run() -> None:
    for story in (asked(), asked()):
        story.side_answered(words("All is well."))
        assert story.state.compaction.waiting == "All is well."
    story = asked()
    story.command(Stop())
    assert kinds(story.side_answered(words("All is well."))) == ["SideCallEnded"]
    assert story.state.compaction.waiting == "All is well."


def test_no_second_summary_is_asked_for_while_one_waits() -> None:
    story = asked(compact_turns=1)
    story.side_answered(words("All is well."))
    story.answered(call(), finish="tool_calls")
    call_id = story.state.turn.calls[0].call_id
    story.admitted(call_id)
    story.finished(call_id, "Something new.")
    assert story.state.compaction.waiting
    assert not is_wanted(story)


@pytest.mark.parametrize("found", [NO_KEY, TOO_DEAR], ids=["no key", "too dear"])
def test_a_summary_that_cannot_be_asked_for_is_not_tried_again_in_each_turn(found: Found) -> None:
    story = due()
    turns = []
    for number in range(12):
        if is_wanted(story):
            turns.append(number)
            story.found("s1", found)
        turn(story)
    assert turns == [0, 5, 10]


def test_no_more_attempts_are_made_in_an_hour_than_allowed() -> None:
    story = due(compactions_per_hour=2)
    for _ in range(2):
        story.side_prepared()
        story.side_answered(words(" "))
        for _ in range(5):
            assert not is_wanted(story)
            turn(story)
    assert not is_wanted(story)
    story.later(HOUR_S - 60)
    turn(story)
    assert not is_wanted(story)
    story.later(60)
    turn(story)
    assert is_wanted(story)


def test_a_clock_that_was_ahead_keeps_no_summary_away() -> None:
    story = due(compactions_per_hour=1)
    story.asleep(10 * HOUR_S)
    story.given(e.NoteAdded("cost", "Something happened."))
    story.side_prepared()
    story.side_failed("rate_limited", retry_after_s=HOUR_S)
    assert not is_wanted(story)
    story.asleep(-30 * HOUR_S)
    for _ in range(6):
        turn(story)
    assert is_wanted(story)


def test_what_summaries_cost_is_a_share_of_the_money_of_the_run() -> None:
    story = due(cost_microusd=1_000_000)
    assert story.state.settings is not None
    assert left_microusd("summary", story.state.settings, 0) == 100_000
    assert left_microusd("summary", story.state.settings, 60_000) == 40_000


def test_after_a_compaction_that_gained_few_turns_the_next_summary_waits_twice_as_many() -> None:
    story = due(compact_turns=1)
    story.given(view(story))
    for _ in range(3):
        turn(story)
    story.given(view(story))
    for _ in range(5):
        turn(story)
        assert not is_wanted(story)
    turn(story)
    assert is_wanted(story)


def test_bringing_everything_back_asks_for_no_summary_and_forgets_no_attempt() -> None:
    story = asked()
    story.side_answered(words(" "))
    story.given(view(story))
    story.state = replace(story.state, turn=replace(story.state.turn, number=250))
    before = story.state.compaction
    story.command(Compact(is_undo=True))
    after = story.state.compaction
    assert (after.seq, after.turn, after.left_out) == (0, 250, ())
    assert after.asked_ms == before.asked_ms
    assert not is_wanted(story)


def test_a_summary_that_was_asked_for_before_everything_was_brought_back_does_not_cut_the_view() -> None:
    story = due()
    story.given(view(story))
    turn(story)
    turn(story)
    story.side_prepared()
    story.command(Compact(is_undo=True))
    events = story.side_answered(words("All is well."))
    assert "brought the whole view back" in only(e.SummaryDiscarded, events).problem
    assert not story.state.compaction.waiting


def test_a_summary_is_late_if_the_view_was_compacted_meanwhile() -> None:
    story = asked()
    story.given(view(story))
    story.side_answered(words("All is well."))
    assert story.state.compaction.is_late
    story = asked()
    story.side_answered(words("All is well."))
    assert not story.state.compaction.is_late
