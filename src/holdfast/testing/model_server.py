"""A real model server on loopback that answers from a list of replies, in each wire format, with faults on demand.

In a test: `async with ModelServer([Reply(text="hi")]) as server: ... server.url, server.requests`.
As its own process: `python -m holdfast.testing.model_server --port 8000 --script replies.jsonl`.
Paths that end in `/messages` speak Messages, those in `/responses` speak Responses, all others Chat Completions.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import re
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

import msgspec

from holdfast.testing.model_replies import Format, Rendered, Reply, render
from holdfast.testing.valid_requests import problem

MAX_KEPT_REQUESTS = 10_000

Choice = Literal["order", "turn"]
"""How a reply is chosen. `order`: the next one for each request. `turn`: by the number of the assistant's messages in
the request, so that many sessions share one script and a repeated request gets the same response.
"""


class Received(msgspec.Struct, frozen=True):
    """A request as received."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class ModelServer:
    """The server. `async with` starts it on a free port, or on the given one, and stops it."""

    def __init__(
        self,
        replies: Sequence[Reply],
        *,
        choose: Choice = "order",
        port: int = 0,
        kept_requests: int = MAX_KEPT_REQUESTS,
        is_strict: bool = True,
    ) -> None:
        """`is_strict`: what its service would refuse gets a 400, as from the service."""
        self.requests: deque[Received] = deque(maxlen=kept_requests)
        self.connections = 0
        """The number of connections that were opened."""
        self.abandoned = 0
        """The number of replies that the client did not read to the end."""
        self._replies = list(replies)
        self._choose: Choice = choose
        self._port = port
        self._is_strict = is_strict
        self._count = 0
        self._changed = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._listener: asyncio.Server | None = None
        # Rendered once: in a benchmark the server must cost almost nothing.
        self._render = functools.cache(self._rendered)

    @property
    def url(self) -> str:
        """Return the address without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """Return the base address of Chat Completions."""
        return f"{self.url}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()
            for connection in list(self._connections):
                connection.abort()
            await self._listener.wait_closed()
            # An aborted transport is only closed in the next turn of the loop, which may be its last.
            await self.until(lambda server: not server.is_connected)

    @property
    def is_connected(self) -> bool:
        """Return whether a connection is open."""
        return bool(self._connections)

    async def until(self, is_so: Callable[[Self], bool], timeout_s: float = 60.0) -> None:
        """Wait until a predicate of the server is true. It is checked after each request and each hang-up.

        Raises:
            TimeoutError: it does not become true in time.
        """
        async with asyncio.timeout(timeout_s):
            while not is_so(self):
                self._changed.clear()
                await self._changed.wait()

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        """Keep a request and choose its reply."""
        wire = _WIRES.get(request.path.rpartition("/")[2], "openai")
        is_streaming = _STREAMS.search(request.body) is not None
        number = self._count if self._choose == "order" else _answered(request.body, wire)
        if number >= len(self._replies) and self._replies and self._replies[-1].repeat:
            number = len(self._replies) - 1
        self._count += 1
        self.requests.append(request)
        self._changed.set()
        if self._is_strict and (refused := problem(request.body, wire)):
            reply = Reply(status=400, message=refused)
            return reply, render(reply, wire, number, is_streaming=False)
        return self._reply(number), self._render(number, wire, is_streaming)

    def joined(self, connection: _Connection) -> None:
        """A connection was opened."""
        self.connections += 1
        self._connections.add(connection)

    def left(self, connection: _Connection, *, is_mid_reply: bool) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self.abandoned += is_mid_reply
        self._changed.set()

    def _reply(self, number: int) -> Reply:
        return self._replies[number] if number < len(self._replies) else _NOTHING_LEFT

    def _rendered(self, number: int, wire: Format, is_streaming: bool) -> Rendered:
        return render(self._reply(number), wire, number, is_streaming=is_streaming)


class _Connection(asyncio.Protocol):
    """One connection. It answers each request before it reads the next."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._sending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        is_mid_reply = self._sending is not None and not self._sending.done()
        if self._sending is not None:
            self._sending.cancel()
        self._server.left(self, is_mid_reply=is_mid_reply)

    def abort(self) -> None:
        """Close the connection and drop what is being sent."""
        if self._sending is not None:
            self._sending.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        """Answer the next request, if it is there and its turn has come."""
        if self._sending is None and (request := self._next_request()) is not None:
            self._answer(request)

    def _next_request(self) -> Received | None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return Received(first.split(" ")[1], headers, rest[:length])

    def _answer(self, request: Received) -> None:
        reply, rendered = self._server.answer(request)
        if self._transport is None:
            return
        head = _head(reply, rendered)
        if not (reply.delay_s or reply.chunk_bytes or reply.fault in _BREAKS):
            self._transport.write(head + _framed(rendered, rendered.body) + _ending(rendered))
            return
        self._sending = asyncio.get_running_loop().create_task(self._send(reply, rendered, head))

    async def _send(self, reply: Reply, rendered: Rendered, head: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        await asyncio.sleep(reply.delay_s)
        transport.write(head)
        body = _half(rendered) if reply.fault in _BREAKS else rendered.body
        size = reply.chunk_bytes or max(len(body), 1)
        for start in range(0, len(body), size):
            transport.write(_framed(rendered, body[start : start + size]))
            await asyncio.sleep(reply.pause_s)
        match reply.fault:
            case "stall":
                await asyncio.Event().wait()
            case "ping":
                while True:
                    transport.write(_framed(rendered, rendered.ping))
                    await asyncio.sleep(reply.pause_s)
            case "cut":
                transport.close()
            case "reset":
                _reset(transport)
            case _:
                transport.write(_ending(rendered))
        self._sending = None
        self._go_on()  # a client that had all it was promised may have asked again before the last pause was over


_WIRES: dict[str, Format] = {"messages": "anthropic", "responses": "responses"}
_OWN_ITEMS = ("function_call", "reasoning")
_BREAKS = ("stall", "ping", "cut", "reset")
_NOTHING_LEFT = Reply(status=500, message="the script has no reply left")
_STREAMS = re.compile(rb'"stream": ?true')


def _answered(body: bytes, wire: Format) -> int:
    """Return the number of responses that a request has."""
    if wire != "responses":
        return body.count(b'"role":"assistant"')
    # One response is any number of items in a row.
    items = msgspec.json.decode(body)["input"]
    is_own = [item.get("role") == "assistant" or item.get("type") in _OWN_ITEMS for item in items]
    return sum(own and not before for own, before in zip(is_own, [False, *is_own], strict=False))


def _is_stream(rendered: Rendered) -> bool:
    return rendered.content_type == "text/event-stream"


def _half(rendered: Rendered) -> bytes:
    """Return half of the body; on a stream up to an event's end, so that comments may follow."""
    half = rendered.body[: len(rendered.body) // 2]
    return half[: half.rfind(b"\n\n") + 2] if _is_stream(rendered) else half


def _head(reply: Reply, rendered: Rendered) -> bytes:
    length = "transfer-encoding: chunked" if _is_stream(rendered) else f"content-length: {len(rendered.body)}"
    lines = [f"{name}: {value}" for name, value in reply.headers.items()]
    head = [f"HTTP/1.1 {rendered.status} Scripted", f"content-type: {rendered.content_type}", length, *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


def _framed(rendered: Rendered, piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece and _is_stream(rendered) else piece


def _ending(rendered: Rendered) -> bytes:
    return b"0\r\n\r\n" if _is_stream(rendered) else b""


def _reset(transport: asyncio.Transport) -> None:
    """Close so that the client gets a reset and not an end."""
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def replies_from_file(path: str | Path) -> list[Reply]:
    """Return the replies in a JSON Lines file, one object with `Reply`'s keys per line.

    Raises:
        OSError: it cannot be read.
        msgspec.ValidationError: a line is not a reply.
    """
    lines = Path(path).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Reply) for line in lines if line.strip()]


async def _serve(replies: list[Reply], choose: Choice, port: int) -> None:
    async with ModelServer(replies, choose=choose, port=port, kept_requests=0) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended. Print the address as the first line."""
    parser = argparse.ArgumentParser(prog="holdfast.testing.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--script", required=True, help="JSON Lines, one reply per line")
    parser.add_argument("--choose", choices=("order", "turn"), default="turn")
    given = parser.parse_args(arguments)
    asyncio.run(_serve(replies_from_file(given.script), given.choose, given.port))


if __name__ == "__main__":
    main()
