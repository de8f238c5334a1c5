"""Hooks that are asked or told by the core: what waits for them, and what their answers mean."""

from __future__ import annotations

import pytest

from holdfast.core.causes import Outcome
from holdfast.core.hooked import NOTHING
from holdfast.core.hooking import MOST_DUE
from holdfast.core.state import open_run
from holdfast.core.wanted import PrepareRequest, RunHook
from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Stop
from holdfast.protocol.hooks import HOOK_EVENTS, Hook, HookAnswer
from tests.core.stories import SESSION, Story, call, kinds, only, steps, words

ALL = Hook("all", HOOK_EVENTS)


def hooked(*hooks: Hook, **changes: object) -> Story:
    """A run that has just begun."""
    story = Story(hooks=hooks, **changes)
    story.attach()
    story.send()
    return story


def keys(story: Story) -> list[str]:
    return [step.key for step in steps(story.state)]


def answer(story: Story, key: str, said: HookAnswer = HookAnswer()) -> list[e.Event]:  # noqa: B008
    return story.when(Outcome(key, said, 7))


@pytest.mark.requirement("S4")
def test_nothing_is_prepared_before_the_hooks_of_a_run_and_of_its_request_have_answered_in_order() -> None:
    story = hooked(Hook("one", ("run_start", "before_model")), Hook("two", ("before_model",)))
    for key in ("hook run_start 1 one", "hook before_model m1 one", "hook before_model m1 two"):
        assert keys(story) == [key]
        assert kinds(answer(story, key)) == ["HookEnded"]
    assert [type(step) for step in steps(story.state)] == [PrepareRequest]
    story.prepared()
    assert story.state.hooking == NOTHING


@pytest.mark.requirement("S4", "H1")
def test_what_a_hook_has_not_answered_is_asked_again_by_the_next_driver_and_the_rest_is_not() -> None:
    story = hooked(Hook("one", ("run_start",)), Hook("two", ("run_start",)))
    answer(story, "hook run_start 1 one")
    story.attach()
    assert keys(story) == ["hook run_start 1 two"]


@pytest.mark.requirement("S4")
def test_an_answer_that_nobody_waits_for_and_one_that_was_cut_off_mean_nothing() -> None:
    story = hooked(Hook("one", ("run_start",)))
    denial = HookAnswer("deny", "No.")
    assert answer(story, "hook run_start 1 two", denial) == []
    assert answer(story, "hook run_start 2 one", denial) == []
    assert answer(story, "hook run_start 1 one", HookAnswer("deny", is_cut=True)) == []
    assert keys(story) == ["hook run_start 1 one"]
    story.command(Pause())
    assert keys(story) == []
    assert answer(story, "hook run_start 1 one", denial) == []


@pytest.mark.requirement("S4")
@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_denial_ends_the_run_and_a_new_run_asks_again(verdict: str) -> None:
    story = hooked(Hook("one", ("before_model",)))
    events = answer(story, "hook before_model m1 one", HookAnswer(verdict, "No."))  # type: ignore[arg-type]
    assert kinds(events) == ["HookEnded", "RunStopped"]
    assert only(e.HookEnded, events) == e.HookEnded("one", "before_model", "m1", "denied", "No.", 7)
    stopped = only(e.RunStopped, events)
    assert (stopped.status, stopped.reason, stopped.message) == (
        "failed", "hook:one", "The hook one ended the run: No.",
    )  # fmt: skip
    story.go_on()
    assert keys(story) == ["hook before_model m1 one"]


@pytest.mark.requirement("S4")
def test_a_denied_last_pass_ends_the_run_at_its_limit() -> None:
    story = hooked(Hook("one", ("before_model",)), turns=1)
    answer(story, "hook before_model m1 one")
    story.prepared()
    story.answered(call())
    story.admitted("t1.c1")
    story.finished("t1.c1")
    events = answer(story, "hook before_model m2 one", HookAnswer("deny"))
    assert (only(e.RunStopped, events).status, only(e.RunStopped, events).reason) == ("limit", "turns")


