"""Responses as compatible servers really send them, read in the process: odd, cut, and in any chunking."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol.messages import ModelReply, Reasoning, Text, ToolCall, Usage, calls_of, text_of
from holdfast.protocol.ports import Delta
from holdfast.providers import objects, openai_reply
from holdfast.providers.anthropic_reply import MessageReader
from holdfast.providers.errors import BadResponse
from holdfast.providers.native import Reader
from holdfast.providers.objects import Growing, is_json
from holdfast.providers.openai_reply import ChatReader
from holdfast.providers.responses_reply import ResponseReader
from holdfast.providers.sse import EventParser
from holdfast.testing.model_replies import Format, Reply, ReplyCall, render
from tests.seeds import many

T = TypeVar("T")
READERS = {"openai": ChatReader, "responses": ResponseReader, "anthropic": MessageReader}


def read(reader: Reader, *chunks: bytes) -> ModelReply:
    parser = EventParser()
    for chunk in chunks:
        for event in parser.feed(chunk):
            reader.take(event)
    return reader.reply("")


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    ending = b"data: [DONE]\n\n" if done else b""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + ending


def chat(*chunks: dict[str, Any], done: bool = True) -> ModelReply:
    return read(ChatReader("deepseek:m", lambda delta: None), stream(*chunks, done=done))


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(index: int | None = None, ref: str = "", name: str = "", arguments: Any = "") -> dict[str, Any]:
    call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    call |= {} if index is None else {"index": index}
    call |= {"id": ref} if ref else {}
    return choice(tool_calls=[call])


TWO = [("read", {"path": "a"}), ("list", {})]

ODD_CALLS: dict[str, list[dict[str, Any]]] = {
    "as agreed": [
        piece(0, "c1", "read"),
        piece(0, arguments='{"path":'),
        piece(0, arguments='"a"}'),
        piece(1, "c2", "list"),
        piece(1, arguments="{}"),
    ],
    "interleaved": [
        piece(0, "c1", "read", '{"path"'),
        piece(1, "c2", "list", "{"),
        piece(0, arguments=':"a"}'),
        piece(1, arguments="}"),
    ],
    "without index": [
        piece(None, "c1", "read"),
        piece(None, arguments='{"path":"a"}'),
        piece(None, "c2", "list"),
        piece(None, arguments="{}"),
    ],
    "without index and id": [piece(None, "", "read", '{"path":"a"}'), piece(None, "", "list", "{}")],
    "without index and id, in pieces": [
        piece(None, "", "read"),
        piece(None, "", "", '{"path"'),
        piece(None, "", "", ':"a"}'),
        piece(None, "", "list"),
    ],
    "index 0 for all": [piece(0, "c1", "read", '{"path":"a"}'), piece(0, "c2", "list", "{}")],
    "index 0 for all, no id": [piece(0, "", "read", '{"path":"a"}'), piece(0, "", "list", "{}")],
    "one id for all": [piece(None, "c", "read", '{"path":"a"}'), piece(None, "c", "list", "{}")],
    "id and name in each piece": [
        piece(0, "c1", "read", '{"path"'),
        piece(0, "c1", "read", ':"a"}'),
        piece(1, "c2", "list", ""),
    ],
    "arguments as an object": [piece(0, "c1", "read", {"path": "a"}), piece(1, "c2", "list", {})],
    "both in one chunk": [
        choice(
            tool_calls=[
                {"id": "c1", "function": {"name": "read", "arguments": '{"path":"a"}'}},
                {"id": "c2", "function": {"name": "list", "arguments": None}},
            ]
        )
    ],
}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("chunks", ODD_CALLS.values(), ids=ODD_CALLS.keys())
def test_parallel_calls_are_told_apart_however_a_server_numbers_them(chunks: list[dict[str, Any]]) -> None:
    reply = chat(*chunks, choice("tool_calls"))
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(reply.parts)] == TWO
    assert reply.finish == "tool_calls"


GROWING = {
    "one object": '{"path":"a\\"b{","content":"' + "\\n]}x" * 2_000 + '"}',
    "a closed and broken one": "{x}" * 4_000,
    "a text": '"' + "x" * 12_000,
    "no bracket at all": "x" * 12_000,
}


@pytest.mark.requirement("A3", "C2")
@pytest.mark.parametrize("arguments", GROWING.values(), ids=GROWING.keys())
@pytest.mark.parametrize("index", [0, None])
def test_where_a_server_repeats_the_name_each_character_is_looked_at_a_few_times_at_most(
    index: int | None, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0

    def counting(read: Callable[[str], T]) -> Callable[[str], T]:
        def counted(text: str) -> T:
            nonlocal handled
            handled += len(text)
            return read(text)

        return counted

    for name in ("decode_untrusted", "_marks"):
        monkeypatch.setattr(objects, name, counting(getattr(objects, name)))
    pieces = [arguments[at : at + 3] for at in range(0, len(arguments), 3)]
    chunks = [piece(index, "c1", "write", text) for text in pieces]
    reader = ChatReader("openai:m", lambda delta: None)
    body = stream(*chunks, choice("tool_calls"))
    (call,) = calls_of(read(reader, body).parts)
    assert call.arguments == arguments
    assert handled - len(body) < 4 * len(arguments)


@pytest.mark.requirement("A3", "C2")
@pytest.mark.parametrize("is_whole", [False, True], ids=["stream", "whole"])
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("has_id", [True, False])
def test_many_calls_are_read_in_linear_time(
    is_whole: bool, has_index: bool, has_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    class Watched(openai_reply._Call):
        """A call that counts how often somebody looks which one it is."""

        @property
        def ref(self) -> str:
            nonlocal looks
            looks += 1
            return self._ref

        @ref.setter
        def ref(self, ref: str) -> None:
            self._ref = ref

    monkeypatch.setattr(openai_reply, "_Call", Watched)
    calls: list[dict[str, Any]] = [{"function": {"name": "read", "arguments": "{}"}} for _ in range(3_000)]
    for number, call in enumerate(calls):
        call |= ({"index": number} if has_index else {}) | ({"id": f"c{number}"} if has_id else {})
    reader = ChatReader("openai:m", lambda delta: None)
    if is_whole:
        reader.take_body(json.dumps({"choices": [{"message": {"tool_calls": calls}}]}).encode())
        reply = reader.reply("")
    else:
        reply = read(reader, stream(*(choice(tool_calls=[call]) for call in calls)))
    assert len(calls_of(reply.parts)) == 3_000
    assert looks < 10 * 3_000


JSON_PIECES = st.sampled_from(['{"a":', '"\\', '\\"', '"x"', "}", "[", "]", " ", "1", '"', "{}", "\\"])


@pytest.mark.requirement("C2")
@settings(max_examples=many(1_000))
@given(st.lists(JSON_PIECES, max_size=9))
def test_a_value_that_grows_is_whole_exactly_when_all_of_it_is_json(pieces: list[str]) -> None:
    growing = Growing()
    for count, text in enumerate(pieces, start=1):
        growing.add(text)
        assert growing.is_whole() == is_json("".join(pieces[:count]))
    assert growing.text == "".join(pieces)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize(
    "content", [b"[1]", b"nonsense", b"null", b'{"choices":[]}', b'{"content":"x"}', b"\xff"]
)
def test_a_body_of_the_wrong_shape_is_a_passing_failure(reader: type[Any], content: bytes) -> None:
    with pytest.raises(BadResponse) as caught:
        reader("openai:m", lambda delta: None).take_body(content)
    assert caught.value.failure.code == "provider_transient"


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    "chunk",
    [
        choice("stop", content=42),
        choice("tool_calls", tool_calls=[{"index": 0, "function": "read"}]),
        {"choices": [{"index": 0, "delta": "text"}]},
    ],
)
def test_a_chunk_of_the_wrong_shape_is_a_passing_failure(chunk: dict[str, Any]) -> None:
    with pytest.raises(BadResponse) as caught:
        chat(chunk)
    assert caught.value.failure.code == "provider_transient"


@pytest.mark.requirement("L7")
def test_a_stream_that_ends_without_saying_so_is_cut_and_brings_no_calls() -> None:
    for chunks in ([choice(content="Par")], [piece(0, "c1", "read", '{"path":"a"}')], []):
        with pytest.raises(BadResponse) as caught:
            chat(*chunks, done=False)
        assert caught.value.failure.code == "provider_transient"
    with pytest.raises(BadResponse):
        chat(piece(0, "c1", "read", '{"pa'), done=True)


@pytest.mark.requirement("L7")
def test_either_a_finish_reason_or_done_ends_a_stream() -> None:
    assert chat(choice(content="Paris"), choice("stop"), done=False).finish == "stop"
    assert chat(choice(content="Paris"), done=True).finish == "stop"


@pytest.mark.requirement("L1", "L7")
def test_a_call_that_the_output_cap_cut_is_dropped_and_a_whole_one_is_kept() -> None:
    whole, half = piece(0, "c1", "read", '{"path":"a"}'), piece(1, "c2", "write", '{"path":"b","content":"x')
    reply = chat(whole, half, choice("length"))
    assert ([call.name for call in calls_of(reply.parts)], reply.finish) == (["read"], "length")
    assert calls_of(chat(piece(0, "c1", "delete_all"), choice("length")).parts) == ()


@pytest.mark.requirement("L1", "L7")
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_message_that_the_output_cap_cut_in_a_call_loses_that_call(is_streaming: bool) -> None:
    calls = (ReplyCall("read", '{"path":"a"}'), ReplyCall("write", '{"path":"b"' if is_streaming else {}))
    rendered = render(Reply(tool_calls=calls, finish="length"), "anthropic", 0, is_streaming=is_streaming)
    reader = MessageReader("anthropic:m", lambda delta: None)
    if is_streaming:
        reply = read(reader, rendered.body)
    else:
        reader.take_body(rendered.body)
        reply = reader.reply("")
    assert ([call.name for call in calls_of(reply.parts)], reply.finish) == (["read"], "length")


@pytest.mark.requirement("L1")
def test_malformed_arguments_of_a_finished_call_are_handed_on_as_they_are() -> None:
    reply = chat(piece(0, "c1", "read", '{"path": oops'), choice("tool_calls"))
    assert calls_of(reply.parts) == (ToolCall("c1", "read", '{"path": oops'),)


@pytest.mark.requirement("L7")
def test_an_error_inside_a_stream_is_a_failure_of_its_class() -> None:
    classes = {
        "rate_limited": {"message": "slow down", "code": 429},
        "provider_fatal": {"message": "Token limit", "code": 400},
        "provider_transient": {"message": "bad call", "code": "tool_use_failed", "status_code": 400},
        "context_overflow": {"message": "maximum context length is 4096 tokens", "code": 400},
    }
    for code, error in classes.items():
        with pytest.raises(BadResponse) as caught:
            chat(choice(content="x"), {"error": error})
        assert caught.value.failure.code == code
    overloaded = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
    with pytest.raises(BadResponse) as caught:
        read(MessageReader("anthropic:m", lambda delta: None), overloaded)
    assert caught.value.failure.code == "provider_transient"


@pytest.mark.requirement("C6")
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, 4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 4, 5, 0, 3),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, Usage(9, 4, 6)),
        ({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}, Usage(35, 74)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}, Usage(9, 4)),
    ],
)
def test_usage_is_read_from_all_the_places_where_servers_put_it(
    usage: dict[str, Any], expected: Usage
) -> None:
    assert chat(choice(content="x"), choice("stop"), {"choices": [], "usage": usage}).usage == expected
    assert chat(choice("stop", content="x"), {"x_groq": {"usage": usage}}).usage == expected


@pytest.mark.requirement("C6")
@pytest.mark.parametrize(
    ("prompt", "completion", "expected", "estimated"),
    [
        (9, 4, (9, 4), ()),
        (9.0, 4, (9, 4), ()),
        (0, 0, (0, 0), ()),
        (None, 4, (0, 4), ("input",)),
        (9, None, (9, 0), ("output",)),
        ("9", "4", (9, 4), ("input", "output")),
        (8.5, 3.2, (9, 4), ("input", "output")),
        ("many", [4], (0, 0), ("input", "output")),
        (-9, True, (0, 0), ("input", "output")),
        (10**9, 10**30, (0, 0), ("input", "output")),
        (10**400, "1e999", (0, 0), ("input", "output")),
        (1e9, "1000000000", (0, 0), ("input", "output")),
        ("nan", "1_0", (0, 0), ("input", "output")),
        (999_999_999, 4, (999_999_999, 4), ()),
    ],
)
def test_counts_that_are_no_plain_numbers_are_marked(
    prompt: object, completion: object, expected: tuple[int, int], estimated: tuple[str, ...]
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    replies = [chat(choice(content="x"), choice("stop"), {"choices": [], "usage": usage})]
    usage = {"input_tokens": prompt, "output_tokens": completion}
    start = {"type": "message_start", "message": {"usage": usage | {"output_tokens": 77}}}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    body = stream(start, delta, {"type": "message_stop"}, done=False)
    replies.append(read(MessageReader("anthropic:m", lambda delta: None), body))
    for reply in replies:
        assert (reply.usage, reply.estimated) == (Usage(*expected), estimated)


@pytest.mark.requirement("C6")
def test_a_server_without_usage_is_marked_as_such() -> None:
    reply = chat(choice("stop", content="Paris, of course"))
    assert (reply.usage, reply.estimated) == (Usage(), ("input", "output"))


@pytest.mark.requirement("C6")
def test_what_is_not_counted_plainly_makes_no_call_cheaper() -> None:
    cached = {"cached_tokens": "8", "cache_write_tokens": 999_999_999}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": cached}
    assert chat(choice("stop", content="x"), {"usage": usage}).usage == Usage(9, 4, 0, 9)


@pytest.mark.requirement("B8", "L7")
@pytest.mark.parametrize(("said", "counted"), [(30, 30), (999, 40), ("30", 0), (None, 0)])
def test_what_the_service_keeps_for_an_hour_is_counted_apart(said: object, counted: int) -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 40, "output_tokens": 1}
    kept = {"cache_creation": {"ephemeral_1h_input_tokens": said}}
    body = stream(
        {"type": "message_start", "message": {"usage": usage | kept}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
        done=False,
    )
    reply = read(MessageReader("anthropic:m", lambda delta: None), body)
    expected = Usage(45, 2, cache_write_tokens=40, cache_write_1h_tokens=counted)
    assert (reply.usage, reply.estimated) == (expected, ())


@pytest.mark.requirement("L7")
def test_reasoning_refusals_and_typed_content_are_kept_apart() -> None:
    assert chat(choice(reasoning_content="hm", reasoning="hm"), choice("stop", content="4")).parts == (
        Reasoning("deepseek", "hm"),
        Text("4"),
    )
    refused = chat(choice(refusal="I can't help."), choice("stop"))
    assert (text_of(refused.parts), refused.finish) == ("I can't help.", "refusal")
    typed = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
    ]
    assert chat(choice("stop", content=typed)).parts == (Reasoning("deepseek", "hm"), Text("4"))


@pytest.mark.requirement("L7")
def test_signed_reasoning_details_are_joined_and_kept_for_the_way_back() -> None:
    first = {"type": "reasoning.text", "index": 0, "text": "two ", "signature": None}
    second = {"type": "reasoning.text", "index": 0, "text": "and two", "signature": "c2ln"}
    reply = chat(choice(reasoning_details=[first]), choice(reasoning_details=[second]), choice("stop"))
    (reasoning,) = reply.parts
    assert isinstance(reasoning, Reasoning)
    assert reasoning.text == "two and two"
    joined = {"type": "reasoning.text", "index": 0, "text": "two and two", "signature": "c2ln"}
    assert json.loads(reasoning.payload) == [joined]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CALLS = st.builds(ReplyCall, st.sampled_from(["read", "write"]), st.dictionaries(TEXTS, TEXTS, max_size=3))
REPLIES = st.builds(
    Reply,
    TEXTS,
    TEXTS,
    st.lists(CALLS, max_size=3).map(tuple),
    st.just(Usage(9, 4)),
    pieces=st.integers(1, 6),
)


@pytest.mark.requirement("C2", "L7")
@pytest.mark.parametrize("wire", READERS)
@settings(deadline=None)
@given(REPLIES, st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_reply_in_any_chunking_is_read_like_the_whole_one(
    wire: Format, reply: Reply, sizes: list[int]
) -> None:
    shown: list[Delta] = []
    name = f"{wire}:m"
    body = render(reply, wire, 0, is_streaming=True).body
    cycle, at, chunks = itertools.cycle(sizes), 0, []
    while at < len(body):
        chunks.append(body[at : (at := at + next(cycle))])
    streamed = read(READERS[wire](name, shown.append), *chunks)
    whole = READERS[wire](name, shown.append)
    whole.take_body(render(reply, wire, 0, is_streaming=False).body)
    assert streamed == whole.reply("")
    assert text_of(streamed.parts) == reply.text
    assert [json.loads(call.arguments) for call in calls_of(streamed.parts)] == [
        call.arguments for call in reply.tool_calls
    ]
    assert "".join(delta.text for delta in shown if delta.kind == "text") == reply.text


@pytest.mark.requirement("C2", "L7")
@pytest.mark.parametrize("wire", READERS)
@settings(deadline=None)
@given(REPLIES, st.floats(0, 1))
def test_no_prefix_of_a_stream_is_taken_for_less_than_the_whole(
    wire: Format, reply: Reply, share: float
) -> None:
    body = render(reply, wire, 0, is_streaming=True).body
    try:
        got = read(READERS[wire](f"{wire}:m", lambda delta: None), body[: int(len(body) * share)])
    except BadResponse:
        return
    assert got.parts == read(READERS[wire](f"{wire}:m", lambda delta: None), body).parts


def halves(text: str) -> list[str]:
    """The text in UTF-16 units. A character outside the first plane is two halves, and neither is a character."""
    units = text.encode("utf-16-le")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


def cut_anywhere(draw: st.DrawFn, text: str) -> list[str]:
    units = halves(text)
    at = sorted(draw(st.lists(st.integers(0, len(units)), max_size=4)))
    return ["".join(units[start:end]) for start, end in itertools.pairwise([0, *at, len(units)])]


def say(wire: str, texts: list[str]) -> bytes:
    """A stream that says these pieces, every character outside ASCII escaped."""
    if wire == "openai":
        return stream(*(choice(content=text) for text in texts), choice("stop"))
    if wire == "responses":
        said = [{"type": "response.output_text.delta", "output_index": 0, "delta": text} for text in texts]
        begun = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}
        return stream(begun, *said, {"type": "response.completed", "response": {}})
    events = [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in texts
    ]
    return stream(*events, {"type": "message_stop"}, done=False)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("wire", READERS)
@settings(deadline=None)
@given(st.data())
def test_a_character_cut_in_two_is_put_together(wire: str, data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from('a"\\u🎈d漢😀'), min_size=1, max_size=12))
    shown: list[Delta] = []
    pieces = data.draw(st.composite(cut_anywhere)(text))
    reply = read(READERS[wire](f"{wire}:m", shown.append), say(wire, pieces))
    assert text_of(reply.parts) == text
    assert "".join(delta.text for delta in shown) == text


HIGH, LOW = "\ud83d", "\ude00"
"""The halves of an emoji."""


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([f"a{HIGH} b"], "a\ufffd b"),
        ([f"a{LOW} b"], "a\ufffd b"),
        ([f"{LOW}b"], "\ufffdb"),
        ([f"a{HIGH}{HIGH}{LOW}"], "a\ufffd😀"),
        ([f"a{HIGH}", f"{HIGH}{LOW}"], "a😀"),
        ([f"a{HIGH}", "b", "c"], "abc"),
        (["a", f"b{HIGH}"], "ab"),
        ([f'"{LOW}', f'\\{HIGH}"{LOW}'], '"\ufffd\\\ufffd"\ufffd'),
    ],
)
def test_half_a_character_without_the_other_half_does_no_harm(
    wire: str, pieces: list[str], expected: str
) -> None:
    shown: list[Delta] = []
    reply = read(READERS[wire](f"{wire}:m", shown.append), say(wire, pieces))
    assert text_of(reply.parts) == expected
    assert "".join(delta.text for delta in shown) == expected


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("odd", [b"\\ud83d", b"\xe9"], ids=["half an escape", "no UTF-8"])
def test_a_whole_response_with_what_is_no_character_is_read_all_the_same(odd: bytes) -> None:
    bodies = {
        "openai": b'{"choices":[{"message":{"content":"caf%b ol"},"finish_reason":"stop"}]}' % odd,
        "responses": b'{"output":[{"type":"message","content":[{"type":"output_text","text":"caf%b ol"}]}]}'
        % odd,
        "anthropic": b'{"content":[{"type":"text","text":"caf%b ol"}],"stop_reason":"end_turn"}' % odd,
    }
    for wire, body in bodies.items():
        reader = READERS[wire](f"{wire}:m", lambda delta: None)
        reader.take_body(body)
        assert text_of(reader.reply("").parts) == "caf\ufffd ol", wire
