"""Serves the calls of one runtime to which the driver gave a way out of their sandboxes.

The driver passes a call as one byte with two sockets. On the first one it says which hosts the call may reach, and
hears of each request; when it shuts its side, the call is over. Through the second one comes the socket on which the
programs of the call connect, made inside their sandbox. So each call has its own way in, and nobody else has one:
there is no file and no port outside. `proxy_exchange` answers what comes in.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.protocol.traffic import MAX_EXCHANGES, Exchange, Told, Word
from holdfast.sandbox.names import Lookup, system_lookup
from holdfast.sandbox.proxy_exchange import LIMITS, Limits, Reach, answer
from holdfast.sandbox.proxy_tls import Certificates

MAX_CONNECTIONS = 128
"""The most of one call at once. Others wait."""
_OTHER_FILES = 64
_TOLD_BYTES = 32 << 20
_LOOKUPS = 32
"""How many names are resolved at once."""
_BREATH_S = 0.1
"""How long to wait when nothing can be accepted: the machine has no more files."""


async def serve(
    door: socket.socket, max_files: int, lookup: Lookup = system_lookup, limits: Limits = LIMITS
) -> None:
    """Serve calls until the other side of the door is gone."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_LOOKUPS))
    places = asyncio.Semaphore(max((max_files - _OTHER_FILES) // 2, 1))
    calls = set[asyncio.Task[None]]()
    is_over = asyncio.Event()

    def hear() -> None:
        fds = _received(door, 2)
        if len(fds) != 2:
            loop.remove_reader(door)
            is_over.set()
            return
        call = loop.create_task(_Call(places, lookup, limits).serve(*fds))
        calls.add(call)
        call.add_done_callback(calls.discard)

    loop.add_reader(door, hear)
    await is_over.wait()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


class _Call:
    """One call while it runs."""

    def __init__(self, places: asyncio.Semaphore, lookup: Lookup, limits: Limits) -> None:
        self._places = places
        self._lookup = lookup
        self._limits = limits
        self._own_places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._connections = set[asyncio.Task[None]]()
        self._told = self._more = 0
        self._writer: asyncio.StreamWriter

    async def serve(self, channel: int, entrance: int) -> None:
        """Serve it until the driver shuts the channel."""
        reader, self._writer = await asyncio.open_unix_connection(
            sock=socket.socket(fileno=channel), limit=_TOLD_BYTES
        )
        accepting = None
        with socket.socket(fileno=entrance) as door:
            try:
                if line := await reader.readline():
                    certificates = None
                    told = msgspec.json.decode(line, type=Told)
                    if told.authority is not None:
                        certificates = Certificates(told.authority)
                    reach = Reach(told.hosts, self._lookup, told.secrets, certificates)
                    accepting = asyncio.create_task(self._accept(door, reach))
                    await reader.read()
            except ConnectionError:
                pass
            finally:
                ending = [*([accepting] if accepting is not None else []), *self._connections]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
                self._say(Word(more=self._more))
                self._writer.close()
                with contextlib.suppress(OSError):
                    await self._writer.wait_closed()

    async def _accept(self, door: socket.socket, reach: Reach) -> None:
        """Accept what comes in from the sandbox."""
        loop = asyncio.get_running_loop()
        listener = await _listener(door)
        if listener is None:
            return
        with listener:
            while True:
                await self._own_places.acquire()
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError:
                    self._own_places.release()
                    await asyncio.sleep(_BREATH_S)
                    continue
                task = asyncio.create_task(self._answer(client, reach))
                self._connections.add(task)
                task.add_done_callback(self._left)

    async def _answer(self, client: socket.socket, reach: Reach) -> None:
        with client:
            async with self._places:
                await answer(client, reach, self._tell, self._limits)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._own_places.release()

    def _tell(self, exchange: Exchange) -> None:
        if self._told < MAX_EXCHANGES:
            self._told += 1
            self._say(Word(exchange))
        else:
            self._more += 1

    def _say(self, word: Word) -> None:
        self._writer.write(msgspec.json.encode(word) + b"\n")


async def _listener(door: socket.socket) -> socket.socket | None:
    """Wait for the socket from inside the sandbox. Return None if none comes."""
    loop = asyncio.get_running_loop()
    door.setblocking(False)
    has_come = asyncio.Event()
    loop.add_reader(door, has_come.set)
    try:
        await has_come.wait()
    finally:
        loop.remove_reader(door)
    found = [socket.socket(fileno=fd) for fd in _received(door, 1)]
    for each in found:
        each.setblocking(False)
    return found[0] if found else None


def _received(door: socket.socket, most: int) -> list[int]:
    """Return the open files that came; none if the other side is gone."""
    try:
        fds = socket.recv_fds(door, 1, most)[1]
    except OSError:
        return []
    return fds
