"""The recorded exchanges beside the checkout: which of them speak our wires, and what they say.

What they say is read here in the plainest way, apart from the readers under test.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SHARED = Path(__file__).resolve().parents[3] / "shared"
CASSETTES = SHARED / "corpora" / "provider_cassettes"
_HOSTS = {
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "openrouter.ai": "openrouter",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
    "api.z.ai": "zai",
    "api.cerebras.ai": "cerebras",
    "generativelanguage.googleapis.com": "google",
}


class Recording(NamedTuple):
    """One cassette, and its exchanges."""

    name: str
    exchanges: list[dict[str, Any]]


def is_ours(exchange: dict[str, Any]) -> bool:
    """Whether the exchange is one of Chat Completions, Responses or Messages."""
    path = exchange["request"]["uri"].split("?")[0]
    is_asked = exchange["request"]["method"] == "POST"
    return is_asked and path.endswith(("/chat/completions", "/responses", "/v1/messages"))


def provider_of(exchange: dict[str, Any]) -> str:
    """The provider that the exchange is replayed to."""
    uri = exchange["request"]["uri"]
    if uri.split("?")[0].endswith("/responses"):
        return "openai-responses"
    return _HOSTS.get(uri.split("/")[2], "openai")


def recordings() -> list[Recording]:
    """Every cassette with an exchange of ours; none where the corpora are missing."""
    if not CASSETTES.is_dir():
        return []
    found = []
    for path in sorted(CASSETTES.glob("test_*.json")):
        exchanges = json.loads(path.read_text("utf-8"))["interactions"]
        if any(is_ours(exchange) for exchange in exchanges):
            found.append(Recording(path.stem, exchanges))
    return found


class Said(NamedTuple):
    """What a recorded response says: words, calls with decoded arguments, tokens read."""

    text: str
    calls: list[tuple[str, Any]]
    input_tokens: int


def said(exchange: dict[str, Any]) -> Said:
    """The response of an exchange that brought one."""
    response = exchange["response"]
    if response["text"] is None:
        whole = response["json"]
        if "output" in whole:
            return _responses([{"response": whole}])
        return _messages([whole]) if "content" in whole else _completions([whole])
    events = [json.loads(line[6:]) for line in response["text"].splitlines() if line.startswith("data: {")]
    if "response" in events[0]:
        return _responses(events)
    return _messages(events) if events[0].get("type") == "message_start" else _completions(events)


def _completions(chunks: list[dict[str, Any]]) -> Said:
    text, names, arguments, read = "", {}, {}, 0
    for chunk in chunks:
        read = (chunk.get("usage") or {}).get("prompt_tokens", read)
        for choice in chunk.get("choices") or []:
            message = choice.get("delta") or choice.get("message") or {}
            content = message.get("content") or ""
            pieces = content if isinstance(content, list) else [{"type": "text", "text": content}]
            text += "".join(piece["text"] for piece in pieces if piece["type"] == "text")
            for position, call in enumerate(message.get("tool_calls") or []):
                index = call.get("index", position)
                names.setdefault(index, call["function"].get("name"))
                arguments[index] = arguments.get(index, "") + (call["function"].get("arguments") or "")
    return Said(text, [(names[index], json.loads(arguments[index] or "{}")) for index in sorted(names)], read)


def _responses(events: list[dict[str, Any]]) -> Said:
    whole = events[-1]["response"]
    text, calls = "", []
    for item in whole["output"]:
        for part in item.get("content") or [] if item["type"] == "message" else []:
            text += part["text"]
        if item["type"] == "function_call":
            calls.append((item["name"], json.loads(item["arguments"])))
    return Said(text, calls, whole["usage"]["input_tokens"])


def _messages(events: list[dict[str, Any]]) -> Said:
    text, calls, usage = "", {}, {}
    for event in events:
        message = event.get("message") or event
        usage |= message.get("usage") or {}
        for block in message.get("content") or []:
            text += block.get("text") or "" if block["type"] == "text" else ""
            if block["type"] == "tool_use":
                calls[len(calls)] = (block["name"], json.dumps(block["input"]))
        if event.get("type") == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls[event["index"]] = (event["content_block"]["name"], "")
        delta = event.get("delta") or {}
        text += delta.get("text") or ""
        if delta.get("type") == "input_json_delta" and event["index"] in calls:
            name, so_far = calls[event["index"]]
            calls[event["index"]] = (name, so_far + delta["partial_json"])
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    decoded = [(name, json.loads(arguments or "{}")) for name, arguments in calls.values()]
    return Said(text, decoded, sum(usage.get(kind) or 0 for kind in kinds))


@contextmanager
def replayed(*options: str) -> Iterator[str]:
    """The replay server in a process of its own; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SHARED / "tools" / "provider_replay.py"), "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert b"replaying" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
