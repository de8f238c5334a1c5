"""What the proxy of sandboxed calls costs: the CPU time of its process for a request, a refusal and a megabyte, and
what the way to it adds to a command in a sandbox.

Client and server are in this process, on this machine. `python -m benchmarks proxy` prints the table.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast.protocol.fence import Fence, Launch
from holdfast.protocol.traffic import Told
from holdfast.sandbox import bubblewrap, proxy
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.testing.clock import never_over

ROUNDS, REQUESTS, MEGABYTES, COMMANDS = 20, 50, 16, 5
LIMIT_S = 60.0
MIB = 1 << 20
_CHILD = str(Path(proxy.__file__).with_name("proxy_child.py"))

Row = dict[str, float | str]


def cpu_s(pid: int) -> float:
    """The CPU time of a process, with all its threads."""
    times = (path.read_text().split()[0] for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(map(int, times)) / 1e9


@asynccontextmanager
async def running(hosts: tuple[str, ...]) -> AsyncIterator[tuple[int, int]]:
    """A proxy in a process of its own with one call; its pid, and the port of the call's way."""
    door, given = socket.socketpair()
    command = [sys.executable, "-I", "-S", _CHILD, *proxy.folders()]
    with door, given:
        process = await asyncio.create_subprocess_exec(*command, stdin=given.fileno())
        ours, channel = socket.socketpair()
        inside, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, channel, inside, entrance, socket.create_server(("127.0.0.1", 0)) as listener:
            ours.sendall(msgspec.json.encode(Told(hosts)) + b"\n")
            socket.send_fds(door, [b"+"], [channel.fileno(), entrance.fileno()])
            socket.send_fds(inside, [b"+"], [listener.fileno()])
            channel.close()
            yield process.pid, listener.getsockname()[1]
        process.terminate()
        await process.wait()


async def serve() -> asyncio.Server:
    """A server that answers each request at once, and sends a megabyte for each byte that asks for more."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        if head.startswith(b"MUCH"):
            for _ in range(MEGABYTES):
                writer.write(bytes(MIB))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


async def ask(port: int, words: bytes) -> None:
    """Send something, and read all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(words)
    while await reader.read(MIB):
        pass
    writer.close()


async def requests() -> list[Row]:
    """A request, a refusal and a megabyte: the best of several rounds."""
    server = await serve()
    here = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asked = {
        "a request": (
            f"GET http://{here}/a?b=1 HTTP/1.1\r\nHost: {here}\r\nAccept: */*\r\n\r\n",
            REQUESTS,
            REQUESTS,
        ),
        "a refused request": ("GET http://a.example/ HTTP/1.1\r\n\r\n", REQUESTS, REQUESTS),
        "a MB through CONNECT": (f"CONNECT {here} HTTP/1.1\r\n\r\nMUCH / HTTP/1.1\r\n\r\n", 1, MEGABYTES),
    }
    rows: list[Row] = []
    async with server, running((here,)) as (pid, port):
        for what, (words, times, units) in asked.items():
            best_cpu_s = best_s = LIMIT_S
            await ask(port, words.encode())
            for _ in range(ROUNDS):
                began_cpu_s, began_s = cpu_s(pid), time.perf_counter()
                for _ in range(times):
                    await ask(port, words.encode())
                best_cpu_s = min(best_cpu_s, (cpu_s(pid) - began_cpu_s) / units)
                best_s = min(best_s, (time.perf_counter() - began_s) / units)
            rows.append({"what": what, "cpu_ms": 1000 * best_cpu_s, "wall_ms": 1000 * best_s})
    return rows


async def ways(folder: str) -> list[Row]:
    """`true` in a sandbox, without hosts and with some: the best wall time of several rounds."""
    made = bubblewrap.make()
    if not isinstance(made, Bubblewrap):
        return []
    processes, best = Processes(made), {(): LIMIT_S, ("a.example",): LIMIT_S}
    for _ in range(ROUNDS):
        for hosts in best:
            fence = Fence((folder,), private=(str(Path.home()),), hosts=hosts)
            environ = clean_environment(os.environ)
            launch = Launch(
                ("true",), folder, "benchmark", environ, LIMIT_S, LIMIT_S, never_over, fence=fence
            )
            await processes.run(launch, lambda _: None)
            began_s = time.perf_counter()
            for _ in range(COMMANDS):
                await processes.run(launch, lambda _: None)
            best[hosts] = min(best[hosts], (time.perf_counter() - began_s) / COMMANDS)
    await processes.aclose()
    named = {(): "`true` without a way", ("a.example",): "`true` with a way"}
    return [{"what": named[hosts], "cpu_ms": "", "wall_ms": 1000 * took_s} for hosts, took_s in best.items()]


def measured() -> Iterator[Row]:
    """All rows; none of commands where there is no bwrap."""
    yield from asyncio.run(requests())
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(ways(folder))
