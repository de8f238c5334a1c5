"""Reads responses of the Messages API, streamed or whole, into parts and usage.

A whole response is read block by block like a stream, so there is one set of rules.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.protocol.messages import Finish, ModelReply, Part, Reasoning, Text, ToolCall, Usage
from holdfast.protocol.ports import Delta, OnDelta
from holdfast.providers.errors import BadResponse, cut_short, from_error_object, wrong_shape
from holdfast.providers.objects import Objects, is_json, parse_object
from holdfast.providers.sse import Event, Heard
from holdfast.providers.usage import NOTHING_REPORTED, Count, Reported, count, plain, reported

_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Block:
    """One content block as it grows: its beginning, and what was added."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.kind = _text(start.get("type"))
        self.start = start
        self.added: list[str] = []
        self.signature = [_text(start.get("signature"))]

    def text(self, key: str) -> str:
        return _text(self.start.get(key)) + "".join(self.added)


class MessageReader:
    """`native.Reader` for the Messages API. It skips blocks of the server's own tools."""

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self._model = model
        self._on_delta = on_delta
        self._objects = Objects()
        self._counts: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._stop_reason = ""
        self._is_done = False
        self._said_model = ""
        self._id = ""

    @property
    def is_whole(self) -> bool:
        """See `native.Reader`. Only `message_stop` ends a response."""
        return self._is_done

    @property
    def reported(self) -> Reported:
        """See `native.Reader`."""
        if not self._counts:
            return NOTHING_REPORTED
        cached = (
            self._counts.get("cache_read_input_tokens", 0),
            self._counts.get("cache_creation_input_tokens", 0),
        )
        read = [count(self._counts.get("input_tokens")), *map(count, cached)]
        written = count(self._counts.get("output_tokens"))
        usage = Usage(
            input_tokens=sum(each.tokens for each in read),
            output_tokens=written.tokens,
            cache_read_tokens=plain(cached[0]),
            cache_write_tokens=plain(cached[1]),
            reasoning_tokens=plain(_dict(self._counts.get("output_tokens_details")).get("thinking_tokens")),
            cache_write_1h_tokens=min(
                plain(_dict(self._counts.get("cache_creation")).get("ephemeral_1h_input_tokens")),
                plain(cached[1]),
            ),
        )
        return reported(usage, Count(usage.input_tokens, all(each.is_plain for each in read)), written)

    @property
    def received_bytes(self) -> int:
        """See `native.Reader`."""
        blocks = self._blocks.values()
        texts = [
            text for block in blocks for text in (block.text("text"), _text(block.start.get("thinking")))
        ]
        return sum(len(text.encode()) for text in texts)

    def take(self, event: Event) -> Heard:
        """See `native.Reader`. Skips unknown kinds of events, as the API requires."""
        data = self._objects.read(event.data)
        match data.get("type") or event.type:
            case "message_start":
                self._take_head(_dict(data.get("message")))
                self._counts.pop("output_tokens", None)  # at the beginning: it says nothing about the whole
            case "content_block_start":
                self._start(data.get("index"), _dict(data.get("content_block")))
            case "content_block_delta":
                self._add(data.get("index"), _dict(data.get("delta")))
            case "message_delta":
                self._stop_reason = _text(_dict(data.get("delta")).get("stop_reason")) or self._stop_reason
                self._take_usage(_dict(data.get("usage")))
            case "message_stop":
                self._is_done = True
                return Heard.END
            case "ping":
                return Heard.NOTHING
            case "error":
                raise BadResponse(from_error_object(data.get("error"), self._model))
        return Heard.SOMETHING

    def take_body(self, body: bytes) -> None:
        """See `native.Reader`."""
        message = parse_object(body)
        if message.get("error"):
            raise BadResponse(from_error_object(message["error"], self._model))
        content = message.get("content")
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise BadResponse(wrong_shape("a message without content", body.decode("utf-8", "replace")))
        self._on_delta = _nobody
        self._take_head(message)
        for index, block in enumerate(content):
            self._start(index, block)
        self._stop_reason = _text(message.get("stop_reason"))
        self._is_done = True

    def reply(self, request_ref: str) -> ModelReply:
        """See `native.Reader`."""
        if not self._is_done:
            raise BadResponse(cut_short())
        finish = _FINISH.get(self._stop_reason, "other")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        if finish == "length" and blocks and _may_be_half(blocks[-1]):
            blocks.pop()
        parts = [part for block in blocks if (part := self._part(block)) is not None]
        return ModelReply(
            tuple(parts),
            self.reported.usage,
            finish,
            self._said_model,
            request_ref or self._id,
            self.reported.estimated,
        )

    def _take_head(self, message: dict[str, Any]) -> None:
        self._said_model, self._id = _text(message.get("model")), _text(message.get("id"))
        self._take_usage(_dict(message.get("usage")))

    def _start(self, index: object, start: dict[str, Any]) -> None:
        if not isinstance(index, int):
            raise BadResponse(wrong_shape("a content block without an index", str(start)))
        block = self._blocks[index] = _Block(start)
        if block.kind == "text":
            self._show("text", _text(start.get("text")))
        elif block.kind == "thinking":
            self._show("reasoning", _text(start.get("thinking")))

    def _add(self, index: object, delta: dict[str, Any]) -> None:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None:
            raise BadResponse(wrong_shape("a delta for a block that has not begun", str(delta)))
        match delta.get("type"):
            case "text_delta":
                block.added.append(_text(delta.get("text")))
                self._show("text", block.added[-1])
            case "thinking_delta":
                block.added.append(_text(delta.get("thinking")))
                self._show("reasoning", block.added[-1])
            case "input_json_delta":
                block.added.append(_text(delta.get("partial_json")))
            case "signature_delta":
                block.signature.append(_text(delta.get("signature")))

    def _take_usage(self, reported: dict[str, Any]) -> None:
        """Later reports are running totals: a new count replaces the one before."""
        self._counts |= {name: value for name, value in reported.items() if value is not None}

    def _part(self, block: _Block) -> Part | None:
        provider = self._model.partition(":")[0]
        match block.kind:
            case "text":
                text = block.text("text")
                return Text(text) if text else None
            case "thinking":
                text, signature = block.text("thinking"), "".join(block.signature)
                payload = _sealed("signature", signature) if signature else ""
                return Reasoning(provider, text, payload) if text or payload else None
            case "redacted_thinking":
                return Reasoning(provider, "", _sealed("data", _text(block.start.get("data"))))
            case "tool_use":
                return _call(block)
            case _:
                return None

    def _show(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if text:
            self._on_delta(Delta(kind, text))


def _call(block: _Block) -> ToolCall:
    arguments = "".join(block.added) or msgspec.json.encode(block.start.get("input") or {}).decode()
    return ToolCall(_text(block.start.get("id")), _text(block.start.get("name")), arguments)


def _may_be_half(block: _Block) -> bool:
    """Return whether the output cap may have cut this last block inside a call. Streamed arguments show it; an input
    that came as an object does not.
    """
    return block.kind == "tool_use" and not is_json("".join(block.added))


def _sealed(key: str, value: str) -> str:
    return msgspec.json.encode({key: value}).decode()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _nobody(delta: Delta) -> None:
    """Ignores the deltas of a whole response."""
