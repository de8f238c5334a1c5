"""What real servers answered is read to the same parts and usage in any chunking, and after any fault."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Message, ModelReply, ToolCall, ToolResult, calls_of, text_of
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.ports import ModelAttempt
from holdfast.providers.http import HttpPool
from holdfast.providers.registry import PROVIDERS, make_provider
from holdfast.providers.responses import ResponsesWire
from holdfast.testing.clock import never_over
from holdfast.testing.conformance_provider import QUESTION, written_request
from tests.providers.recordings import (
    Recording,
    Said,
    is_ours,
    provider_of,
    recordings,
    replayed,
    said,
)

ALL = recordings()
CHUNKINGS = ("whole", "line", "7", "random")
SPELLINGS = ("crlf", "bom", "comments")
BREAKING = ("cut", "stall", "reset", "badjson", "429", "503")
STALL_S = 0.1


def each_recording(kinds: Sequence[str], everyday: int) -> list[Any]:
    """Each recording with each kind of answer: in the everyday suite with a few of them, with others for the next."""
    return [
        pytest.param(
            kind,
            recording,
            marks=() if (at - number) % len(kinds) < everyday else pytest.mark.long,
            id=f"{kind}-{recording.name}",
        )
        for number, kind in enumerate(kinds)
        for at, recording in enumerate(ALL)
    ]


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.aclose()


@pytest.fixture(scope="module")
def replaying(shared: object) -> Iterator[Callable[..., str]]:
    """The address of a server with these flags; it is started when it is asked for first."""
    with ExitStack() as servers:
        yield functools.cache(lambda *flags: servers.enter_context(replayed(*flags)))


async def attempt(
    address: str, recording: Recording, exchange: dict[str, Any], http: HttpPool, idle_s: float = 60.0
) -> ModelReply | ModelFailure:
    """The next recorded answer, asked for as it was asked for."""
    root, name = f"{address}/c/{recording.name}", provider_of(exchange)
    base_url = root if name == "anthropic" else f"{root}/v1"
    entry = PROVIDERS[name]
    provider = make_provider(entry, model="m", base_url=base_url, api_key="", http=http)
    is_streaming = bool((exchange["request"].get("body") or {}).get("stream"))
    facts = ModelFacts(name, "m")
    body = written_request(provider.wire, facts, [QUESTION], is_streaming=is_streaming)
    return await provider.respond(
        ModelAttempt(
            facts,
            body,
            is_streaming=is_streaming,
            idle_s=idle_s,
            outcomes=0,
            on_delta=lambda delta: None,
            on_cut=lambda cut: None,
            check=never_over,
        )
    )


async def skip_over(address: str, recording: Recording, exchange: dict[str, Any]) -> None:
    """Use up an answer of another format, so that the next ones come."""
    path = exchange["request"]["uri"].split("/", 3)[3]
    method = exchange["request"]["method"]
    data = b"{}" if method == "POST" else None
    asked = urllib.request.Request(f"{address}/c/{recording.name}/{path}", data, method=method)
    with await asyncio.to_thread(urllib.request.urlopen, asked) as response:
        response.read()


def summary(reply: ModelReply) -> Said:
    calls = [(call.name, json.loads(call.arguments)) for call in calls_of(reply.parts)]
    return Said(text_of(reply.parts), calls, reply.usage.input_tokens)


FAILING_STREAMS = {
    "test_openrouter_test_openrouter_stream_error": "provider_fatal",
    "test_groq_test_tool_use_failed_error_streaming": "provider_transient",
}
"""Recordings whose first answer is a stream that turns into an error."""

STATUS_CLASSES = {
    400: ("provider_fatal", "provider_transient"),
    404: ("provider_fatal",),
    429: ("rate_limited",),
}

WHOLE_AT_HALF = "test_openai_test_openai_moderation_stream"
"""Its second half is one event that says nothing about the answer."""


def check(recording: Recording, position: int, result: ModelReply | ModelFailure) -> None:
    """That the result is what the recording says."""
    exchange = recording.exchanges[position]
    status = exchange["response"]["status"]
    if status != 200:
        assert isinstance(result, ModelFailure)
        assert result.failure.code in STATUS_CLASSES[status]
    elif position == 0 and recording.name in FAILING_STREAMS:
        assert isinstance(result, ModelFailure)
        assert result.failure.code == FAILING_STREAMS[recording.name]
    elif recording.name == "test_openai_test_invalid_response":
        assert isinstance(result, ModelFailure)
        assert result.failure.code == "provider_transient"
    else:
        assert isinstance(result, ModelReply), result
        expected = said(exchange)
        assert summary(result) == expected._replace(input_tokens=result.usage.input_tokens)
        if expected.input_tokens:
            assert result.usage.input_tokens == expected.input_tokens
            assert not result.estimated


WHOLE: dict[tuple[str, int], ModelReply | ModelFailure] = {}
"""What each exchange came to in the first chunking: all others must come to exactly that."""


async def run_through(address: str, recording: Recording, http: HttpPool) -> None:
    for position, exchange in enumerate(recording.exchanges):
        if not is_ours(exchange):
            await skip_over(address, recording, exchange)
            continue
        result = await attempt(address, recording, exchange, http)
        check(recording, position, result)
        assert result == WHOLE.setdefault((recording.name, position), result)


@pytest.mark.requirement("C2", "L7")
@pytest.mark.parametrize(("chunking", "recording"), each_recording(CHUNKINGS, 1))
async def test_a_recorded_answer_reads_the_same_in_any_chunking(
    replaying: Callable[..., str], chunking: str, recording: Recording, http: HttpPool
) -> None:
    await run_through(replaying("--chunk", chunking), recording, http)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(("spelling", "recording"), each_recording(SPELLINGS, 1))
async def test_a_recorded_answer_reads_the_same_in_any_legal_spelling(
    replaying: Callable[..., str], spelling: str, recording: Recording, http: HttpPool
) -> None:
    await run_through(replaying("--fault", spelling), recording, http)


@pytest.mark.requirement("C2", "C15", "L7")
@pytest.mark.parametrize(("fault", "recording"), each_recording(BREAKING, 1))
async def test_a_broken_answer_is_a_failure_and_the_next_attempt_is_right(
    replaying: Callable[..., str], fault: str, recording: Recording, http: HttpPool
) -> None:
    address = replaying("--fault", fault, "--chunk", "40")
    for position, exchange in enumerate(recording.exchanges):
        if exchange["response"]["status"] != 200 or not is_ours(exchange):
            break
        idle_s = STALL_S if fault == "stall" else 60.0
        first = await attempt(address, recording, exchange, http, idle_s)
        if recording.name == WHOLE_AT_HALF and isinstance(first, ModelReply):
            check(recording, position, first)
            continue
        assert isinstance(first, ModelFailure), "a half-received answer was believed"
        code = "rate_limited" if fault == "429" else "provider_transient"
        assert first.failure.code == code
        if fault in ("429", "503"):
            assert first.failure.retry_after_s == 1.0
        check(recording, position, await attempt(address, recording, exchange, http))


CONVERSATIONS = (
    "test_anthropic_test_anthropic_tool_output",
    "test_anthropic_test_anthropic_tool_with_thinking",
    "test_anthropic_test_multiple_parallel_tool_calls",
    "test_openai_test_openai_tool_output",
    "test_openai_test_run_stream_sync_streams_real_model",
    "test_deepseek_test_deepseek_deferred_capability_with_thinking",
    "test_tool_choice_matrix_test_tool_choice_matrix_auto-groq_",
    "test_tool_choice_matrix_test_tool_choice_matrix_auto-mistral_",
)
"""Recordings whose later requests carry back the answers and the results of the calls."""


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a request with the freedoms of the format taken out of it."""
    kept = {key: value for key, value in copy.deepcopy(message).items() if value not in (None, "", [])}
    if isinstance(kept.get("content"), str) and kept["role"] != "tool":
        kept["content"] = [{"type": "text", "text": kept["content"]}]
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            {key: value for key, value in block.items() if key != "is_error" or value}
            for block in kept["content"]
        ]
    for call in kept.get("tool_calls", []):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        call.pop("index", None)
        call.setdefault("type", "function")
    if kept["role"] == "assistant":
        # The reference gives plain reasoning back to Groq, which does not need it.
        kept.pop("reasoning", None)
        kept.pop("prefix", None)
    return kept


