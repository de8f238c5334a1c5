"""Replies of a test model server as data, with their exact bytes in each wire format.

Pure: `model_server` does sending, delays and broken connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from holdfast.protocol.messages import Usage

Fault = Literal["", "stall", "cut", "reset", "ping", "bad_json", "wrong_shape", "html", "empty"]
"""`stall`: silence after half of the body; `cut`: the connection is closed there; `reset`: it is reset there; `ping`:
from there on only keep-alives are sent; `bad_json`: half a body that claims to be whole; `wrong_shape`, `html`,
`empty`: something else with a 200.
"""

Format = Literal["openai", "responses", "anthropic"]

_MODEL = "scripted"
_OPENAI_STOPS = {"refusal": "content_filter"}
_ANTHROPIC_STOPS = {
    "stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal",
}  # fmt: skip
_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
_PINGS = {
    "openai": b": ping\n\n",
    "responses": b": ping\n\n",
    "anthropic": b': ping\n\nevent: ping\ndata: {"type":"ping"}\n\n',
}
_encode = msgspec.json.Encoder().encode


class ReplyCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. Arguments given as text are sent unchanged, even if they are malformed."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = "call"
    """The calls of one reply are numbered after it."""
    extra_content: dict[str, Any] = {}
    """What is beside the call in Chat Completions."""

    @property
    def text(self) -> str:
        """Return the arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else _encode(self.arguments).decode()


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One response of the server."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ReplyCall, ...] = ()
    usage: Usage | None = Usage(input_tokens=10, output_tokens=5)
    """None: the server reports none."""
    report: dict[str, Any] | None = None
    """What the server reports instead, with the names of its wire format, true or not."""
    finish: Literal["", "stop", "tool_calls", "length", "refusal", "none"] = ""
    """Empty: the usual one. `none`: it is left out."""
    pieces: Annotated[int, msgspec.Meta(ge=1)] = 1
    """The number of deltas of a streamed text."""
    status: int = 200
    message: str = "scripted failure"
    """For another status than 200: the text of the error."""
    headers: dict[str, str] = {}
    fault: Fault = ""
    delay_s: float = 0.0
    """Before the first byte."""
    chunk_bytes: int = 0
    """The number of bytes sent at a time; 0 sends all at once."""
    pause_s: float = 0.0
    """Between those."""
    repeat: bool = False
    """On the last reply: it is sent for every later request too."""


class Rendered(msgspec.Struct, frozen=True):
    """The bytes of a reply."""

    status: int
    content_type: str
    body: bytes
    ping: bytes = b"\n"
    """What a server sends to keep the connection alive."""


def render(reply: Reply, wire: Format, number: int, *, is_streaming: bool) -> Rendered:
    """Return the reply in a wire format. `number` makes the ids of its calls unique."""
    if reply.status != 200:
        return Rendered(reply.status, "application/json", _encode(_error(reply, wire)))
    match reply.fault:
        case "wrong_shape":
            return Rendered(200, "application/json", b'{"hello":["world"]}')
        case "html":
            return Rendered(200, "text/html", b"<html><body>Sign in to the network</body></html>")
        case "empty":
            return Rendered(200, "application/json", b"")
    if is_streaming:
        events = _EVENTS[wire](reply, number)
        rendered = Rendered(200, "text/event-stream", b"".join(events), _PINGS[wire])
    else:
        whole = _WHOLE[wire](reply, number)
        rendered = Rendered(200, "application/json", _encode(whole))
    if reply.fault == "bad_json":
        return msgspec.structs.replace(rendered, body=rendered.body[: len(rendered.body) // 2])
    return rendered


def _error(reply: Reply, wire: Format) -> dict[str, Any]:
    error = {"type": "scripted_error", "message": reply.message}
    return {"type": "error", "error": error} if wire == "anthropic" else {"error": error}


def _finish(reply: Reply) -> str | None:
    if reply.finish == "none":
        return None
    return reply.finish or ("tool_calls" if reply.tool_calls else "stop")


def _reported(reply: Reply, written: Callable[[Usage], dict[str, Any]]) -> dict[str, Any]:
    if reply.report is not None:
        return {"usage": reply.report}
    return {"usage": written(reply.usage)} if reply.usage else {}


def _pieces(text: str, count: int) -> list[str]:
    size = max(-(-len(text) // count), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _call_id(call: ReplyCall, number: int, index: int) -> str:
    return f"{call.id}_{number}_{index}"


# --- Chat Completions ---------------------------------------------------------------------------


def _openai_finish(reply: Reply) -> str | None:
    finish = _finish(reply)
    return _OPENAI_STOPS.get(finish, finish) if finish else None


def _openai_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _openai_call(call: ReplyCall, number: int, index: int, arguments: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    extra = {"extra_content": call.extra_content} if call.extra_content else {}
    return {
        "index": index,
        "id": _call_id(call, number, index),
        "type": "function",
        "function": function,
        **extra,
    }


def _openai_whole(reply: Reply, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            _openai_call(call, number, index, call.text) for index, call in enumerate(reply.tool_calls)
        ]
    whole: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": _MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": _openai_finish(reply)}],
    }
    return whole | _reported(reply, _openai_usage)


def _openai_events(reply: Reply, number: int) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(reply.reasoning, reply.pieces)]
    deltas += [{"content": piece} for piece in _pieces(reply.text, reply.pieces)]
    for index, call in enumerate(reply.tool_calls):
        deltas.append({"tool_calls": [_openai_call(call, number, index, "")]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(call.text, 2)
        ]
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "model": _MODEL}
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas
    ]
    if finish := _openai_finish(reply):
        choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    chunks: list[dict[str, Any]] = [head | {"choices": choice} for choice in choices]
    if reported := _reported(reply, _openai_usage):
        chunks.append(head | {"choices": []} | reported)
    ending = [b"data: [DONE]\n\n"] if finish else []
    return [b"data: " + _encode(chunk) + b"\n\n" for chunk in chunks] + ending


