"""The ladder: a note at a third of the turns that bring nothing new, reflection at two thirds, then the end."""

from __future__ import annotations

import pytest

from holdfast.core import guard
from holdfast.core.causes import Outcome
from holdfast.core.progress import SEEN, WRITTEN
from holdfast.core.state import action_key, started_calls
from holdfast.protocol import events as e
from holdfast.protocol.commands import Continue
from holdfast.protocol.evidence import PARTIAL, Evidence, Likeness
from holdfast.protocol.plan import Plan, Step
from holdfast.protocol.tools import Allowed, CallResult, FileChange, Files, Resource
from tests.core.stories import PASSED, Story, call, kinds

pytestmark = pytest.mark.requirement("C4")

SAME = CallResult("ok", "the same")


def opened(**changes: object) -> Story:
    story = Story(**{"turns": 500, "repeat_stop": 400, "repeat_note": 100} | changes)
    story.send()
    story.attach()
    return story


def turn(
    story: Story,
    result: CallResult = SAME,
    *,
    name: str = "a",
    effect: str = "read",
    files: Files | None = None,
    workspace: str = "",
    looks: bool = False,
) -> list[e.Event]:
    """A turn with one call. `workspace`: what the response says of the turn before."""
    story.prepared()
    story.answered(call("shell", f'{{"n":"{name}"}}'), workspace=workspace)
    (proposed,) = story.state.turn.calls
    story.judged(
        proposed.call_id,
        Allowed(
            PASSED,
            effect=effect,  # type: ignore[arg-type]
            expects=files,
            resources=(Resource("read"),),
            likeness=Likeness(name, only_looks=looks),
            arguments=proposed.arguments,
        ),
    )
    (running, _), *_ = started_calls(story.state)
    return story.when(Outcome(action_key(running), result))


def notes(events: list[e.Event]) -> list[str]:
    return [event.about for event in events if isinstance(event, e.NoteAdded)]


def ending(events: list[e.Event]) -> tuple[str, str] | None:
    return next(((each.status, each.reason) for each in events if isinstance(each, e.RunStopped)), None)


@pytest.mark.parametrize(("turns", "steps"), [(24, (8, 16, 24)), (3, (1, 2, 3)), (10, (3, 6, 10))])
def test_the_ladder_tells_then_wants_reflection_then_ends(turns: int, steps: tuple[int, int, int]) -> None:
    story = opened(stall_turns=turns)
    turn(story)
    told: list[int] = []
    wanted: list[int] = []
    for count in range(1, turns):
        told += [count] * len(notes(turn(story)))
        wanted += [count] * guard.wants_reflection(story.state)
    assert (told, wanted[:1]) == ([steps[0]], [steps[1]])
    assert guard.stalled(story.state) == turns - 1
    events = turn(story)
    assert ending(events) == ("stuck", "stall")
    assert f"{turns} turns" in story.run.message


NEWS = {
    "a result": lambda story: turn(story, CallResult("ok", "another")),
    "a call": lambda story: turn(story, name="b"),
    "test counts of a failed run": lambda story: turn(
        story, CallResult("error", "x", evidence=Evidence("x", "1 failed")), effect="exec", workspace=""
    ),
    "a file": lambda story: turn(
        story, name="a", effect="write", files=Files((FileChange("f", "old", "new"),))
    ),
    "words": lambda story: (story.send("More."), turn(story)),
    "a search that finds nothing": lambda story: turn(
        story, CallResult("error", "[exit code 1]", evidence=Evidence("", "", is_negative=True)), name="c"
    ),
}


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS.keys())
def test_something_new_begins_the_count_anew_once(news: object) -> None:
    assert callable(news)
    story = opened()
    turn(story)
    for _ in range(10):
        turn(story)
    assert guard.stalled(story.state) == 10
    news(story)
    assert guard.stalled(story.state) <= 1
    assert notes([event for _ in range(8) for event in turn(story)]) == ["stall"], "and the next note follows"


NO_NEWS = {
    "an error": lambda story, n: turn(story, CallResult("error", f"new {n}"), name=f"new {n}"),
    "a timeout": lambda story, n: turn(story, CallResult("timeout", f"new {n}")),
    "the same with another time": lambda story, n: turn(
        story, CallResult("ok", f"at {n}", evidence=Evidence("same"))
    ),
    "the same content again": lambda story, n: turn(
        story, effect="write", files=Files((FileChange("f", "new", "new"),))
    ),
    "a command that only looks": lambda story, n: turn(story, effect="exec", looks=True),
}


