"""Encodes conversations for Chat Completions of OpenAI and compatible servers.

Messages are encoded one by one, so a request grows only by what is new. `openai_reply` reads responses.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import (
    Media,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    calls_of,
    text_of,
)
from holdfast.protocol.ports import Wire
from holdfast.protocol.tools import ToolSpec
from holdfast.providers.http import HttpPool, Link
from holdfast.providers.native import NativeProvider
from holdfast.providers.openai_reply import ChatReader
from holdfast.providers.options import written
from holdfast.providers.signed_calls import SignedReader, extras

_encode = msgspec.json.Encoder().encode
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 64
_KEY_CHARS = 64
"""The service refuses a longer key for its cache."""


class Dialect(msgspec.Struct, frozen=True):
    """How one server's Chat Completions differ from the others'."""

    cap_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Compatible servers know only the older name; OpenAI's newer models know only the newer one."""
    has_stream_options: bool = True
    """If false, the server reports the usage of a stream without being asked, and refuses to be asked."""
    reasoning_field: Literal["", "reasoning_content", "reasoning_details", "extra_content"] = ""
    """Where to return the model's own reasoning with its tool calls, for servers that need it: `extra_content` beside
    each call (`signed_calls`), the others beside the list of calls.
    """
    takes_text_only: bool = False
    """If true, the server refuses content that is a list of parts."""
    call_id_chars: int = 0
    """The id of a call must have exactly this many letters and digits; 0 allows any text."""
    has_cache_key: bool = False
    """Whether the server keeps requests with the same `prompt_cache_key` together."""
    longest_call_id: int = 0
    """The most characters of the id of a call; 0 for any number."""


