"""The Responses API: what a request says, what goes back of a response, and how its events are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, Usage, calls_of
from holdfast.protocol.ports import Delta
from holdfast.protocol.tools import ToolSpec
from holdfast.providers.errors import BadResponse
from holdfast.providers.responses import ResponsesWire
from holdfast.providers.responses_reply import ResponseReader
from holdfast.providers.sse import Event, Heard
from holdfast.testing.conformance_provider import written_request
from holdfast.testing.valid_requests import problem

FACTS = ModelFacts("openai-responses", "gpt-5.5")
WIRE = ResponsesWire("openai-responses")
ASK = Message("user", (Text("hi"),))
TOOL = ToolSpec("read_file", "Reads.", {"type": "object"})
SEALED = {"id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}


def reader(shown: list[Delta] | None = None) -> ResponseReader:
    return ResponseReader("openai-responses:m", (shown if shown is not None else []).append)


def told(into: ResponseReader, *events: dict[str, Any]) -> list[Heard]:
    return [into.take(Event("", json.dumps(event), None)) for event in events]


def added(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def delta(index: int, what: str, piece: Any) -> dict[str, Any]:
    return {"type": f"response.{what}.delta", "output_index": index, "delta": piece}


def ended(status: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **response}}


def items(message: Message) -> list[dict[str, Any]]:
    return [json.loads(each) for each in WIRE.message(message)]


@pytest.mark.requirement("C5")
def test_a_request_keeps_nothing_at_the_service_and_asks_for_sealed_reasoning() -> None:
    assert written_request(WIRE, FACTS, [ASK], system="Be brief.", tools=[TOOL], is_last_pass=True) == (
        b'{"model":"gpt-5.5","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":'
        b'"function","name":"read_file","description":"Reads.","parameters":{"type":"object"},"strict":false}],'
        b'"instructions":"Be brief.","input":[{"role":"user","content":"hi"}],"max_output_tokens":1000,'
        b'"tool_choice":"none","stream":true}'
    )


@pytest.mark.parametrize(("model", "asks"), [("gpt-5.5", True), ("o4-mini", True), ("gpt-4.1-mini", False)])
def test_a_model_that_does_not_reason_is_not_asked_for_sealed_reasoning(model: str, asks: bool) -> None:
    body = json.loads(written_request(WIRE, ModelFacts("openai-responses", model), [ASK]))
    assert ("include" in body) is asks


@pytest.mark.requirement("C2")
def test_reasoning_goes_back_before_the_call_that_followed_it_and_never_alone() -> None:
    thought = Reasoning("openai-responses", "hm", json.dumps(SEALED))
    calls = (ToolCall("c1", "read_file", "{}", "t1.c0"), ToolCall("c2", "read_file", "{}", "t1.c1"))
    said = items(Message("assistant", (thought, calls[0], Text("One more."), thought, calls[1])))
    assert [each.get("type", "message") for each in said] == [
        "reasoning", "function_call", "message", "reasoning", "function_call",
    ]  # fmt: skip
    assert said[0] == {"type": "reasoning", **SEALED}
    assert items(Message("assistant", (Text("Done."), thought))) == [
        {"role": "assistant", "content": "Done."}
    ]
    assert items(Message("assistant", (thought,))) == [{"role": "assistant", "content": "(no answer)"}]
    foreign = Reasoning("anthropic", "hm", '{"signature":"c2ln"}')
    assert [each["type"] for each in items(Message("assistant", (foreign, calls[0])))] == ["function_call"]


@pytest.mark.requirement("C2")
def test_words_go_back_with_the_mark_of_what_they_were() -> None:
    into = reader()
    remark = {"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "Look."}]}
    into.take_body(json.dumps({"output": [remark]}).encode())
    said = items(Message("assistant", into.reply("").parts))
    assert said == [{"role": "assistant", "content": "Look.", "phase": "commentary"}]


def test_media_of_a_result_follow_it_as_a_users() -> None:
    result = ToolResult("t1.c0", "c1", "read_file", "An image.")
    image, pdf = Media("a.png", "image/png", "aW1n"), Media("x", "application/pdf", "cGRm")
    assert items(Message("tool", (result, image, pdf))) == [
        {"type": "function_call_output", "call_id": "c1", "output": "An image."},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,aW1n"},
                {
                    "type": "input_file",
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,cGRm",
                },
            ],
        },
    ]


@pytest.mark.requirement("C2")
def test_an_id_of_another_provider_that_is_too_long_is_replaced_in_call_and_result() -> None:
    call = ToolCall("x" * 65, "read_file", "{}", "t1.c0")
    messages = [
        ASK,
        Message("assistant", (call,)),
        Message("tool", (ToolResult("t1.c0", "x" * 65, "r", ""),)),
    ]
    body = written_request(WIRE, FACTS, messages)
    assert problem(body, "responses") == ""
    asked, answered = json.loads(body)["input"][1:]
    assert asked["call_id"] == answered["call_id"] != "x" * 65


@pytest.mark.requirement("L7")
def test_unknown_events_and_items_are_skipped() -> None:
    into = reader(shown := [])
    heard = told(
        into,
        {"type": "response.something.new", "output_index": 0, "delta": "no words"},
        {"type": "keepalive"},
        added(0, type="web_search_call", id="ws_1"),
        added(1, type="message", content=[]),
        delta(1, "output_text", "Paris"),
        ended(usage={"input_tokens": 3, "output_tokens": 1}),
    )
    assert heard == [Heard.SOMETHING, Heard.NOTHING, *[Heard.SOMETHING] * 3, Heard.END]
    reply = into.reply("")
    assert (reply.parts, reply.finish) == ((Text("Paris"),), "stop")
    assert [each.text for each in shown] == ["Paris"]


BROKEN = {
    "a delta for nothing": delta(7, "output_text", "x"),
    "a delta without an index": {"type": "response.output_text.delta", "delta": "x"},
    "a delta of another type": delta(0, "output_text", {"text": "x"}),
    "an item of another type": {"type": "response.output_item.added", "output_index": 1, "item": "x"},
    "an end without a response": {"type": "response.completed"},
    "not done yet": {"type": "response.completed", "response": {"status": "in_progress"}},
    "a failure without a reason": ended("failed"),
    "an overload": ended("failed", error={"code": "server_error", "message": "Oops."}),
}


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("event", BROKEN.values(), ids=BROKEN)
def test_a_broken_event_is_a_passing_failure(event: dict[str, Any]) -> None:
    into = reader()
    told(into, added(0, type="message", content=[]))
    with pytest.raises(BadResponse) as caught:
        told(into, event)
    assert caught.value.failure.code == "provider_transient"


@pytest.mark.requirement("C15", "L7")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "rate_limit_exceeded", "message": "Slow down."}, "rate_limited"),
        ({"code": "invalid_prompt", "message": "No."}, "provider_fatal"),
        ({"code": "context_length_exceeded", "message": "Too long."}, "context_overflow"),
        ({"code": "insufficient_quota", "message": "No credit."}, "provider_refused"),
    ],
)
def test_a_failed_response_is_a_failure_of_its_class_and_its_usage_counts(
    error: dict[str, Any], code: str
) -> None:
    into = reader()
    with pytest.raises(BadResponse) as caught:
        told(into, ended("failed", error=error, usage={"input_tokens": 9, "output_tokens": 2}))
    assert (caught.value.failure.code, into.reported.usage) == (code, Usage(9, 2))
    for event in ({"type": "error", **error}, {"type": "error", "error": error}):
        with pytest.raises(BadResponse) as caught:
            told(reader(), event)
        assert caught.value.failure.code == code


@pytest.mark.requirement("L1", "L7")
def test_a_call_that_the_output_cap_cut_is_dropped_and_a_whole_one_is_kept() -> None:
    whole = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'}
    half = {"type": "function_call", "call_id": "c2", "name": "write", "arguments": '{"path":"b","con'}
    cut = ended("incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[whole, half])
    into = reader()
    told(into, cut)
    reply = into.reply("")
    assert ([call.name for call in calls_of(reply.parts)], reply.finish) == (["read"], "length")
    into = reader()
    told(into, added(0, **whole), added(1, type="function_call", name="write"), delta(1, "x", "y"), cut)
    assert [call.name for call in calls_of(into.reply("").parts)] == ["read"]


def test_a_refusal_and_a_filtered_answer_are_refusals() -> None:
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    into = reader()
    told(into, ended(output=[refused]))
    assert (into.reply("").parts, into.reply("").finish) == ((Text("I cannot."),), "refusal")
    into = reader()
    told(into, ended("incomplete", incomplete_details={"reason": "content_filter"}, output=[]))
    assert into.reply("").finish == "refusal"


def test_usage_has_what_was_cached_and_what_was_thought() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
    }
    into = reader()
    told(into, ended(output=[], usage=usage))
    assert into.reply("").usage == Usage(100, 20, 60, 30, 15)
    assert into.reply("").estimated == ()


def test_what_a_person_saw_stays_as_it_was() -> None:
    """A compatible server names other items at the end than it streamed."""
    into = reader()
    done = {"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}
    other = {"type": "message", "content": [{"type": "output_text", "text": "Rome"}]}
    told(into, added(0, type="message"), {**added(0, **done), "type": "response.output_item.done"})
    told(into, ended(output=[other]))
    assert into.reply("").parts == (Text("Paris"),)
