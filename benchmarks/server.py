"""The model of the measurements: a server in a process of its own that answers Chat Completions from ready bytes.

The model's name says what to do: `bench-500-0` is 500 tool turns, then an answer, with a latency of 0 ms, and
`bench-500-0-shell` the same with a command in each turn. The last
call id of a request has the number of its turn, so the server only has to find that. Words that follow the answer ask
for one more tool turn. A request for a summary gets one.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

MODEL = re.compile(rb'"model":"bench-(\d+)-(\d+)(-shell)?')
CALL_ID = re.compile(rb'"call_(\d+)"')
CHUNKS = 200


def _completion(message: dict[str, object], finish: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps(
        {"id": "c", "object": "chat.completion", "model": "bench", "choices": [choice], "usage": usage}
    )
    return _http("application/json", body.encode())


def _http(kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def tool_call(turn: int, *, is_command: bool = False) -> bytes:
    """The response that asks for the call of this turn."""
    arguments = {"command": f"echo turn {turn}"} if is_command else {"n": turn, "text": f"turn {turn}"}
    function = {"name": "shell" if is_command else "echo", "arguments": json.dumps(arguments)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return _completion({"content": None, "tool_calls": [call]}, "tool_calls")


ANSWER = _completion({"content": "done"}, "stop")
SUMMARY = _completion(
    {"content": "The calls so far were made, and each came to what it had to. " * 8}, "stop"
)
SUM_UP = b"Sum up the work so far"
"""What the request for a summary ends with."""


def streamed() -> bytes:
    """A response of many small chunks."""

    def event(delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"

    body = b"".join(event({"content": "word "}, None) for _ in range(CHUNKS)) + event({}, "stop")
    return _http("text/event-stream", body + b"data: [DONE]\n\n")


class Model(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.received: list[bytes] = []
        self.missing = 0

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        if self.missing:
            self.missing -= len(data)
        else:
            head = b"".join(self.received)
            end = head.find(b"\r\n\r\n")
            if end < 0:
                return
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            self.missing = length - (len(head) - end - 4)
        if self.missing <= 0:
            body, self.received, self.missing = b"".join(self.received), [], 0
            self.answer(body)

    def answer(self, body: bytes) -> None:
        """Send what the turn that the request ends with calls for."""
        found = MODEL.search(body)
        turns, latency_ms = int(found[1]), int(found[2])  # type: ignore[index]
        last = body.rfind(b'"call_')
        done = int(CALL_ID.match(body, last)[1]) if last >= 0 else 0  # type: ignore[index]
        if body.rfind(SUM_UP, -2_000) >= 0:
            self.transport.write(SUMMARY)
            return
        is_asked = done < turns or body.rfind(b'"role":"user"') > last >= 0
        asked = tool_call(done + 1, is_command=bool(found[3])) if is_asked else ANSWER  # type: ignore[index]
        reply = STREAMED if b'"stream":true' in body[-200:] else asked
        if latency_ms:
            asyncio.get_running_loop().call_later(latency_ms / 1000, self.transport.write, reply)
        else:
            self.transport.write(reply)


STREAMED = streamed()


async def serve() -> None:
    """Listen on a free port, print it, and answer until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Model, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
