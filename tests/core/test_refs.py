"""The ids of providers: a request never names two calls alike."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.context.transcript import Transcript
from holdfast.core import refs
from holdfast.protocol import events as e
from holdfast.protocol.messages import ToolCall
from holdfast.providers.anthropic import AnthropicWire
from tests.core.stories import Story, a_turn, calling


def recorded(story: Story) -> list[str]:
    """Return the ids that the last response was recorded with."""
    return [call.ref for call in story.state.turn.calls]


def asked(story: Story, *given: str) -> list[str]:
    """Make a turn of calls with these ids, and return those that they were recorded with."""
    a_turn(story, *[ToolCall(ref, "read_file", "{}") for ref in given])
    return recorded(story)


@pytest.mark.requirement("S2")
def test_an_id_that_came_before_is_not_sent_back() -> None:
    """Some servers count the calls of each response from 0."""
    story = calling()
    story.answered(ToolCall("call_0", "read_file", "{}"), ToolCall("call_1", "read_file", "{}"))
    assert recorded(story) == ["call_0", "call_1"]
    for call_id in ("t1.c1", "t1.c2"):
        story.admitted(call_id)
        story.finished(call_id, "ok")
    assert asked(story, "call_0") == [""]
    assert asked(story, "call_0", "call_1", "call_2", "call_2") == ["", "", "call_2", ""]
    assert asked(story, "chatcmpl-tool-8f3a") == ["chatcmpl-tool-8f3a"]


def test_ids_that_differ_only_in_what_servers_refuse_are_alike() -> None:
    story = calling()
    story.answered(
        ToolCall("fetch:0", "a", "{}"), ToolCall("fetch.0", "a", "{}"), ToolCall("fetch_1", "a", "{}")
    )
    assert recorded(story) == ["fetch:0", "", "fetch_1"]


@pytest.mark.parametrize(
    "given", [("a-b", "a_b"), ("callA", "callB"), ("call_a", "call_A"), ("chatcmpl-1", "chatcmpl-2"),
              ("t1_c1_of_mine", "t1_c1_of_yours")],
)  # fmt: skip
def test_ids_that_differ_in_what_servers_take_are_kept(given: tuple[str, str]) -> None:
    story = calling()
    story.answered(*[ToolCall(ref, "a", "{}") for ref in given])
    assert recorded(story) == [*given]


def test_an_id_that_came_before_is_replaced_by_no_other() -> None:
    calls = [ToolCall("x", "a", "{}", "t1.c1"), ToolCall("x", "a", "{}", "t1.c2")]
    assert refs.own_refs(calls, ()) == ["x", ""]


def test_calls_without_an_id_take_no_room() -> None:
    known = refs.known_after((), [ToolCall("x", "a", "{}")])
    assert refs.known_after(known, [ToolCall("", "a", "{}")]) == known


@pytest.mark.parametrize("ours", ["t1.c1", "t9_c1", "t12.c34"])
def test_a_model_that_repeats_one_of_our_ids_gives_its_call_no_other_calls_name(ours: str) -> None:
    story = calling()
    story.answered(ToolCall(ours, "a", "{}"), ToolCall("t1.cx", "a", "{}"))
    assert recorded(story) == ["", "t1.cx"]


def test_only_so_many_ids_are_remembered() -> None:
    known: tuple[int, ...] = ()
    for number in range(refs.KEPT + 1):
        known = refs.known_after(known, [ToolCall(f"call_{number}", "a", "{}")])
    assert len(known) == refs.KEPT
    again = [ToolCall("call_0", "a", "{}"), ToolCall("call_1", "a", "{}"), ToolCall("", "a", "{}")]
    assert refs.own_refs(again, known) == ["call_0", "", ""]


def test_every_call_of_a_request_has_an_id_of_its_own_and_its_result_has_the_same() -> None:
    story = calling()
    story.answered(ToolCall("call_0", "read_file", "{}"))
    story.admitted("t1.c1")
    story.finished("t1.c1", "ok")
    for _ in range(3):
        asked(story, "call_0", "call_0", "")
    calls, results = _ids(story.records)
    assert len(calls) == len(set(calls)) == 10
    assert calls == results


def _ids(records: Sequence[e.Record]) -> tuple[list[str], list[str]]:
    """Return the ids of all calls and of all results, as a request has them."""
    wire, transcript = AnthropicWire("x", "blocks"), Transcript()
    calls, results = [], []
    for record in records:
        for said in transcript.add(record):
            for element in wire.message(said.message):
                for block in msgspec.json.decode(element)["content"]:
                    calls += [block["id"]] if block["type"] == "tool_use" else []
                    results += [block["tool_use_id"]] if block["type"] == "tool_result" else []
    return calls, results