# --- Responses ----------------------------------------------------------------------------------


def _responses_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _responses_items(reply: Reply, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        sealed = {"summary": summary, "encrypted_content": "c2VhbGVk"}
        items.append({"type": "reasoning", "id": f"rs_{number}", **sealed})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        said = {"status": "completed", "role": "assistant", "content": content}
        items.append({"type": "message", "id": f"msg_{number}", **said})
    for index, call in enumerate(reply.tool_calls):
        call_id = _call_id(call, number, index)
        asked = {"call_id": call_id, "name": call.name, "arguments": call.text, "status": "completed"}
        items.append({"type": "function_call", "id": f"fc_{number}_{index}", **asked})
    return items


def _responses_whole(reply: Reply, number: int) -> dict[str, Any]:
    reason = _INCOMPLETE.get(_finish(reply) or "")
    whole = {
        "id": f"resp_{number}",
        "object": "response",
        "model": _MODEL,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _responses_items(reply, number),
    }
    return whole | _reported(reply, _responses_usage)


def _responses_events(reply: Reply, number: int) -> list[bytes]:
    whole = _responses_whole(reply, number)
    start = {"id": whole["id"], "object": "response", "model": _MODEL, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": start}]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        kind, key, text = _responses_grown(item)
        emptied = item | {key: "" if key == "arguments" else []}
        events.append({"type": "response.output_item.added", "output_index": index, "item": emptied})
        pieces = _pieces(text, 2 if key == "arguments" else reply.pieces)
        events += [{"type": f"response.{kind}.delta", **at, "delta": piece} for piece in pieces]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    if _finish(reply):
        events.append({"type": f"response.{whole['status']}", "response": whole})
    return [b"event: " + event["type"].encode() + b"\ndata: " + _encode(event) + b"\n\n" for event in events]


def _responses_grown(item: dict[str, Any]) -> tuple[str, str, str]:
    """Return what the deltas of an item are called, the field that they fill, and its text."""
    match item["type"]:
        case "reasoning":
            return "reasoning_summary_text", "summary", item["summary"][0]["text"]
        case "message":
            return "output_text", "content", item["content"][0]["text"]
        case _:
            return "function_call_arguments", "arguments", item["arguments"]


# --- Messages -----------------------------------------------------------------------------------


def _anthropic_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_write_1h_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _anthropic_blocks(reply: Reply, number: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.tool_calls):
        given = call.arguments if isinstance(call.arguments, dict) else {}
        call_id = f"toolu_{_call_id(call, number, index)}"
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": given})
    return blocks


def _anthropic_whole(reply: Reply, number: int) -> dict[str, Any]:
    whole = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": _anthropic_blocks(reply, number),
        "stop_reason": _ANTHROPIC_STOPS.get(_finish(reply) or ""),
    }
    return whole | _reported(reply, _anthropic_usage)


def _anthropic_events(reply: Reply, number: int) -> list[bytes]:
    start = _anthropic_whole(reply, number) | {"content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    texts = iter([call.text for call in reply.tool_calls])
    for index, block in enumerate(_anthropic_blocks(reply, number)):
        emptied, deltas = _anthropic_deltas(block, reply.pieces, texts.__next__)
        events.append({"type": "content_block_start", "index": index, "content_block": emptied})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if finish := _finish(reply):
        delta = {"stop_reason": _ANTHROPIC_STOPS[finish]}
        usage = _reported(reply, _anthropic_usage) or {"usage": {}}
        events += [{"type": "message_delta", "delta": delta, **usage}, {"type": "message_stop"}]
    return [b"event: " + event["type"].encode() + b"\ndata: " + _encode(event) + b"\n\n" for event in events]


def _anthropic_deltas(
    block: dict[str, Any], pieces: int, next_arguments: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and the deltas that fill it."""
    match block["type"]:
        case "thinking":
            signed = [{"type": "signature_delta", "signature": block["signature"]}]
            deltas = [{"type": "thinking_delta", "thinking": p} for p in _pieces(block["thinking"], pieces)]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas + signed
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], pieces)]
            return {"type": "text", "text": ""}, deltas
        case _:
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in _pieces(next_arguments(), 2)]
            return block | {"input": {}}, deltas


_WHOLE: dict[Format, Callable[[Reply, int], dict[str, Any]]] = {
    "openai": _openai_whole,
    "responses": _responses_whole,
    "anthropic": _anthropic_whole,
}
_EVENTS: dict[Format, Callable[[Reply, int], list[bytes]]] = {
    "openai": _openai_events,
    "responses": _responses_events,
    "anthropic": _anthropic_events,
}
