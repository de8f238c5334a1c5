"""Encodes conversations for the Messages API of Anthropic and compatible servers.

Messages are encoded one by one, so a request grows only by what is new. `anthropic_reply` reads responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.providers.anthropic_reply import MessageReader
from holdfast.providers.http import HttpPool
from holdfast.providers.native import NativeProvider
from holdfast.providers.openai import call_ids, valid_name

API_VERSION = "2023-06-01"

_encode = msgspec.json.Encoder().encode
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_THOUGHTS = ("thinking", "redacted_thinking")
_NOTHING_SAID = "(no answer)"
"""Replaces an empty response: the API refuses a message without content."""


class AnthropicWire:
    """`ports.Wire` for the Messages API.

    The final pass keeps the tools but forbids calls, because the API needs the tools while the history has calls.
    """

    name = "anthropic"
    keeps_tools = True

    def __init__(self, provider: str, *, caches_conversation: bool) -> None:
        """`caches_conversation`: the server accepts the marker at the top level of a request, which ends the cached
        prefix at the last message. So messages never change.
        """
        self._provider = provider
        self._cache = ',"cache_control":{"type":"ephemeral"}' if caches_conversation else ""

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Encode model, system text and tools, with a cache marker. See `ports.Wire`."""
        chunks = [b'{"model":', _encode(facts.model)]
        if tools:
            chunks += [b',"tools":', _encode([_tool(spec) for spec in tools])]
        if system:
            block = {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}
            chunks += [b',"system":', _encode([block])]
        chunks.append(b',"messages":[')
        return b"".join(chunks)

    def message(self, message: Message) -> Sequence[bytes]:
        """Encode one element. All results of a turn are in one user message, as the API requires."""
        ids = call_ids(message)
        blocks = [block for part in message.parts if (block := self._block(part, ids)) is not None]
        if not blocks or blocks[-1]["type"] in _THOUGHTS:  # the API refuses thinking at the end, too
            blocks += [{"type": "text", "text": _NOTHING_SAID}]
        role = "assistant" if message.role == "assistant" else "user"
        return [_encode({"role": role, "content": blocks})]

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """Encode cache marker, output cap and streaming; in the final pass also that no tool may be called."""
        streaming = ',"stream":true' if is_streaming else ""
        final = ',"tool_choice":{"type":"none"}' if is_last_pass else ""
        return f']{self._cache},"max_tokens":{output_cap_tokens}{final}{streaming}}}'.encode()

    def _block(self, part: Part, ids: dict[str, str]) -> dict[str, Any] | None:
        match part:
            case Text(text=text):
                return {"type": "text", "text": text} if text.strip() else None
            case Reasoning():
                return self._thinking(part)
            case Media(media_type=media_type, data=data):
                kind = "document" if media_type == "application/pdf" else "image"
                source = {"type": "base64", "media_type": media_type, "data": data}
                return {"type": kind, "source": source}
            case ToolCall():
                call_id, name = _valid_id(ids[part.call_id]), valid_name(part.name)
                return {"type": "tool_use", "id": call_id, "name": name, "input": _input(part.arguments)}
            case ToolResult():
                block = {
                    "type": "tool_result",
                    "tool_use_id": _valid_id(ids[part.call_id]),
                    "content": part.text,
                }
                return block | ({"is_error": True} if part.is_error else {})

    def _thinking(self, part: Reasoning) -> dict[str, Any] | None:
        """Return signed thinking unchanged to the provider that signed it. Leave out other thinking."""
        if part.provider != self._provider or not part.payload:
            return None
        sealed: dict[str, Any] = msgspec.json.decode(part.payload)
        if "data" in sealed:
            return {"type": "redacted_thinking", **sealed}
        return {"type": "thinking", "thinking": part.text, **sealed}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def _valid_id(call_id: str) -> str:
    return _NOT_IN_IDS.sub("_", call_id)


def _input(arguments: str) -> msgspec.Raw | dict[str, Any]:
    """Return the arguments as an object, which the API requires. Malformed ones become an empty object; the result
    that follows tells the model what was wrong.
    """
    try:
        value = decode_untrusted(arguments or "{}")
    except msgspec.DecodeError:
        return {}
    return msgspec.Raw(arguments.encode()) if isinstance(value, dict) and arguments else {}


def anthropic_provider(provider: str, base_url: str, api_key: str, http: HttpPool) -> NativeProvider:
    """Return a provider at `base_url`, with or without the API's version (`https://api.anthropic.com`)."""
    root = base_url.rstrip("/").removesuffix("/v1")
    return NativeProvider(
        AnthropicWire(provider, caches_conversation=urlsplit(root).hostname == "api.anthropic.com"),
        f"{root}/v1/messages",
        http,
        MessageReader,
        headers={"anthropic-version": API_VERSION} | ({"x-api-key": api_key} if api_key else {}),
        secret=api_key,
    )