@pytest.mark.parametrize("nothing", NO_NEWS.values(), ids=NO_NEWS.keys())
def test_what_is_nothing_new_counts(nothing: object) -> None:
    assert callable(nothing)
    story = opened()
    turn(story)
    nothing(story, 0)
    before = guard.stalled(story.state)
    for number in range(1, 5):
        nothing(story, number)
    assert guard.stalled(story.state) == before + 4


def test_a_turn_that_may_have_written_counts_when_the_next_response_says_that_nothing_changed() -> None:
    story = opened()
    turn(story, effect="exec")
    for count in range(3):
        turn(story, effect="exec", workspace="w0")
        assert guard.stalled(story.state) == count
        assert story.state.progress.is_open
    # The survey finds a new state: the count begins anew. A return to an earlier state is not new.
    turn(story, effect="exec", workspace="w1")
    assert guard.stalled(story.state) == 0
    for _ in range(5):
        turn(story, effect="exec", workspace="w0")
    assert guard.stalled(story.state) == 5


def test_no_run_ends_while_a_survey_is_missing() -> None:
    story = opened(stall_turns=3)
    turn(story, effect="exec")
    for _ in range(3):
        assert ending(turn(story, effect="exec", workspace="w")) is None
    assert ending(turn(story, effect="exec", workspace="new")) is None
    for _ in range(2):
        assert ending(turn(story, effect="exec", workspace="w")) is None
    assert ending(turn(story, workspace="w")) == ("stuck", "stall")


def test_a_waiting_call_is_neither_a_repeat_nor_a_lack_of_progress() -> None:
    story = opened(repeat_note=2, repeat_stop=3, wait_s=5)
    slow = CallResult("ok", "the same", duration_ms=5_000)
    for _ in range(60):
        assert "RunStopped" not in kinds(turn(story, slow))
    assert (guard.stalled(story.state), story.state.turn.repeats) == (0, ())
    quick = CallResult("ok", "the same", duration_ms=4_999)
    assert [ending(turn(story, quick)) for _ in range(3)][-1] == ("stuck", "repeat")


def test_the_same_call_does_not_repeat_itself_in_a_world_that_changes() -> None:
    story = opened(repeat_note=2, repeat_stop=3)
    for number in range(20):
        turn(story, effect="exec", workspace=f"w{number}" if number else "")
    for number in range(20):
        turn(
            story,
            effect="write",
            files=Files((FileChange("f", "x", f"v{number}"),)),
            workspace="" if number else "w",
        )
    assert story.run.status == ""


def test_steps_that_are_done_are_news_and_rewriting_the_others_is_none() -> None:
    story = opened()
    turn(story)
    for number in range(5):
        story.given(e.PlanChanged("t1.c1", Plan((Step(f"step {number}"), Step("first", "done")))))
        turn(story)
    assert guard.stalled(story.state) == 5
    story.given(e.PlanChanged("t1.c1", Plan((Step("second", "done"), Step("first", "done")))))
    turn(story)
    assert guard.stalled(story.state) == 1


def test_a_continuation_counts_anew_and_remembers_what_it_saw_and_a_new_task_forgets_it() -> None:
    story = opened(stall_turns=4)
    for _ in range(4):
        turn(story)
    assert ending(turn(story)) == ("stuck", "stall")
    story.command(Continue())
    assert "RunStopped" not in kinds(turn(story))
    assert guard.stalled(story.state) == 1
    for _ in range(2):
        turn(story)
    assert ending(turn(story)) == ("stuck", "stall")
    story.send("Another task.")
    turn(story)
    assert guard.stalled(story.state) == 0


def test_a_workspace_with_too_many_files_is_reported_once() -> None:
    story = opened()
    turn(story, effect="exec")
    told: list[str] = []
    for _ in range(3):
        story.prepared()
        told += notes(story.answered(call("shell"), workspace=f"{PARTIAL}1"))
        story.judged(story.state.turn.calls[0].call_id, Allowed(PASSED))
        story.when(Outcome(action_key(started_calls(story.state)[0][0]), SAME))
    assert told == ["workspace"]


def test_what_is_remembered_is_bounded() -> None:
    story = opened(turns=10_000)
    for number in range(SEEN + 50):
        changed = FileChange(f"f{number}", "", f"{number}")
        turn(story, name=f"{number}", effect="write", files=Files((changed,)))
    progress = story.state.progress
    assert (len(progress.seen), len(progress.named)) == (SEEN, WRITTEN)
    assert progress.named[-1] == f"f{SEEN + 49}"
