"""What a test server refuses: each rule of the services, broken once."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.testing.model_replies import Format
from holdfast.testing.valid_requests import problem

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
GOOD: dict[Format, dict[str, Any]] = {
    "openai": {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "read"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": ""},
        ],
        "max_tokens": 10,
    },
    "responses": {
        "model": "m",
        "tools": [{"type": "function", "name": "read"}],
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": ""},
        ],
        "max_output_tokens": 16,
    },
    "anthropic": {
        "model": "m",
        "tools": [{"name": "read"}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Reading."}, USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": ""}]},
        ],
        "max_tokens": 10,
    },
}

Break = Callable[[dict[str, Any]], Any]
BROKEN: list[tuple[Format, str, Break]] = [
    ("openai", "role", lambda r: r["messages"][0].update(role="human")),
    ("openai", "result", lambda r: r["messages"].pop()),
    ("openai", "result", lambda r: r["messages"].insert(2, {"role": "user", "content": "x"})),
    ("openai", "answers no call", lambda r: r["messages"].append(r["messages"][2])),
    ("openai", "characters", lambda r: r["messages"][1]["tool_calls"][0].update(id="x" * 41)),
    ("openai", "name", lambda r: r["messages"][1]["tool_calls"][0]["function"].update(name="read file")),
    ("openai", "arguments", lambda r: r["messages"][1]["tool_calls"][0]["function"].update(arguments={})),
    ("openai", "one id", lambda r: r["messages"][1]["tool_calls"].append(CALL)),
    ("openai", "content", lambda r: r["messages"][0].pop("content")),
    ("openai", "stream_options", lambda r: r.update(stream_options={})),
    ("openai", "max_tokens", lambda r: r.update(max_completion_tokens=5)),
    ("openai", "tool_choice", lambda r: (r.pop("tools"), r.update(tool_choice="none"))),
    ("responses", "role", lambda r: r["input"][0].update(role="human")),
    ("responses", "output for", lambda r: r["input"].pop()),
    ("responses", "answers no call", lambda r: r["input"].append(r["input"][3])),
    ("responses", "followed", lambda r: r["input"].pop(2)),
    ("responses", "keeps no items", lambda r: r["input"][1].pop("encrypted_content")),
    ("responses", "characters", lambda r: r["input"][2].update(call_id="x" * 65)),
    ("responses", "valid name", lambda r: r["input"][2].update(name="")),
    ("responses", "no item", lambda r: r["input"][3].update(type="call")),
    ("responses", "max_output_tokens", lambda r: r.update(max_output_tokens=15)),
    ("anthropic", "user", lambda r: r["messages"].pop()),
    ("anthropic", "user", lambda r: r["messages"].pop(0)),
    ("anthropic", "result", lambda r: r["messages"][2].update(content="x")),
    ("anthropic", "before the results", lambda r: r["messages"][2]["content"].insert(0, TEXT)),
    ("anthropic", "without words", lambda r: r["messages"][0]["content"][0].update(text=" ")),
    ("anthropic", "id or the name", lambda r: r["messages"][1]["content"][1].update(id="a.b")),
    ("anthropic", "not an object", lambda r: r["messages"][1]["content"][1].update(input="{}")),
    ("anthropic", "no tools", lambda r: r.pop("tools")),
    ("anthropic", "one id", lambda r: r["messages"].extend(copy.deepcopy(r["messages"][1:]))),
    ("anthropic", "signature", lambda r: r["messages"][1]["content"].insert(0, {"type": "thinking"})),
    ("anthropic", "is thinking", lambda r: r["messages"][1].update(content=[THOUGHT])),
    ("anthropic", "more than 4", lambda r: [r["system"].append(MARKED) for _ in range(4)]),
    ("anthropic", "on thinking", lambda r: r["messages"][1]["content"].insert(0, MARKED_THOUGHT)),
    ("anthropic", "max_tokens", lambda r: r.update(max_tokens=0)),
]
TEXT = {"type": "text", "text": "x"}
MARKED = {**TEXT, "cache_control": {}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
MARKED_THOUGHT = {**THOUGHT, "cache_control": {}}


@pytest.mark.parametrize("wire", GOOD)
def test_a_good_request_is_taken(wire: Format) -> None:
    assert problem(json.dumps(GOOD[wire]).encode(), wire) == ""


@pytest.mark.parametrize(
    ("wire", "said", "breaks"), BROKEN, ids=[f"{wire} {said}" for wire, said, _ in BROKEN]
)
def test_a_broken_request_is_refused_with_what_is_wrong(wire: Format, said: str, breaks: Break) -> None:
    request = copy.deepcopy(GOOD[wire])
    breaks(request)
    assert said in problem(json.dumps(request).encode(), wire)


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    assert problem(body, "openai")