@pytest.mark.requirement("S4")
def test_each_hook_is_told_one_thing_after_the_other_beside_the_work() -> None:
    story = hooked(Hook("a", ("after_model", "after_tool")), Hook("b", ("after_tool", "turn_end"), ("grep",)))
    story.prepared()
    story.answered(call("grep"), call("shell"))
    story.admitted("t1.c1")
    story.finished("t1.c1")
    assert {"hook after_model m1 a", "hook after_tool t1.c1 b"} < set(keys(story))
    answer(story, "hook after_model m1 a", HookAnswer("deny", "ignored"))
    assert open_run(story.state) is not None
    assert "hook after_tool t1.c1 a" in keys(story)
    story.admitted("t1.c2")
    story.finished("t1.c2")
    assert [type(step) for step in steps(story.state)] == [PrepareRequest, RunHook, RunHook]
    answer(story, "hook after_tool t1.c1 b")
    assert "hook turn_end 1 b" in keys(story)
    assert "hook after_tool t1.c2 b" not in keys(story)


@pytest.mark.requirement("S4")
def test_a_stop_leaves_only_the_end_to_tell_and_a_pause_leaves_all() -> None:
    for body in (Stop(), Pause()):
        story = hooked(Hook("a", ("after_model", "run_end")))
        story.prepared()
        story.answered(call("grep"))
        story.command(body)
        told = ["hook run_end 1 a"] if isinstance(body, Stop) else ["hook after_model m1 a"]
        assert keys(story) == told


@pytest.mark.requirement("S4")
def test_what_hooks_were_not_told_when_a_run_ends_by_itself_they_are_told_after_it() -> None:
    story = hooked(Hook("a", ("after_model", "turn_end", "run_end")))
    story.prepared()
    story.answered(words("Done."))
    assert open_run(story.state) is None
    for key in ("hook after_model m1 a", "hook turn_end 1 a", "hook run_end 1 a"):
        assert keys(story) == [key]
        answer(story, key)
    assert keys(story) == []
    assert story.state.hooking is NOTHING


@pytest.mark.requirement("S4")
def test_with_too_much_to_tell_the_next_request_waits() -> None:
    story = hooked(Hook("a", ("after_tool",)))
    story.prepared()
    count = MOST_DUE
    story.answered(*[call("grep")] * count)
    for number in range(1, count + 1):
        story.admitted(f"t1.c{number}")
        story.finished(f"t1.c{number}")
    assert keys(story) == ["hook after_tool t1.c1 a"]
    answer(story, "hook after_tool t1.c1 a")
    assert [type(step) for step in steps(story.state)] == [PrepareRequest, RunHook]


@pytest.mark.requirement("S4")
def test_hooks_that_the_settings_no_longer_have_are_neither_asked_nor_told() -> None:
    story = hooked(Hook("a", ("run_start", "after_model")))
    story.settings = Story().settings
    story.send("And this.")
    assert [type(step) for step in steps(story.state)] == [PrepareRequest]
    assert story.state.hooking == NOTHING


@pytest.mark.requirement("S4")
@pytest.mark.parametrize("event", [e.SessionForked("branch", "parent", 5), e.SessionImported()])
def test_what_waits_for_hooks_waits_for_them_in_a_branch_and_after_an_import_too(event: e.Event) -> None:
    story = hooked(Hook("one", ("run_start",)))
    story.given(event)
    story.attach()
    assert keys(story) == ["hook run_start 1 one"]


@pytest.mark.requirement("S4")
def test_a_branch_and_an_imported_session_tell_nothing_that_happened_before() -> None:
    for event in (e.SessionForked("branch", "parent", 7), e.SessionImported()):
        story = hooked(ALL)
        answer(story, "hook run_start 1 all")
        answer(story, "hook before_model m1 all")
        story.prepared()
        story.answered(words("Done."))
        assert story.state.hooking.told
        story.given(event)
        assert story.state.hooking == NOTHING


@pytest.mark.requirement("S4", "H5")
def test_hooks_are_not_told_of_a_result_of_a_call_that_was_put_aside() -> None:
    story = hooked(Hook("a", ("after_tool", "approval", "turn_end")), approve_by="defer")
    story.prepared()
    story.answered(call("shell"))
    story.asked_for("t1.c1")
    told = [(each.event, each.subject) for each in story.state.hooking.told]
    assert told == [("approval", f"{SESSION}-1"), ("turn_end", "1")]
