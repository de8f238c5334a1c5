"""What the services refuse in a request, for test servers: roles, ids, names, and a result for each call.

The rules are those that the services state in their references and refusals. They judge one body alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.testing.model_replies import Format

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
_CHAT_ID_CHARS = 40
_RESPONSES_ID_CHARS = 64
_LEAST_RESPONSES_TOKENS = 16
_MOST_MARKS = 4
_MARK = "cache_control"
_USER_PARTS = {
    "openai": ("text", "image_url", "file"),
    "responses": ("input_text", "input_image", "input_file"),
    "anthropic": ("text", "image", "document", "tool_result"),
}


def problem(body: bytes, wire: Format) -> str:
    """Return what the service of a wire format would refuse in a request; empty if it would take it."""
    try:
        request = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return "the body is not JSON"
    if not isinstance(request, dict):
        return "the body is not an object"
    return next(_RULES[wire](request), "")


def _chat(request: dict[str, Any]) -> Iterator[str]:
    yield from _general(request, [tool.get("function", {}) for tool in request.get("tools", ())])
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: the list is empty"
        return
    if not _is_positive(request, "max_tokens", "max_completion_tokens"):
        yield "max_tokens: not one positive number"
    if "stream_options" in request and not request.get("stream"):
        yield "stream_options: without a stream"
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                yield f"{where}: it answers no call of the message before"
                return
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            yield f"{where}: no result for the call {open_calls[0]!r} comes before it"
        yield from _chat_content(message, where)
        if "tool_calls" in message:
            open_calls = [str(call.get("id")) for call in message["tool_calls"]]
            yield from _chat_calls(message["tool_calls"], where)
    if open_calls:
        yield f"messages: no result for the call {open_calls[0]!r}"


def _chat_content(message: dict[str, Any], where: str) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"{where}: there is no role {role!r}"
    if isinstance(content, list):
        yield from _parts(content, _USER_PARTS["openai"], where)
    elif not isinstance(content, str) and not (role == "assistant" and message.get("tool_calls")):
        yield f"{where}: no content"


def _chat_calls(calls: list[dict[str, Any]], where: str) -> Iterator[str]:
    ids = [call.get("id") for call in calls]
    if not calls or len(set(ids)) < len(ids):
        yield f"{where}: no calls, or two with one id"
    for call in calls:
        function = call.get("function", {})
        if not isinstance(call.get("id"), str) or not 0 < len(call["id"]) <= _CHAT_ID_CHARS:
            yield f"{where}: the id {call.get('id')!r} is not 1 to {_CHAT_ID_CHARS} characters"
        if call.get("type") != "function" or not _is_name(function.get("name")):
            yield f"{where}: not a call of a function with a valid name"
        if not isinstance(function.get("arguments"), str):
            yield f"{where}: the arguments are not a text"


def _responses(request: dict[str, Any]) -> Iterator[str]:
    yield from _general(request, list(request.get("tools", ())))
    items = request.get("input")
    if not isinstance(items, list) or not items:
        yield "input: there is nothing"
        return
    if request.get("max_output_tokens", _LEAST_RESPONSES_TOKENS) < _LEAST_RESPONSES_TOKENS:
        yield f"max_output_tokens: less than {_LEAST_RESPONSES_TOKENS}"
    called: list[str] = []
    open_calls: list[str] = []
    for at, item in enumerate(items):
        where = f"input[{at}]"
        match item.get("type", "message"):
            case "message":
                yield from _responses_message(item, where)
            case "reasoning":
                following = items[at + 1] if at + 1 < len(items) else {}
                yield from _reasoning(item, following, where)
            case "function_call":
                call_id = item.get("call_id")
                if not isinstance(call_id, str) or not 0 < len(call_id) <= _RESPONSES_ID_CHARS:
                    yield f"{where}: the id {call_id!r} is not 1 to {_RESPONSES_ID_CHARS} characters"
                if call_id in called:
                    yield f"{where}: two calls have the id {call_id!r}"
                if not _is_name(item.get("name")) or not isinstance(item.get("arguments"), str):
                    yield f"{where}: not a valid name, or the arguments are not a text"
                called.append(str(call_id))
                open_calls.append(str(call_id))
            case "function_call_output":
                if item.get("call_id") not in open_calls:
                    yield f"{where}: it answers no call before it"
                    return
                open_calls.remove(item["call_id"])
                if not isinstance(item.get("output"), str | list):
                    yield f"{where}: no output"
            case other:
                yield f"{where}: there is no item {other!r}"
    if open_calls:
        yield f"input: no output for the call {open_calls[0]!r}"


def _responses_message(item: dict[str, Any], where: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"{where}: there is no role {role!r}"
    if isinstance(content, list):
        kinds = ("output_text", "refusal") if role == "assistant" else _USER_PARTS["responses"]
        yield from _parts(content, kinds, where)
    elif not isinstance(content, str):
        yield f"{where}: no content"


def _reasoning(item: dict[str, Any], following: dict[str, Any], where: str) -> Iterator[str]:
    if not (item.get("encrypted_content") or item.get("content")):
        yield f"{where}: the service keeps no items, so there is no reasoning {item.get('id')!r}"
    if not isinstance(item.get("summary"), list):
        yield f"{where}: no list of summaries"
    kind = following.get("type", "message")
    is_own = kind in ("reasoning", "function_call") or following.get("role") == "assistant"
    if not is_own:
        yield f"{where}: reasoning without the item that followed it"


def _anthropic(request: dict[str, Any]) -> Iterator[str]:
    yield from _general(request, list(request.get("tools", ())))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: the list is empty"
        return
    if not _is_positive(request, "max_tokens"):
        yield "max_tokens: not a positive number"
    yield from _marks(request)
    if messages[0].get("role") != "user" or messages[-1].get("role") != "user":
        yield "messages: the first and the last are not a user's"
    called: set[str] = set()
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        where, content = f"messages[{at}]", message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message.get("role") not in ("user", "assistant") or not blocks:
            yield f"{where}: another role, or no content"
            return
        yield from _blocks(blocks, message["role"], where)
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if sorted(map(str, results)) != sorted(open_calls):
            yield f"{where}: not exactly one result for each call of the message before"
        if any(block.get("type") != "tool_result" for block in blocks[: len(results)]):
            yield f"{where}: something comes before the results"
        open_calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(open_calls)) < len(open_calls) or called & set(open_calls):
            yield f"{where}: two calls have one id"
        called |= set(open_calls)
    if called and not request.get("tools"):
        yield "tools: there are calls, but no tools"


def _blocks(blocks: list[dict[str, Any]], role: str, where: str) -> Iterator[str]:
    own = ("text", "thinking", "redacted_thinking", "tool_use")
    yield from _parts(blocks, own if role == "assistant" else _USER_PARTS["anthropic"], where)
    for block in blocks:
        match block.get("type"):
            case "text" if not str(block.get("text", "")).strip():
                yield f"{where}: a text without words"
            case "thinking" if not block.get("signature"):
                yield f"{where}: thinking without a signature"
            case "tool_use":
                if not _ANTHROPIC_ID.fullmatch(str(block.get("id"))) or not _is_name(block.get("name")):
                    yield f"{where}: the id or the name of a call is not valid"
                if not isinstance(block.get("input"), dict):
                    yield f"{where}: the input of a call is not an object"
    if "thinking" in str(blocks[-1].get("type")):
        yield f"{where}: the last block is thinking"


def _marks(request: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the marks of the prompt cache."""
    system = request.get("system", ())
    contents = [request.get("tools", ()), () if isinstance(system, str) else system]
    contents += [each["content"] for each in request["messages"] if isinstance(each.get("content"), list)]
    marked = [block for content in contents for block in content if _MARK in block]
    if len(marked) + (_MARK in request) > _MOST_MARKS:
        yield f"cache_control: more than {_MOST_MARKS} marks"
    for block in marked:
        if "thinking" in str(block.get("type")) or block.get("text") == "":
            yield "cache_control: a mark on thinking, or on an empty text"


def _general(request: dict[str, Any], tools: list[dict[str, Any]]) -> Iterator[str]:
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield "model: it has no name"
    names = [tool.get("name") for tool in tools]
    if not all(map(_is_name, names)) or len(set(names)) < len(names):
        yield "tools: a name is not valid, or two are the same"
    if "tools" in request and not tools:
        yield "tools: an empty list"
    if "tool_choice" in request and not tools:
        yield "tool_choice: without tools"


def _parts(parts: list[dict[str, Any]], kinds: tuple[str, ...], where: str) -> Iterator[str]:
    if not parts:
        yield f"{where}: empty content"
    for part in parts:
        if part.get("type") not in kinds:
            yield f"{where}: no part {part.get('type')!r} may be here"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _is_positive(request: dict[str, Any], *keys: str) -> bool:
    """Return whether one of the keys has a positive number, and only one is there."""
    given = [request[key] for key in keys if key in request]
    return len(given) <= 1 and all(isinstance(each, int) and each > 0 for each in given)


_RULES: dict[Format, Callable[[dict[str, Any]], Iterator[str]]] = {
    "openai": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
}
