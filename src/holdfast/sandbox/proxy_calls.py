"""Serves the calls of one runtime to which the driver gave a way out of their sandboxes.

The driver passes a call as one byte with two sockets. On the first one it says which hosts the call may reach, and
hears of each request; when it shuts its side, the call is over. Through the second one comes what leads in from
inside the sandbox (`proxy_entrance`). So each call has its own way in, and nobody else has one: there is no file and
no port outside. `proxy_exchange` answers what comes in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.protocol.traffic import MAX_EXCHANGES, Exchange, Told, Word
from holdfast.sandbox.names import Lookup, system_lookup
from holdfast.sandbox.proxy_entrance import Entrance, entrance
from holdfast.sandbox.proxy_exchange import LIMITS, Limits, Reach, answer
from holdfast.sandbox.proxy_tls import Certificates

MAX_CONNECTIONS = 128
"""The most of one call at once. Others wait."""
FULL = (
    "This call had no network: too many others have one now. "
    "A process may have {files:,} open files here (`ulimit -Hn`)."
)
_CONNECTION_FILES = 2
"""To the program, and to the server."""
_CALL_FILES = 4
"""Its channel, its door and its listener, and one that has just come."""
_OTHER_FILES = 64
"""Those of the proxy itself, and of its threads that resolve names."""
_CALLS_SHARE = 4
"""One of so many files is for calls. Connections have the others."""
_TOLD_BYTES = 32 << 20
_LOOKUPS = 32
"""How many names are resolved at once."""
_LOOKUPS_OF_A_CALL = 8
"""So many of one call: a server of names that never answers holds up nobody else."""
_PATIENCE_S = 1.0
"""How long a driver may take to say what a call may reach."""
_BREATH_S = 0.1
"""How long to wait when nothing can be accepted: the machine has no more files."""


async def serve(
    door: socket.socket, max_files: int, lookup: Lookup = system_lookup, limits: Limits = LIMITS
) -> None:
    """Serve calls until the other side of the door is gone."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_LOOKUPS))
    for_calls = max_files // _CALLS_SHARE
    most = max((max_files - for_calls - _OTHER_FILES) // _CONNECTION_FILES, 2)
    places, each_most = asyncio.Semaphore(most), min(MAX_CONNECTIONS, most // 2)
    calls, refused = set[asyncio.Task[None]](), set[asyncio.Task[None]]()
    is_over = asyncio.Event()

    def hear() -> None:
        fds = _received(door, 2)
        if fds is None:
            loop.remove_reader(door)
            is_over.set()
            return
        if len(fds) != 2 or len(calls) >= for_calls // _CALL_FILES:
            for fd in fds[1:]:
                os.close(fd)
            if fds:
                refusing = loop.create_task(_refuse(fds[0], max_files))
                refused.add(refusing)
                refusing.add_done_callback(refused.discard)
            return
        call = loop.create_task(_Call(places, each_most, lookup, limits).serve(*fds))
        calls.add(call)
        call.add_done_callback(calls.discard)

    loop.add_reader(door, hear)
    await is_over.wait()
    for call in (*calls, *refused):
        call.cancel()
    await asyncio.gather(*calls, *refused, return_exceptions=True)


async def _refuse(channel: int, max_files: int) -> None:
    """Tell the driver that a call has no network, and why."""
    words = (Word(Exchange("", "", "failed", FULL.format(files=max_files))), Word())
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=channel), limit=_TOLD_BYTES)
    writer.write(b"".join(msgspec.json.encode(word) + b"\n" for word in words))
    writer.write_eof()
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await reader.readline()  # a driver whose words are not read hears nothing
    writer.transport.abort()


class _Call:
    """One call while it runs."""

    def __init__(self, places: asyncio.Semaphore, most: int, lookup: Lookup, limits: Limits) -> None:
        self._places = places
        self._lookup = lookup
        self._limits = limits
        self._own_places = asyncio.Semaphore(most)
        self._lookups = asyncio.Semaphore(_LOOKUPS_OF_A_CALL)
        self._connections = set[asyncio.Task[None]]()
        self._looking = set[asyncio.Task[Sequence[str]]]()
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
                    reach = Reach(told.hosts, self._look_up, told.secrets, certificates)
                    accepting = asyncio.create_task(self._accept(door, reach))
                    await reader.read()
            except ConnectionError:
                pass
            finally:
                begun = [accepting] if accepting is not None else []
                ending = [*begun, *self._connections, *self._looking]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
                self._say(Word(more=self._more))
                self._writer.close()
                with contextlib.suppress(OSError):
                    await self._writer.wait_closed()

    async def _accept(self, door: socket.socket, reach: Reach) -> None:
        """Accept what comes in from the sandbox."""
        way_in = await _entrance(door)
        if way_in is None:
            return
        with contextlib.closing(way_in):
            while True:
                await self._own_places.acquire()
                await readable(way_in)
                await self._places.acquire()
                try:
                    client = way_in.accept()
                except OSError:  # the program is gone already, or the machine has no more files
                    self._own_places.release()
                    self._places.release()
                    await asyncio.sleep(_BREATH_S)
                    continue
                client.setblocking(False)
                task = asyncio.create_task(self._answer(client, reach))
                self._connections.add(task)
                task.add_done_callback(self._left)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        """Resolve a name. It counts until the answer is there, also if nobody waits for it any longer."""
        await self._lookups.acquire()
        looking = asyncio.create_task(self._resolved(host, port))
        self._looking.add(looking)
        looking.add_done_callback(self._looked_up)
        return await asyncio.shield(looking)

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        return await self._lookup(host, port)

    def _looked_up(self, looking: asyncio.Task[Sequence[str]]) -> None:
        self._lookups.release()
        self._looking.discard(looking)
        if not looking.cancelled():
            looking.exception()  # nobody may be there to hear of it

    async def _answer(self, client: socket.socket, reach: Reach) -> None:
        with client:
            await answer(client, reach, self._tell, self._limits)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._own_places.release()
        self._places.release()

    def _tell(self, exchange: Exchange) -> None:
        if self._told < MAX_EXCHANGES:
            self._told += 1
            self._say(Word(exchange))
        else:
            self._more += 1

    def _say(self, word: Word) -> None:
        self._writer.write(msgspec.json.encode(word) + b"\n")


async def _entrance(door: socket.socket) -> Entrance | None:
    """Wait for what comes from inside the sandbox. Return None if nothing does."""
    door.setblocking(False)
    await readable(door)
    found = _received(door, 1)
    return entrance(found[0]) if found else None


async def readable(sock: socket.socket | Entrance) -> None:
    """Wait until something comes."""
    loop = asyncio.get_running_loop()
    has_come = asyncio.Event()
    loop.add_reader(sock, has_come.set)
    try:
        await has_come.wait()
    finally:
        loop.remove_reader(sock)


def _received(door: socket.socket, most: int) -> list[int] | None:
    """Return the open files that came, fewer if there is no place for more; None if the other side is gone."""
    try:
        said, fds, *_ = socket.recv_fds(door, 1, most)
    except BlockingIOError:
        return []
    except OSError:
        return None
    return fds if said else None
