"""A call that failed three times with the same error is refused, until something changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.core import guard, ledger
from holdfast.core.causes import Outcome
from holdfast.core.progress import FAILURES, TIMES
from holdfast.core.state import Permission, action_key, started_calls
from holdfast.protocol import events as e
from holdfast.protocol.evidence import Evidence, Likeness
from holdfast.protocol.tools import EVERYTHING, Allowed, CallResult, FileChange, Files, Resource
from tests.core.stories import PASSED, Story, call, kinds, only

pytestmark = pytest.mark.requirement("L2-09")


def opened(**changes: object) -> Story:
    story = Story(**changes)
    story.send()
    story.attach()
    return story


def turn(
    story: Story,
    result: CallResult,
    *,
    likeness: str = "make",
    effect: str = "exec",
    files: Files | None = None,
    workspace: str = "same",
) -> list[e.Event]:
    """A turn with one call, if it is allowed to start. `workspace`: what the next response says of it."""
    story.prepared()
    looked = workspace if story.state.progress.is_open else ""
    story.answered(call("shell", f'{{"command":"{likeness}"}}'), workspace=looked)
    allowed = Allowed(
        PASSED,
        effect=effect,  # type: ignore[arg-type]
        expects=files,
        resources=EVERYTHING if effect == "exec" else (Resource("read"),),
        likeness=Likeness(likeness),
        arguments=story.state.turn.calls[0].arguments,
    )
    events = story.judged(story.state.turn.calls[0].call_id, allowed)
    return ended(story, result) if "ToolCallStarted" in kinds(events) else events


def ended(story: Story, result: CallResult) -> list[e.Event]:
    """The running call comes to this."""
    (running, _), *_ = started_calls(story.state)
    return story.when(Outcome(action_key(running), result))


def failing(said: str = "It is broken.") -> CallResult:
    return CallResult("error", f"{said}\n[exit code 1]", evidence=Evidence(said))


GOOD = CallResult("ok", "fine")


def test_the_fourth_attempt_is_refused_and_told_what_failed_and_when() -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    refused = only(e.ToolCallRefused, turn(story, failing()))
    assert refused.failure.code == "failed_before"
    for told in ("failed 3 times", "t3.c1", "It is broken.", "nothing has changed"):
        assert told in refused.failure.message
    assert "exit code" not in refused.failure.message
    # The refused attempt does not count as a failure, and the next one is refused as well.
    assert "failed 3 times" in only(e.ToolCallRefused, turn(story, failing())).failure.message


def test_another_call_still_runs_and_so_does_the_same_with_another_error() -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    assert "ToolCallFinished" in kinds(turn(story, failing(), likeness="make other"))
    story = opened()
    for said in ("one", "one", "two", "one", "one"):
        assert "ToolCallFinished" in kinds(turn(story, failing(said)))


def changes() -> dict[str, object]:
    wrote = Files((FileChange("a", "old", "new"),))
    return {
        "an edit": lambda story: turn(story, GOOD, likeness="edit", effect="write", files=wrote),
        "a success": lambda story: turn(story, GOOD),
        "another command that brings something new": lambda story: turn(story, GOOD, likeness="install"),
        "another workspace": lambda story: turn(story, failing("x"), likeness="x", workspace="other"),
        "words": lambda story: story.send("Try again."),
    }


@pytest.mark.parametrize("change", changes().values(), ids=changes().keys())
def test_a_change_in_between_allows_another_try(change: object) -> None:
    assert callable(change)
    story = opened()
    for _ in range(TIMES - 1):
        turn(story, failing())
    turn(story, CallResult("ok", "read"), likeness="a", effect="read")
    change(story)
    turn(story, CallResult("ok", "read too"), likeness="b", effect="read", workspace="other")
    for _ in range(2):
        assert "ToolCallFinished" in kinds(turn(story, failing(), workspace="other"))


def test_reads_and_writes_of_the_same_content_in_between_change_nothing() -> None:
    story = opened()
    for number in range(TIMES):
        turn(story, failing())
        turn(story, CallResult("ok", f"text {number}"), likeness=f"read {number}", effect="read")
    same = Files((FileChange("a", "as it is", "as it is"),))
    turn(story, GOOD, likeness="write", effect="write", files=same)
    assert "ToolCallRefused" in kinds(turn(story, failing()))


def test_a_change_before_the_last_failure_makes_it_the_first() -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    # What changed shows only in the survey after the third failure.
    story.prepared()
    story.answered(call("shell", '{"command":"ls"}'), workspace="other")
    assert [each.row for each in story.state.progress.failures] == [1]
    assert [each.times for each in story.state.progress.failures] == [3]


def test_a_change_in_the_same_turn_lets_the_call_wait_and_then_run() -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    story.prepared()
    story.answered(call("edit", "{}"), call("shell", '{"command":"make"}'), workspace="same")
    edit, make = story.state.turn.calls
    wrote = Files((FileChange("a", "old", "new"),))
    story.judged(
        edit.call_id, Allowed(PASSED, effect="write", expects=wrote, resources=(Resource("write", "/w/a"),))
    )
    makes = Allowed(PASSED, likeness=Likeness("make"), arguments=make.arguments)
    assert "ToolCallQueued" in kinds(story.judged(make.call_id, makes))
    ended(story, GOOD)
    assert "ToolCallStarted" in kinds(story.judged(make.call_id, makes))


def test_the_approaches_that_failed_are_listed_with_their_error_and_record() -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    turn(story, failing("Other."), likeness="once")
    (listed,) = guard.failed(story.state)
    assert (listed.name, listed.arguments, listed.said) == ("shell", '{"command":"make"}', "It is broken.")
    assert isinstance(story.records[listed.seq - 1].event, e.ToolCallFinished)
    # The ledger has it too, for a model that no longer sees the calls.
    assert f'shell {{"command":"make"}}: It is broken. (record {listed.seq})' in ledger.text_of(
        story.state.ledger
    )
    assert "Other." not in ledger.text_of(story.state.ledger)
    # It stays listed when something has changed since.
    story.send("Try again.")
    assert guard.failed(story.state)


def test_what_is_remembered_is_bounded_and_keeps_the_approaches() -> None:
    story = opened(turns=1_000, stall_turns=1_000)
    for _ in range(TIMES):
        turn(story, failing())
    for number in range(2 * FAILURES):
        turn(story, failing("x" * 5_000), likeness=f"other {number}")
    failures = story.state.progress.failures
    assert len(failures) == FAILURES
    assert failures[0].times == TIMES
    assert max(len(each.said) + len(each.arguments) for each in failures) <= 400


def proposed(story: Story) -> Allowed:
    """The model asks for the same once more; what the gates say."""
    story.prepared()
    story.answered(call("shell", '{"command":"make"}'))
    arguments = story.state.turn.calls[0].arguments
    return Allowed(
        PASSED, effect="exec", resources=EVERYTHING, likeness=Likeness("make"), arguments=arguments
    )


@pytest.mark.parametrize("is_allowed", [True, False])
def test_what_a_person_allowed_runs_although_it_failed_before(is_allowed: bool) -> None:
    story = opened()
    for _ in range(TIMES):
        turn(story, failing())
    allowed = proposed(story)
    name = story.state.turn.calls[0].call_id
    if is_allowed:
        permitted = replace(story.state.turn.calls[0], permission=Permission("a1", "0" * 64))
        story.state = replace(story.state, turn=replace(story.state.turn, calls=(permitted,)))
    assert ("ToolCallStarted" in kinds(story.judged(name, allowed))) == is_allowed


def test_what_was_interrupted_runs_again_although_it_failed_before() -> None:
    story = opened()
    for _ in range(TIMES - 1):
        turn(story, failing())
    allowed = replace(proposed(story), on_interrupt="rerun")
    name = story.state.turn.calls[0].call_id
    story.judged(name, allowed)
    failed = replace(story.state.progress.failures[-1], row=TIMES, times=TIMES)
    story.state = replace(story.state, progress=replace(story.state.progress, failures=(failed,)))
    story.attach()
    assert "ToolCallStarted" in kinds(story.judged(name, allowed))
