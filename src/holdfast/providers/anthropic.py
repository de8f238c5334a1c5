"""Encodes conversations for the Messages API of Anthropic and compatible servers.

Messages are encoded one by one, so a request grows only by what is new. `anthropic_reply` reads responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.untrusted import decode_untrusted
from holdfast.providers.anthropic_reply import MessageReader
from holdfast.providers.http import HttpPool, Link
from holdfast.providers.native import NativeProvider
from holdfast.providers.openai import call_ids, valid_name
from holdfast.providers.options import written

API_VERSION = "2023-06-01"
_HOST = "api.anthropic.com"

_encode = msgspec.json.Encoder().encode
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_MARK = "cache_control"
_BEGINNING = b'{"role":"user"'
_ENDING = b"}]}"
"""What comes after the last field of the last block of a message."""
_EMPTY_BLOCKS = (b'"content":""}]}', b'"content":"","is_error":true}]}')
"""How a message ends whose last block is empty. Inside a text, quotes have a backslash before them."""
_THOUGHTS = ("thinking", "redacted_thinking")
_NOTHING_SAID = "(no answer)"
"""Replaces an empty response: the API refuses a message without content."""


Cache = Literal["top", "blocks", "off"]
"""How a server learns what to keep in its cache. `top`: by one mark on the whole request, which ends at the last
message. `blocks`: by marks on blocks. The system prompt has a mark in both.
"""


class AnthropicWire:
    """`ports.Wire` for the Messages API.

    The final pass keeps the tools but forbids calls, because the API needs the tools while the history has calls.
    """

    name = "anthropic"
    keeps_tools = True

    def __init__(self, provider: str, cache: Cache, *, keeps_an_hour: bool = False) -> None:
        """`keeps_an_hour`: what is in the cache stays there for an hour, and not for five minutes."""
        self._provider = provider
        kept = {"type": "ephemeral", "ttl": "1h"} if keeps_an_hour else {"type": "ephemeral"}
        self._kept: dict[str, Any] = {} if cache == "off" else {_MARK: kept}
        text = f',"{_MARK}":{_encode(kept).decode()}'
        self._top, self._inserted = (text if cache == "top" else ""), (text if cache == "blocks" else "")

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Encode model, system text and tools, with a cache marker. See `ports.Wire`."""
        chunks = [b'{"model":', _encode(facts.model)]
        if tools:
            chunks += [b',"tools":', _encode([_tool(spec) for spec in tools])]
        if system:
            block = {"type": "text", "text": system, **self._kept}
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
        cap = f']{self._top},"max_tokens":{output_cap_tokens}'.encode()
        options = written(facts.options, '"output_config":{"effort":"%s"}')
        return cap + options + f"{final}{streaming}}}".encode()

    def cache_point(self, element: bytes) -> tuple[int, str] | None:
        """Return the mark for the last block of a user's message. An empty block may have none, and only responses
        have thinking, which may have none either. See `ports.PointedWire`."""
        if not self._inserted or element.endswith(_EMPTY_BLOCKS) or not element.startswith(_BEGINNING):
            return None
        return len(_ENDING), self._inserted

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


def anthropic_provider(
    provider: str,
    base_url: str,
    api_key: str,
    http: HttpPool,
    link: Link,
) -> NativeProvider:
    """Return a provider at `base_url`, with or without the API's version (`https://api.anthropic.com`). `auto` marks
    the whole request where the server is known to read that mark, otherwise blocks."""
    root = base_url.rstrip("/").removesuffix("/v1")
    reads_top = link.cache == "auto" and urlsplit(root).hostname == _HOST
    return NativeProvider(
        AnthropicWire(
            provider,
            "off" if link.cache == "off" else "top" if reads_top else "blocks",
            keeps_an_hour=link.keeps_an_hour,
        ),
        f"{root}/v1/messages",
        http,
        MessageReader,
        headers={"anthropic-version": API_VERSION} | ({"x-api-key": api_key} if api_key else {}),
        secret=api_key,
        link=link,
    )
