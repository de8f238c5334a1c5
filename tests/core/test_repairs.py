"""An answer that does not match the schema of the run goes back to the model, at most twice."""

from __future__ import annotations

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.messages import Verdict
from holdfast.protocol.settings import Output, name_of
from tests.core.stories import Story, a_turn, call, calling, kinds, only, opened, settings, words

SCHEMA = '{"type":"integer"}'
NAME = name_of(Output(SCHEMA))
VALID, WRONG = Verdict(NAME), Verdict(NAME, '`total` must be integer, not the string "x"')


def asked(**changes: object) -> Story:
    """The first call of a run with a schema is open."""
    return calling(schema=SCHEMA, **changes)


def wrong(story: Story) -> list[e.Event]:
    return story.answered(words("x"), verdict=WRONG)


@pytest.mark.requirement("S1", "L1")
def test_an_answer_that_matches_ends_the_run() -> None:
    assert kinds(asked().answered(words("7"), verdict=VALID)) == ["Responded", "RunStopped"]


@pytest.mark.requirement("S1", "L1")
def test_an_answer_that_does_not_match_goes_back_with_the_wrong_path() -> None:
    story = asked()
    note = only(e.NoteAdded, wrong(story))
    assert note.about == "output"
    assert "`total` must be integer" in note.text
    story.prepared()
    events = story.answered(words("7"), verdict=VALID)
    assert only(e.RunStopped, events).status == "done"
    assert (story.run.totals.turns, story.run.repairs) == (2, 1)


@pytest.mark.requirement("S1", "L1")
def test_the_third_wrong_answer_fails_the_run() -> None:
    story = asked()
    for _ in range(2):
        assert kinds(wrong(story)) == ["Responded", "NoteAdded"]
        story.prepared()
    events = wrong(story)
    stopped = only(e.RunStopped, events)
    assert kinds(events) == ["Responded", "RunStopped"]
    assert (stopped.status, stopped.reason) == ("failed", "output_schema")
    assert "`total` must be integer" in stopped.message


@pytest.mark.requirement("S1")
def test_the_next_run_has_its_repairs_again() -> None:
    story = asked()
    for _ in range(3):
        wrong(story)
        if not story.run.status:
            story.prepared()
    story.go_on()
    story.prepared()
    assert kinds(wrong(story)) == ["Responded", "NoteAdded"]


@pytest.mark.requirement("S1", "B2")
def test_without_a_turn_left_the_last_pass_is_the_repair_and_the_run_ends_at_its_limit() -> None:
    story = asked(turns=1)
    assert kinds(wrong(story)) == ["Responded", "NoteAdded", "RunLanding"]
    story.prepared()
    stopped = only(e.RunStopped, story.answered(words("7"), verdict=VALID))
    assert (stopped.status, stopped.reason) == ("limit", "turns")


@pytest.mark.requirement("S1")
def test_calls_between_repairs_change_nothing_about_their_number() -> None:
    story = asked()
    wrong(story)
    a_turn(story, call())
    story.prepared()
    assert kinds(wrong(story)) == ["Responded", "NoteAdded"]
    story.prepared()
    assert only(e.RunStopped, wrong(story)).reason == "output_schema"


@pytest.mark.requirement("S1")
def test_words_that_came_meanwhile_are_answered_first() -> None:
    story = asked()
    story.send("In euros, please.")
    assert kinds(wrong(story)) == ["Responded"]
    assert not story.run.status
    assert story.run.repairs == 0


@pytest.mark.requirement("S1")
def test_a_value_that_the_output_limit_cuts_is_repaired_and_not_continued() -> None:
    events = asked().answered(words('{"answer": "It'), finish="length")
    assert [event.about for event in events if isinstance(event, e.NoteAdded)] == ["output"]


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("verdict", [None, Verdict("another schema")])
def test_an_answer_that_this_schema_did_not_judge_goes_back(verdict: Verdict | None) -> None:
    story = opened()
    story.prepared()
    story.go_on(schema=SCHEMA)
    assert only(e.NoteAdded, story.answered(words("It is 7."), verdict=verdict)).about == "output"


@pytest.mark.requirement("S1")
def test_the_schema_is_stored_once_by_its_hash() -> None:
    story = asked()
    story.answered(words("7"), verdict=VALID)
    stored = [each.event for each in story.records if isinstance(each.event, e.SettingsStored)]
    assert [event.groups[NAME] for event in stored] == [Output(SCHEMA)]
    story.send("Again.")
    started = [each.event for each in story.records if isinstance(each.event, e.RunStarted)]
    assert [event.settings.output for event in started] == [NAME, NAME]
    assert sum(isinstance(each.event, e.SettingsStored) for each in story.records) == 1
    assert settings(schema=SCHEMA).output.schema == SCHEMA
