"""What single servers ask for beyond the common wire, against a server that sends what they send."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from holdfast.protocol.messages import Message, ModelReply, Part, Text, ToolCall, ToolResult, calls_of
from holdfast.providers.signed_calls import SignedReader
from holdfast.providers.sse import Event, Heard
from holdfast.testing.conformance_provider import QUESTION, Subject, attempt, written_request
from holdfast.testing.model_replies import Reply, ReplyCall
from tests.providers.subjects import served

SIGNED = {"google": {"thought_signature": "AY89a18IwQsQ8in/+w=="}}
TWO_CALLS = Reply(
    tool_calls=(ReplyCall("look", {"name": "a"}, extra_content=SIGNED), ReplyCall("look", {"name": "b"}))
)


def recorded(reply: ModelReply) -> tuple[Message, Message]:
    """The response as the journal holds it, and results of its calls."""
    numbers = iter(range(9))
    parts: list[Part] = [
        msgspec.structs.replace(part, call_id=f"t1.c{next(numbers)}") if isinstance(part, ToolCall) else part
        for part in reply.parts
    ]
    results = tuple(ToolResult(call.call_id, call.ref, call.name, "ok") for call in calls_of(tuple(parts)))
    return Message("assistant", tuple(parts)), Message("tool", results)


def sent_back(subject: Subject, *messages: Message) -> list[dict[str, Any]]:
    body = written_request(subject.provider.wire, subject.facts, [QUESTION, *messages])
    sent: list[dict[str, Any]] = json.loads(body)["messages"]
    return sent[1:]


@pytest.mark.requirement("C2", "L1")
@pytest.mark.parametrize("is_streaming", [True, False])
async def test_the_signature_of_a_call_goes_back_beside_it_and_to_its_provider_only(
    is_streaming: bool,
) -> None:
    async with served("google", [TWO_CALLS]) as google, served("openai", []) as openai:
        reply = await attempt(google, is_streaming=is_streaming)
        assert isinstance(reply, ModelReply), reply
        assert [call.name for call in calls_of(reply.parts)] == ["look", "look"]
        message, results = recorded(reply)
        first, second = sent_back(google, message, results)[0]["tool_calls"]
        assert (first["extra_content"], "extra_content" in second) == (SIGNED, False)
        assert first["id"] == "call_0_0"
        assert "extra_content" not in json.dumps(sent_back(openai, message, results))


@pytest.mark.requirement("C2")
async def test_a_server_that_takes_only_text_gets_the_parts_of_a_message_as_one() -> None:
    parts = Message("user", (Text("Look."), Text("[stdin: 3 bytes]\nabc")))
    async with served("deepseek", []) as deepseek, served("openai", []) as openai:
        (joined,), (listed,) = sent_back(deepseek, parts), sent_back(openai, parts)
    assert joined["content"] == "Look.\n\n[stdin: 3 bytes]\nabc"
    assert [part["text"] for part in listed["content"]] == ["Look.", "[stdin: 3 bytes]\nabc"]


def event(content: dict[str, Any] | str) -> Event:
    return Event("message", content if isinstance(content, str) else json.dumps(content), "")


def chunk(call: dict[str, Any]) -> Event:
    return event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("ids", [("function-call-1", "function-call-2"), ("", "")], ids=["ids", "no ids"])
def test_a_signature_is_kept_however_the_pieces_of_its_call_arrive(ids: tuple[str, str]) -> None:
    reader = SignedReader("google:m", lambda delta: None)
    function = {"name": "look", "arguments": '{"name":"a"}'}
    reader.take(chunk({"id": ids[0], "function": function, "extra_content": SIGNED}))
    reader.take(chunk({"id": ids[1], "function": function | {"name": "list"}}))
    reader.take(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    assert reader.take(event("[DONE]")) is Heard.END
    reply = reader.reply("")
    assert len(calls_of(reply.parts)) == 2
    assert msgspec.json.decode(reply.parts[0].payload) == {ids[0]: SIGNED}  # type: ignore[union-attr]


@pytest.mark.requirement("C2", "L1")
async def test_the_ids_of_calls_have_the_form_that_their_server_takes() -> None:
    """As Mistral wants them: nine letters and digits. Its own ids stay as they are."""
    foreign = Message(
        "assistant",
        (
            Text("From elsewhere."),
            ToolCall("toolu_01A09q90qw90lq917835lq9", "look", "{}", "t1.c0"),
            ToolCall("", "look", "{}", "t1.c1"),
            ToolCall("D681PevKs", "look", "{}", "t1.c2"),
            ToolCall("ein9Wört", "look", "{}", "t1.c3"),
        ),
    )
    results = Message(
        "tool", tuple(ToolResult(call.call_id, call.ref, "look", "ok") for call in calls_of(foreign.parts))
    )
    async with served("mistral", []) as mistral:
        asked, *answered = sent_back(mistral, foreign, results)
    ids = [call["id"] for call in asked["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", given) for given in ids)
    assert ids == [result["tool_call_id"] for result in answered]
    assert len(set(ids)) == 4
    assert ids[2] == "D681PevKs"
