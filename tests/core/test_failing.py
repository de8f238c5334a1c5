"""A run whose calls fail in the same way, response after response, ends as failed."""

from __future__ import annotations

from typing import Literal, get_args

import pytest

from holdfast.core.causes import Outcome
from holdfast.protocol import events as e
from holdfast.protocol.evidence import Evidence
from holdfast.protocol.failures import Failure, FailureClass, FailureCode
from holdfast.protocol.settings import Repairs
from holdfast.protocol.tools import CallResult, Refused
from tests.core.stories import Story, a_turn, call, only, opened

REFUSALS: dict[FailureClass, FailureCode] = {
    "unknown_tool": "unknown_tool",
    "invalid_json": "invalid_json",
    "schema": "tool_validation",
    "policy_denied": "policy_denied",
}
RESULTS: dict[FailureClass, FailureCode] = {"timeout": "tool_timeout", "execution": "tool_execution"}
_STATUS: dict[FailureClass, Literal["timeout", "error"]] = {"timeout": "timeout", "execution": "error"}
LIMITS = {
    "unknown_tool": 5, "invalid_json": 5, "schema": 5, "timeout": 5, "policy_denied": 20, "execution": 50,
}  # fmt: skip

pytestmark = pytest.mark.requirement("C3")


def story_with(**changes: object) -> Story:
    return opened(**{"turns": 500, "repeat_stop": 400, "stall_turns": 400, "max_reflections": 0} | changes)


def fails(story: Story, kind: FailureClass, calls: int = 1) -> list[e.Event]:
    """One response, all of whose calls fail in this way, each time with other arguments."""
    story.prepared()
    number = story.state.turn.number
    story.answered(*[call("look", f'{{"n":{number}{at}}}') for at in range(calls)], finish="tool_calls")
    events: list[e.Event] = []
    for each in story.state.turn.calls:
        if kind in REFUSALS:
            events += story.judged(each.call_id, Refused(Failure(REFUSALS[kind], f"no {number}")))
        else:
            failure, status = Failure(RESULTS[kind], "no"), _STATUS[kind]
            story.admitted(each.call_id)
            key = f"{each.call_id}#1"
            events += story.when(Outcome(key, CallResult(status, f"no {number}", failure)))
    return events


@pytest.mark.parametrize("kind", get_args(FailureClass))
def test_each_class_ends_the_run_at_its_own_limit(kind: FailureClass) -> None:
    story = story_with()
    for _ in range(LIMITS[kind] - 1):
        fails(story, kind)
        assert not story.run.status
    stopped = only(e.RunStopped, fails(story, kind))
    assert (stopped.status, stopped.reason) == ("failed", f"repair:{kind}")
    assert f"{LIMITS[kind]} responses" in stopped.message
    assert f"`{kind}` in [repair]" in stopped.message


def test_a_continuation_counts_anew() -> None:
    story = story_with(repairs=Repairs(schema=2))
    fails(story, "schema")
    assert only(e.RunStopped, fails(story, "schema")).reason == "repair:schema"
    story.go_on()
    fails(story, "schema")
    assert not story.run.status
    assert only(e.RunStopped, fails(story, "schema")).reason == "repair:schema"


def test_the_calls_of_one_response_count_once() -> None:
    story = story_with(repairs=Repairs(unknown_tool=2))
    fails(story, "unknown_tool", calls=9)
    assert not story.run.status
    assert only(e.RunStopped, fails(story, "unknown_tool")).reason == "repair:unknown_tool"


def test_a_success_or_a_failure_of_another_class_ends_the_row() -> None:
    story = story_with(repairs=Repairs(schema=2, timeout=2))
    for _ in range(3):
        fails(story, "schema")
        a_turn(story, call("look", f'{{"n":{story.state.turn.number}}}'))
        fails(story, "schema")
        fails(story, "timeout")
    assert not story.run.status


def test_a_search_that_finds_nothing_did_not_fail() -> None:
    story = story_with(repairs=Repairs(execution=1))
    story.prepared()
    story.answered(call("grep"), finish="tool_calls")
    call_id = story.state.turn.calls[0].call_id
    story.admitted(call_id)
    nothing = Evidence(is_negative=True)
    failure = Failure("tool_execution", "nothing")
    story.when(Outcome(f"{call_id}#1", CallResult("error", "nothing", failure, evidence=nothing)))
    assert not story.run.status


def test_what_says_nothing_about_the_call_leaves_the_row_as_it_is() -> None:
    story = story_with(repairs=Repairs(schema=2))
    fails(story, "schema")
    story.prepared()
    story.answered(call("look"), finish="tool_calls")
    story.judged(story.state.turn.calls[0].call_id, Refused(Failure("failed_before", "no")))
    assert not story.run.status
    assert only(e.RunStopped, fails(story, "schema")).reason == "repair:schema"