def results_of(messages: list[dict[str, Any]]) -> dict[str, str]:
    """What each call came to in a recorded request, by the provider's id of the call."""
    found = {}
    for message in messages:
        if message["role"] == "tool":
            found[message["tool_call_id"]] = message["content"]
        for block in message["content"] if isinstance(message.get("content"), list) else []:
            if block.get("type") == "tool_result":
                content = block["content"]
                found[block["tool_use_id"]] = content if isinstance(content, str) else content[0]["text"]
    return found


def outputs_of(items: list[dict[str, Any]]) -> dict[str, str]:
    """What each call came to in a recorded request of Responses; of calls with one id, the last one."""
    return {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_answers_and_results_go_back_as_the_reference_sends_them(
    replaying: Callable[..., str], name: str, http: HttpPool
) -> None:
    address = replaying("--chunk", CHUNKINGS[0])
    recording = next(one for one in ALL if one.name == name)
    await asyncio.to_thread(reset, address, name)
    messages: list[Message] = []
    for position, exchange in enumerate(recording.exchanges):
        sent = [plain(message) for message in exchange["request"]["body"]["messages"]]
        assert written(provider_of(exchange), messages) == [
            message
            for message in sent
            if (message["role"] == "assistant" or is_tool_turn(message)) and not is_invented(message)
        ]
        reply = await attempt(address, recording, exchange, http)
        assert isinstance(reply, ModelReply)
        messages += turn(position, reply, recording)


ITEMS = (
    "test_deepseek_responses_test_deepseek_responses_function_tool_stream_",
    "test_openai_responses_test_openai_responses_model_retry",
    "test_openai_responses_test_openai_responses_phase_streamed_on_part_start",
    "test_openai_responses_test_openai_responses_thinking_with_tool_calls",
    "test_tool_choice_matrix_test_tool_choice_matrix_auto-openai_responses_",
)
"""Recordings of Responses whose later requests carry back the items."""


def plain_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item of a request with the freedoms of the format taken out of it."""
    kept = {key: value for key, value in item.items() if value not in (None, "", []) and key != "status"}
    if isinstance(kept.get("content"), list) and kept.get("type", "message") == "message":
        kept["content"] = "".join(part["text"] for part in kept["content"])
    if "content" in kept and item.get("type", "message") == "message":
        kept["type"] = "message"
        kept["content"] = kept["content"].translate({0x201C: '"', 0x201D: '"', 0x2019: "'"})
    if item.get("type") != "reasoning":
        kept.pop("id", None)
    return kept


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", ITEMS)
async def test_items_go_back_in_their_order_with_their_sealed_reasoning(
    replaying: Callable[..., str], name: str, http: HttpPool
) -> None:
    address = replaying("--chunk", CHUNKINGS[0])
    recording = next(one for one in ALL if one.name == name)
    await asyncio.to_thread(reset, address, name)
    wire = ResponsesWire("openai-responses")
    messages: list[Message] = []
    for position, exchange in enumerate(recording.exchanges):
        sent = [item for item in exchange["request"]["body"]["input"] if item.get("role") != "user"]
        ours = [msgspec.json.decode(each) for message in messages for each in wire.message(message)]
        assert [plain_item(item) for item in ours] == [
            plain_item(item) for item in sent if item.get("content") or "type" in item
        ]
        reply = await attempt(address, recording, exchange, http)
        assert isinstance(reply, ModelReply)
        messages += turn(position, reply, recording)


def reset(address: str, name: str) -> None:
    """Begin the recording anew, since another test may have used it up."""
    asked = urllib.request.Request(f"{address}/c/{name}/_reset", b"", method="POST")
    with urllib.request.urlopen(asked) as response:
        response.read()


def is_invented(message: dict[str, Any]) -> bool:
    """Whether the reference made the call up itself, to load a tool of its own."""
    return "auto_load_" in json.dumps(message)


def is_tool_turn(message: dict[str, Any]) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return message["role"] == "tool" or any(block.get("type") == "tool_result" for block in blocks)


def written(provider: str, messages: list[Message]) -> list[dict[str, Any]]:
    entry = PROVIDERS[provider]
    wire = make_provider(entry, model="m", base_url="http://127.0.0.1:1", api_key="", http=HttpPool()).wire
    fragments = [fragment for message in messages for fragment in wire.message(message)]
    return [plain(msgspec.json.decode(fragment)) for fragment in fragments]


def turn(position: int, reply: ModelReply, recording: Recording) -> list[Message]:
    """What the runtime records after a reply: our call ids, and the recorded results."""
    parts = tuple(
        msgspec.structs.replace(part, call_id=f"t{position}.c{index}") if isinstance(part, ToolCall) else part
        for index, part in enumerate(reply.parts)
    )
    answer = Message("assistant", parts, "assistant")
    if not calls_of(parts) or position + 1 == len(recording.exchanges):
        return [answer]
    body = recording.exchanges[position + 1]["request"]["body"]
    results = results_of(body["messages"]) if "messages" in body else outputs_of(body["input"])
    found = [
        ToolResult(c.call_id, c.ref, c.name, results[c.ref]) for c in calls_of(parts) if c.ref in results
    ]
    return [answer, Message("tool", tuple(found), "tool")]