class OpenAIWire:
    """`ports.Wire` for Chat Completions."""

    name = "openai"
    keeps_tools = False

    def __init__(self, provider: str, dialect: Dialect, *, cache_key: str = "") -> None:
        self._provider = provider
        self._dialect = dialect
        self._key = cache_key_field(cache_key)

    def keyed(self, session: str) -> Wire:
        """See `ports.KeyedWire`."""
        if not self._dialect.has_cache_key:
            return self
        return OpenAIWire(self._provider, self._dialect, cache_key=session)

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Encode model and tools, with the system message first in the list. See `ports.Wire`."""
        chunks = [b'{"model":', _encode(facts.model)]
        if tools:
            chunks += [b',"tools":', _encode([_tool(spec) for spec in tools])]
        chunks.append(b',"messages":[')
        if system:
            chunks += [_encode({"role": "system", "content": system}), b","]
        return b"".join(chunks)

    def message(self, message: Message) -> Sequence[bytes]:
        """Encode one element for words, and one for each tool result, and one for their media. See `ports.Wire`."""
        match message.role:
            case "user":
                return [_encode({"role": "user", "content": self._content(message)})]
            case "assistant":
                return [_encode(self._assistant(message))]
            case "tool":
                ids = self._ids(message)
                results = [
                    _encode({"role": "tool", "tool_call_id": ids[part.call_id], "content": part.text})
                    for part in message.parts
                    if isinstance(part, ToolResult)
                ]
                # A tool message has words only. What else the tools returned follows as a user's.
                media = [found for part in message.parts if (found := _part(part)) is not None]
                return [*results, _encode({"role": "user", "content": media})] if media else results

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """Encode output cap and streaming. The base of the final pass has no tools."""
        asked = ',"stream_options":{"include_usage":true}' if self._dialect.has_stream_options else ""
        streaming = f',"stream":true{asked}' if is_streaming else ""
        cap = f'],"{self._dialect.cap_field}":{output_cap_tokens}'.encode()
        return cap + written(facts.options, '"reasoning_effort":"%s"') + f"{self._key}{streaming}}}".encode()

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        """Return the words as a text; with attachments, a list of parts, if the server takes one."""
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        if len(message.parts) == 1 or (self._dialect.takes_text_only and len(texts) == len(message.parts)):
            return "\n\n".join(texts)
        return [found for part in message.parts if (found := _part(part)) is not None]

    def _assistant(self, message: Message) -> dict[str, Any]:
        text, calls = text_of(message.parts), calls_of(message.parts)
        said: dict[str, Any] = {"role": "assistant"}
        if text or not calls:
            said["content"] = text
        if calls:
            said |= self._reasoning(message)
            ids, signed = self._ids(message), self._extras(message)
            said["tool_calls"] = [
                {
                    "id": ids[call.call_id],
                    "type": "function",
                    "function": {"name": valid_name(call.name), "arguments": call.arguments or "{}"},
                }
                | ({"extra_content": signed.pop(call.ref)} if call.ref in signed else {})
                for call in calls
            ]
        return said

    def _ids(self, message: Message) -> dict[str, str]:
        ids, chars, most = call_ids(message), self._dialect.call_id_chars, self._dialect.longest_call_id
        if chars:
            return {own: fitted_id(given, chars) for own, given in ids.items()}
        if most:
            return {
                own: given if len(given) <= most else fitted_id(given, most) for own, given in ids.items()
            }
        return ids

    def _thoughts(self, message: Message) -> list[Reasoning]:
        return [p for p in message.parts if isinstance(p, Reasoning) and p.provider == self._provider]

    def _extras(self, message: Message) -> dict[str, Any]:
        return extras(self._thoughts(message)) if self._dialect.reasoning_field == "extra_content" else {}

    def _reasoning(self, message: Message) -> dict[str, Any]:
        field = self._dialect.reasoning_field
        if not field:
            return {}
        own = self._thoughts(message)
        if field == "reasoning_content" and own:
            return {field: "".join(part.text for part in own)}
        if field == "reasoning_details" and (signed := [part.payload for part in own if part.payload]):
            return {field: [entry for payload in signed for entry in msgspec.json.decode(payload)]}
        return {}


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Media(media_type="application/pdf", name=name, data=data):
            title = name if name.casefold().endswith(".pdf") else "document.pdf"
            file = {"filename": title, "file_data": f"data:application/pdf;base64,{data}"}
            return {"type": "file", "file": file}
        case Media(media_type=media_type, data=data):
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
        case _:
            return None


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def call_ids(message: Message) -> dict[str, str]:
    """Return the wire id of each call of a message, by our call id: the provider's own id if it is unique in the
    message, otherwise ours. A call and its result get the same id.
    """
    calls = [part for part in message.parts if isinstance(part, (ToolCall, ToolResult))]
    if len(calls) == 1:
        return {calls[0].call_id: calls[0].ref or calls[0].call_id}
    counts = Counter(call.ref for call in calls)
    return {call.call_id: call.ref if call.ref and counts[call.ref] == 1 else call.call_id for call in calls}


def cache_key_field(session: str) -> str:
    """Return the field that names a session to OpenAI, which keeps the requests of one name in one cache."""
    return f',"prompt_cache_key":{_encode(session[:_KEY_CHARS]).decode()}' if session else ""


def fitted_id(given: str, chars: int) -> str:
    """Return the id if it has that many letters and digits, otherwise one derived from it."""
    if len(given) == chars and given.isascii() and given.isalnum():
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:chars]


def valid_name(name: str) -> str:
    """Return a tool's name as servers accept it: an invented name must not break every later request."""
    return _NOT_IN_NAMES.sub("_", name)[:_NAME_CHARS] or "unnamed"


def openai_provider(
    provider: str, base_url: str, api_key: str, http: HttpPool, link: Link, dialect: Dialect
) -> NativeProvider:
    """Return a provider at `base_url`, which ends in the API's version (`https://api.openai.com/v1`)."""
    return NativeProvider(
        OpenAIWire(provider, dialect),
        f"{base_url.rstrip('/')}/chat/completions",
        http,
        SignedReader if dialect.reasoning_field == "extra_content" else ChatReader,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        secret=api_key,
        link=link,
    )
