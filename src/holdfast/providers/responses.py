"""Encodes conversations for the Responses API of OpenAI and compatible servers.

The service keeps nothing: a request has the whole conversation, with the reasoning that it sealed for us. Messages
are encoded one by one, so a request grows only by what is new. `responses_reply` reads responses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.protocol.ports import Wire
from holdfast.protocol.tools import ToolSpec
from holdfast.providers.http import HttpPool, Link
from holdfast.providers.native import NativeProvider
from holdfast.providers.openai import cache_key_field, call_ids, valid_name
from holdfast.providers.options import written
from holdfast.providers.responses_reply import ResponseReader

_encode = msgspec.json.Encoder().encode
_ID_CHARS = 64
_NOTHING_SAID = "(no answer)"
"""Replaces an empty response: a message needs content."""
_SEALS_NOTHING = ("gpt-3*", "gpt-4*", "chatgpt-*", "gpt-5-chat*", "ft:gpt-3*", "ft:gpt-4*")
"""Models that do not reason. The service refuses to be asked for the sealed reasoning of one."""


class ResponsesWire:
    """`ports.Wire` for the Responses API.

    The last pass keeps the tools but forbids calls, so that the beginning of the request stays as it was.
    """

    name = "responses"
    keeps_tools = True

    def __init__(self, provider: str, *, has_cache_key: bool = False, cache_key: str = "") -> None:
        """`has_cache_key`: the server keeps requests with the same key together."""
        self._provider = provider
        self._has_cache_key = has_cache_key
        self._key = cache_key_field(cache_key)

    def keyed(self, session: str) -> Wire:
        """See `ports.KeyedWire`."""
        if not self._has_cache_key:
            return self
        return ResponsesWire(self._provider, has_cache_key=True, cache_key=session)

    def base(self, facts: ModelFacts, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """Encode model, tools and instructions, and what the service shall not keep. See `ports.Wire`."""
        chunks = [b'{"model":', _encode(facts.model), b',"store":false']
        if not any(fnmatchcase(facts.model, glob) for glob in _SEALS_NOTHING):
            chunks.append(b',"include":["reasoning.encrypted_content"]')
        if tools:
            chunks += [b',"tools":', _encode([_tool(spec) for spec in tools])]
        if system:
            chunks += [b',"instructions":', _encode(system)]
        chunks.append(b',"input":[')
        return b"".join(chunks)

    def message(self, message: Message) -> Sequence[bytes]:
        """Encode each item: words, reasoning, calls and results are items of their own. See `ports.Wire`."""
        match message.role:
            case "user":
                return [_encode({"role": "user", "content": _content(message.parts)})]
            case "assistant":
                said = [_encode(item) for item in self._said(message)]
                return said or [_encode({"role": "assistant", "content": _NOTHING_SAID})]
            case "tool":
                ids = _ids(message)
                results = [
                    _encode(
                        {"type": "function_call_output", "call_id": ids[part.call_id], "output": part.text}
                    )
                    for part in message.parts
                    if isinstance(part, ToolResult)
                ]
                # What else the tools returned follows as a user's.
                media = [found for part in message.parts if (found := _part(part)) is not None]
                return [*results, _encode({"role": "user", "content": media})] if media else results

    def tail(
        self, facts: ModelFacts, output_cap_tokens: int, *, is_streaming: bool, is_last_pass: bool
    ) -> bytes:
        """Encode output cap and streaming; in the last pass also that no tool may be called."""
        streaming = ',"stream":true' if is_streaming else ""
        final = ',"tool_choice":"none"' if is_last_pass else ""
        cap = f'],"max_output_tokens":{output_cap_tokens}'.encode()
        options = written(facts.options, '"reasoning":{"effort":"%s"}')
        return cap + options + f"{self._key}{final}{streaming}}}".encode()

    def _said(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the items of a response in their order. Reasoning goes back with what followed it, and only to the
        provider that sealed it: the service refuses it alone.
        """
        ids, held = _ids(message), list[dict[str, Any]]()
        phase: dict[str, Any] = {}
        for part in message.parts:
            match part:
                case Reasoning():
                    sealed = self._sealed(part)
                    if "phase" in sealed:
                        phase = sealed
                    elif sealed:
                        held.append({"type": "reasoning", "summary": [], **sealed})
                case Text(text=text) if text:
                    yield from held
                    yield {"role": "assistant", "content": text, **phase}
                    held, phase = [], {}
                case ToolCall():
                    yield from held
                    held = []
                    yield {
                        "type": "function_call",
                        "call_id": ids[part.call_id],
                        "name": valid_name(part.name),
                        "arguments": part.arguments or "{}",
                    }

    def _sealed(self, part: Reasoning) -> dict[str, Any]:
        if part.provider != self._provider or not part.payload:
            return {}
        sealed: dict[str, Any] = msgspec.json.decode(part.payload)
        return sealed


def _ids(message: Message) -> dict[str, str]:
    return {own: _valid_id(given) for own, given in call_ids(message).items()}


def _valid_id(given: str) -> str:
    """Return the id if it has the length that the service takes, otherwise one derived from it."""
    if 0 < len(given) <= _ID_CHARS:
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Return words alone as a text, and words with attachments as a list."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == 1 == len(parts):
        return texts[0]
    return [found for part in parts if (found := _part(part)) is not None]


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Media(media_type="application/pdf", name=name, data=data):
            title = name if name.casefold().endswith(".pdf") else "document.pdf"
            url = f"data:application/pdf;base64,{data}"
            return {"type": "input_file", "filename": title, "file_data": url}
        case Media(media_type=media_type, data=data):
            return {"type": "input_image", "image_url": f"data:{media_type};base64,{data}"}
        case _:
            return None


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """Return a tool. Without `strict` the service would change the schema, and refuse those that it cannot change."""
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,
    }


def responses_provider(
    provider: str, base_url: str, api_key: str, http: HttpPool, link: Link, *, has_cache_key: bool
) -> NativeProvider:
    """Return a provider at `base_url`, which ends in the API's version (`https://api.openai.com/v1`)."""
    return NativeProvider(
        ResponsesWire(provider, has_cache_key=has_cache_key),
        f"{base_url.rstrip('/')}/responses",
        http,
        ResponseReader,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        secret=api_key,
        link=link,
    )
