"""How a conversation is written: the exact bytes, and what keeps them valid whatever a model once said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.keys import OUTPUT_TOKENS_MAX
from holdfast.core.measure import OVERHEAD_TOKENS
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.protocol.ports import Wire
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.wires import PointedWire
from holdfast.providers.anthropic import AnthropicWire
from holdfast.providers.http import HttpPool, Link
from holdfast.providers.openai import Dialect, OpenAIWire
from holdfast.providers.registry import PROVIDERS, make_provider
from holdfast.providers.responses import ResponsesWire
from holdfast.runtime.in_text import wire_of
from holdfast.testing.conformance_provider import written_request
from holdfast.testing.valid_requests import problem

FACTS = ModelFacts("openai", "gpt-5.5")
TOOL = ToolSpec("read_file", "Reads.", {"type": "object"})
ASK = Message("user", (Text("hi"),))
CALLS = Message(
    "assistant",
    (
        Reasoning("openai", "hm", '{"signature":"c2ln"}'),
        Reasoning("other", "ho", '{"signature":"b3Ro"}'),
        Text("Reading."),
        ToolCall("call_a", "read_file", '{"path":"a"}', "t1.c0"),
        ToolCall("", "list dir", "{oops", "t1.c1"),
    ),
)
RESULTS = Message(
    "tool",
    (
        ToolResult("t1.c0", "call_a", "read_file", "text"),
        ToolResult("t1.c1", "", "list dir", "no such tool", is_error=True),
    ),
)
TEMPLATE_TOKENS = 64  # what a chat template may add
OPENAI = OpenAIWire("openai", Dialect())
RESPONSES = ResponsesWire("openai")
ANTHROPIC = AnthropicWire("openai", "top")


def elements(wire: Wire, message: Message) -> list[dict[str, Any]]:
    return [json.loads(fragment) for fragment in wire.message(message)]


@pytest.mark.requirement("C5")
def test_a_chat_completion_is_written_with_the_prefix_first_and_what_changes_last() -> None:
    assert written_request(OPENAI, FACTS, [ASK, ASK], system="Be brief.", tools=[TOOL]) == (
        b'{"model":"gpt-5.5","tools":[{"type":"function","function":{"name":"read_file","description":"Reads.",'
        b'"parameters":{"type":"object"}}}],"messages":[{"role":"system","content":"Be brief."},'
        b'{"role":"user","content":"hi"},{"role":"user","content":"hi"}],"max_tokens":1000,"stream":true,'
        b'"stream_options":{"include_usage":true}}'
    )
    assert written_request(OPENAI, FACTS, [ASK], is_streaming=False, is_last_pass=True) == (
        b'{"model":"gpt-5.5","messages":[{"role":"user","content":"hi"}],"max_tokens":1000}'
    )


@pytest.mark.requirement("C5")
def test_a_message_request_is_written_with_the_prefix_first_and_what_changes_last() -> None:
    assert written_request(ANTHROPIC, FACTS, [ASK], system="Be brief.", tools=[TOOL], is_last_pass=True) == (
        b'{"model":"gpt-5.5","tools":[{"name":"read_file","description":"Reads.","input_schema":'
        b'{"type":"object"}}],"system":[{"type":"text","text":"Be brief.","cache_control":'
        b'{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],'
        b'"cache_control":{"type":"ephemeral"},"max_tokens":1000,"tool_choice":{"type":"none"},"stream":true}'
    )


@pytest.mark.requirement("C2", "L1")
def test_chat_completions_carry_calls_and_results_back_one_result_an_element() -> None:
    call = {"type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
    odd = {"type": "function", "function": {"name": "list_dir", "arguments": "{oops"}}
    assert elements(OPENAI, CALLS) == [
        {
            "role": "assistant",
            "content": "Reading.",
            "tool_calls": [{"id": "call_a", **call}, {"id": "t1.c1", **odd}],
        }
    ]
    assert elements(OPENAI, RESULTS) == [
        {"role": "tool", "tool_call_id": "call_a", "content": "text"},
        {"role": "tool", "tool_call_id": "t1.c1", "content": "no such tool"},
    ]


@pytest.mark.requirement("C2", "L1")
def test_messages_carry_all_results_in_one_element_and_thinking_only_to_who_signed_it() -> None:
    assert elements(ANTHROPIC, CALLS) == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "call_a", "name": "read_file", "input": {"path": "a"}},
                {"type": "tool_use", "id": "t1_c1", "name": "list_dir", "input": {}},
            ],
        }
    ]
    failed = {"type": "tool_result", "tool_use_id": "t1_c1", "content": "no such tool", "is_error": True}
    assert elements(ANTHROPIC, RESULTS) == [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "text"}, failed],
        }
    ]


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("wire", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])
def test_a_call_and_its_result_have_the_same_id_also_where_the_provider_repeats_ids(wire: Wire) -> None:
    calls = Message("assistant", tuple(ToolCall("same", "x", "{}", f"t1.c{n}") for n in range(3)))
    results = Message("tool", tuple(ToolResult(f"t1.c{n}", "same", "x", "") for n in range(3)))
    asked = json.dumps(elements(wire, calls))
    answered = json.dumps(elements(wire, results))
    for n in range(3):
        name = f"t1_c{n}" if wire is ANTHROPIC else f"t1.c{n}"
        assert (asked.count(f'"{name}"'), answered.count(f'"{name}"')) == (1, 1)


@pytest.mark.requirement("L1")
def test_an_empty_response_is_written_as_something_that_servers_accept() -> None:
    empty = Message("assistant", ())
    assert elements(OPENAI, empty) == [{"role": "assistant", "content": ""}]
    assert elements(RESPONSES, empty) == [{"role": "assistant", "content": "(no answer)"}]
    (message,) = elements(ANTHROPIC, empty)
    assert message["content"][0]["text"].strip()


@pytest.mark.requirement("L1")
def test_a_response_of_thinking_alone_gets_words_at_its_end() -> None:
    thought = Message("assistant", (Reasoning("openai", "hm", '{"signature":"c2ln"}'),))
    body = written_request(ANTHROPIC, FACTS, [ASK, thought, ASK])
    assert problem(body, "anthropic") == ""
    assert [block["type"] for block in json.loads(body)["messages"][1]["content"]] == ["thinking", "text"]


@pytest.mark.requirement("C2")
def test_openai_itself_gets_no_id_that_is_too_long_for_it() -> None:
    openai = make_provider(PROVIDERS["openai"], model="m", base_url="", api_key="k", http=HttpPool())
    messages = [ASK]
    for size in (40, 41):
        call = ToolCall("x" * size, "look", "{}", f"t{size}.c0")
        result = ToolResult(call.call_id, call.ref, "look", "ok")
        messages += [Message("assistant", (call,)), Message("tool", (result,))]
    body = written_request(openai.wire, FACTS, messages)
    assert problem(body, "openai") == ""
    assert json.loads(body)["messages"][1]["tool_calls"][0]["id"] == "x" * 40


@pytest.mark.requirement("C2")
def test_reasoning_goes_back_only_where_its_server_needs_it() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    thoughts = Reasoning("p", "hm", json.dumps(details))
    with_calls = Message("assistant", (thoughts, ToolCall("c", "x", "{}", "t1.c0")))
    without = Message("assistant", (thoughts, Text("hi")))
    for field, expected in (("reasoning_content", "hm"), ("reasoning_details", details)):
        wire = OpenAIWire("p", Dialect(reasoning_field=field))
        assert elements(wire, with_calls)[0][field] == expected
        assert field not in elements(wire, without)[0]
        assert field not in elements(OpenAIWire("other", Dialect(reasoning_field=field)), with_calls)[0]


@pytest.mark.requirement("L2-07")
@pytest.mark.parametrize(
    ("base_url", "field"),
    [("", "max_completion_tokens"), ("http://127.0.0.1:8000/v1", "max_tokens")],
    ids=["openai itself", "compatible"],
)
def test_the_output_cap_has_the_name_that_the_server_knows(base_url: str, field: str) -> None:
    openai = make_provider(PROVIDERS["openai"], model="m", base_url=base_url, api_key="k", http=HttpPool())
    assert json.loads(written_request(openai.wire, FACTS, [ASK]))[field] == 1_000


@pytest.mark.requirement("C5")
def test_only_anthropic_itself_is_sent_the_marker_at_the_top_and_others_get_marks_on_blocks() -> None:
    for base_url, is_marked in (("", True), ("http://127.0.0.1:8000", False)):
        entry = PROVIDERS["anthropic"]
        provider = make_provider(entry, model="m", base_url=base_url, api_key="k", http=HttpPool())
        assert ("cache_control" in json.loads(written_request(provider.wire, FACTS, [ASK]))) is is_marked
        assert isinstance(provider.wire, PointedWire)
        assert (provider.wire.cache_point(provider.wire.message(ASK)[0]) is None) is is_marked


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("name", ["openai", "openai-responses"])
def test_only_openai_itself_gets_the_session_as_the_key_of_its_cache(name: str) -> None:
    for base_url, link, key in (
        ("", Link(), "s1"),
        ("", Link("off"), None),
        ("http://127.0.0.1:8000/v1", Link(), None),
    ):
        provider = make_provider(
            PROVIDERS[name], model="m", base_url=base_url, api_key="k", http=HttpPool(), link=link
        )
        wire = wire_of(provider.wire, FACTS, "s1")
        assert json.loads(written_request(wire, FACTS, [ASK])).get("prompt_cache_key") == key
        assert "prompt_cache_key" not in json.loads(written_request(provider.wire, FACTS, [ASK]))


@pytest.mark.requirement("H3", "L2-07")
@pytest.mark.parametrize("name", PROVIDERS)
def test_the_end_of_a_body_has_room_in_what_is_reserved_for_overhead(name: str, tmp_path: Path) -> None:
    (script := tmp_path / "m.jsonl").write_text('{"text":"hi"}\n')
    provider = make_provider(PROVIDERS[name], model=str(script), base_url="", api_key="key", http=HttpPool())
    wire = wire_of(provider.wire, FACTS, "s" * 100)
    tail = wire.tail(FACTS, OUTPUT_TOKENS_MAX, is_streaming=True, is_last_pass=True)
    tail = tail.replace(b',"prompt_cache_key":"' + b"s" * 64 + b'"', b"")  # no model reads it
    assert len(tail) <= OVERHEAD_TOKENS - TEMPLATE_TOKENS
