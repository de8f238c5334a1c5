"""What the web tools cost per call: CPU time of this process and of the processes that make text, and the wall time.

A server on this machine answers at once. The floor is the same request with one aiohttp client that does nothing
else. JSON on stdout, a table on stderr: `python -m benchmarks.web`. Not a test: it fails nothing.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from holdfast.policy.protected import Own
from holdfast.protocol.ports import CallContext
from holdfast.protocol.settings import Policy
from holdfast.tools.builtin import make_tools

CALLS, ROUNDS = 20, 5
PARAGRAPH = (
    '<p>Grey herons <b>wade</b> in shallow water; see <a href="/{n}">note {n}</a>.</p><ul><li>a<li>b</ul>\n'
)
PAGE_BYTES = 176 * 1024
ROWS = [{"id": number, "name": f"heron {number}", "seen": number % 2 == 0} for number in range(40)]


def page() -> bytes:
    """A page of about `PAGE_BYTES`."""
    count = PAGE_BYTES // len(PARAGRAPH)
    body = "".join(PARAGRAPH.replace("{n}", str(number)) for number in range(count))
    return f"<html><head><title>Herons</title></head><body>{body}</body></html>".encode()


async def serve(answers: dict[str, tuple[str, bytes]]) -> asyncio.Server:
    """A server that answers each path at once, and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        kind, body = answers[head.split(b" ")[1].decode()]
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


def children_s() -> float:
    """User and system time of all children that this process has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def cost(call: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """The least CPU and wall time of one call, in milliseconds."""
    await call()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        cpu_began, wall_began = time.process_time(), time.perf_counter()
        for _ in range(CALLS):
            await call()
        cpu.append((time.process_time() - cpu_began) / CALLS * 1e3)
        wall.append((time.perf_counter() - wall_began) / CALLS * 1e3)
    return min(cpu), min(wall)


async def measured() -> list[dict[str, Any]]:
    """One row for each call."""
    server = await serve(
        {"/page": ("text/html", page()), "/rows": ("application/json", json.dumps(ROWS).encode())}
    )
    port = server.sockets[0].getsockname()[1]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        tools = make_tools(secret_in=lambda _: "", own=Own())
        allowed = Policy(allowed_hosts=(f"127.0.0.1:{port}",))
        context = CallContext(
            "s", "t1.c1", "s:t1.c1", folder, 60.0, 60.0, lambda _: None, lambda: 1 << 60, policy=allowed
        )

        async def floor(path: str) -> None:
            async with client.get(f"http://127.0.0.1:{port}{path}") as response:
                await response.read()

        async def call(name: str, path: str, **more: str) -> None:
            arguments = json.dumps({"url": f"http://127.0.0.1:{port}{path}", **more})
            result = await tools.run(name, arguments, context)
            assert result.status == "ok", result.text

        async with aiohttp.ClientSession() as client:
            for path in ("/rows", "/page"):
                for what, action in (
                    ("aiohttp", lambda path=path: floor(path)),
                    ("http_request", lambda path=path: call("http_request", path, method="GET")),
                    ("web_fetch", lambda path=path: call("web_fetch", path)),
                ):
                    cpu_ms, wall_ms = await cost(action)
                    rows.append(
                        {"call": what, "path": path, "cpu_ms": round(cpu_ms, 2), "wall_ms": round(wall_ms, 2)}
                    )
        began = children_s()
        await tools.aclose()  # waits for the keeper, and so for what all of its children took
        cpu_ms = (children_s() - began) / (CALLS * ROUNDS + 1) * 1e3
        rows.append({"call": "its process", "path": "/page", "cpu_ms": round(cpu_ms, 2)})
    server.close()
    return rows


def main() -> None:
    """Print the table and the JSON."""
    rows = asyncio.run(measured())
    for row in rows:
        print("".join(f"{cell!s:>15}" for cell in row.values()), file=sys.stderr)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
