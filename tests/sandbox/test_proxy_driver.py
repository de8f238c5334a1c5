"""The driver's side of the proxy, with a proxy that takes calls when a test lets it: busy, frozen, slow and dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast.protocol.fence import Launch
from holdfast.protocol.traffic import Exchange, Word
from holdfast.sandbox import proxy
from holdfast.sandbox.proxy import Proxy
from holdfast.sandbox.proxy_calls import readable

PATIENCE_S = 0.4


class Child:
    """In place of the process of the proxy."""

    def __init__(self) -> None:
        self.doors: list[socket.socket] = []
        self.taken: list[socket.socket] = []
        self.has_begun = asyncio.Event()

    async def run(self, launch: Launch) -> None:
        assert launch.stdin_fd is not None
        self.doors.append(socket.socket(fileno=os.dup(launch.stdin_fd)))
        self.doors[-1].setblocking(False)
        self.has_begun.set()
        await asyncio.sleep(3_600)

    async def channel(self) -> socket.socket:
        """Take the next call."""
        async with asyncio.timeout(5):
            await self.has_begun.wait()
            await readable(self.doors[-1])
        self.taken += [socket.socket(fileno=fd) for fd in self._received()]
        return self.taken[-2]

    def _received(self) -> list[int]:
        with contextlib.suppress(BlockingIOError):
            return socket.recv_fds(self.doors[-1], 1, 2)[1]
        return []

    def make_room(self) -> None:
        """Take all that was passed."""
        while fds := self._received():
            for fd in fds:
                os.close(fd)


@pytest.fixture
async def child(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Child]:
    monkeypatch.setattr(proxy, "_PATIENCE_S", PATIENCE_S)
    made = Child()
    yield made
    made.make_room()
    for each in (*made.doors, *made.taken):
        each.close()


@pytest.fixture
async def driver(child: Child) -> AsyncIterator[Proxy]:
    made = Proxy(child.run)
    yield made
    await made.aclose()


async def whys(driver: Proxy) -> list[str]:
    """Make a call without a request, and return why requests of it failed."""
    async with driver.way(["a.example"]) as way:
        pass
    return [each.why for each in way.requests().exchanges]


async def fill(driver: Proxy, child: Child) -> None:
    """Let a proxy start that takes nothing, and pass as much to it as there is room for."""
    first = asyncio.create_task(whys(driver))
    (await child.channel()).close()
    await first
    assert driver._door is not None
    with contextlib.suppress(BlockingIOError), Path("/dev/null").open("rb") as any_file:
        while True:
            socket.send_fds(driver._door, [b"+"], [any_file.fileno()])


async def test_a_busy_proxy_gets_the_call_when_it_has_room(driver: Proxy, child: Child) -> None:
    await fill(driver, child)
    coming = asyncio.create_task(whys(driver))
    await asyncio.sleep(PATIENCE_S / 4)
    child.make_room()
    (await child.channel()).close()
    await coming
    assert len(child.doors) == 1


async def test_a_proxy_that_takes_nothing_for_too_long_is_replaced_once(driver: Proxy, child: Child) -> None:
    await fill(driver, child)
    await asyncio.gather(whys(driver), whys(driver))
    assert len(child.doors) == 2
    for door in child.doors[:1]:
        while socket.recv_fds(door, 1, 2)[0]:  # its driver has left it
            pass


async def test_a_dead_proxy_is_told_as_ended(driver: Proxy, child: Child) -> None:
    coming = asyncio.create_task(whys(driver))
    (await child.channel()).close()
    for each in child.taken:
        each.close()
    assert await coming == [proxy.BROKEN]


async def test_a_silent_proxy_is_told_as_slow_and_one_that_still_talks_is_heard_to_its_end(
    driver: Proxy, child: Child
) -> None:
    assert await whys(driver) == [proxy.SLOW]
    child.make_room()
    coming = asyncio.create_task(whys(driver))
    channel = await child.channel()
    for _ in range(4):
        await asyncio.sleep(PATIENCE_S / 2)
        channel.sendall(msgspec.json.encode(Word(Exchange("GET", "x", "allowed"))) + b"\n")
    channel.sendall(msgspec.json.encode(Word()) + b"\n")
    assert await coming == [""] * 4
