"""A real HTTP server on 127.0.0.1 that answers with exact bytes, also with wrong ones, and remembers what came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

Answer = Callable[["Heard", asyncio.StreamWriter], Awaitable[None]]


class Heard(NamedTuple):
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes


class WebServer:
    """What each path answers, and what was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard: list[Heard] = []
        self.answers: dict[str, bytes | Answer] = {}

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        self.answers[path] = response("", status=f"{status} Moved", headers=(f"Location: {to}",))


def response(
    body: str | bytes,
    kind: str = "text/html; charset=utf-8",
    status: str = "200 OK",
    headers: Sequence[str] = (),
) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def web_server(
    tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[WebServer]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, *_ = head.split(" ", 2)
            lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
            headers = {name.lower(): value.strip() for name, _, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            heard = Heard(method, target, headers, body)
            served.heard.append(heard)
            answer = served.answers.get(
                target.partition("?")[0], response("not here", status="404 Not Found")
            )
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(heard, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the other side had enough
        finally:
            writer.close()

    server = await asyncio.start_server(handle, host, port, ssl=tls)
    served = WebServer(server.sockets[0].getsockname()[1])
    try:
        yield served
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
