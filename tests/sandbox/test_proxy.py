"""The proxy in this process: what it takes out, what it refuses, and what it does when somebody attacks it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.protocol.traffic import MAX_EXCHANGES, Authority, Exchange, StandIn, Told, Word
from holdfast.sandbox import proxy_calls
from holdfast.sandbox.names import Lookup
from holdfast.sandbox.proxy_bodies import Body
from holdfast.sandbox.proxy_exchange import LIMITS, Limits, Reach, _Passage
from holdfast.sandbox.proxy_streams import Plain
from tests.tools.web_server import Heard, WebServer, response, web_server

FILES = 1_000
QUICK = Limits(head_s=0.2, connect_s=1.0, idle_s=0.3, linger_s=0.2, max_bytes=1 << 20)


class Call:
    """A call with its way to the proxy."""

    def __init__(self, port: int, driver: socket.socket, reader: asyncio.StreamReader) -> None:
        self.port = port
        self.driver = driver
        self._reader = reader
        self._words: list[Word] = []

    async def ask(self, *lines: str, body: bytes = b"") -> bytes:
        """Send a request with these lines, and return all that comes back."""
        return await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def send(self, words: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(words)
        try:
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()

    async def told(self) -> list[Exchange]:
        """End the call, and return what was told of its requests."""
        with contextlib.suppress(OSError):
            self.driver.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(5):
            async for line in self._reader:
                self._words.append(msgspec.json.decode(line, type=Word))
        return [word.exchange for word in self._words if word.exchange is not None]

    async def more(self) -> int:
        await self.told()
        return self._words[-1].more


@asynccontextmanager
async def call_of(
    door: socket.socket,
    hosts: Sequence[str],
    secrets: tuple[StandIn, ...] = (),
    authority: Authority | None = None,
) -> AsyncIterator[Call]:
    """Pass a call to a proxy, as its driver does."""
    ours, channel = socket.socketpair()
    inside, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.create_server(("127.0.0.1", 0)) as listener, channel, entrance, inside:
        port = listener.getsockname()[1]
        socket.send_fds(door, [b"+"], [channel.fileno(), entrance.fileno()])
        socket.send_fds(inside, [b"+"], [listener.fileno()])
    driver = ours.dup()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(msgspec.json.encode(Told(tuple(hosts), secrets, authority)) + b"\n")
    try:
        yield Call(port, driver, reader)
    finally:
        driver.close()
        writer.transport.abort()


NAMES = {
    "b.example": ["127.0.0.1"],
    "meta.example": ["169.254.169.254"],
    "two.example": ["192.0.2.1", "10.0.0.1"],
    "mixed.example": ["93.184.215.14", "10.0.0.1"],
}


async def lookup(host: str, port: int) -> Sequence[str]:
    return NAMES[host]


def silent(server: WebServer, path: str = "/slow") -> asyncio.Event:
    """Let a path never answer. Return what happens when somebody asks for it."""
    has_begun = asyncio.Event()

    async def never(heard: Heard, writer: asyncio.StreamWriter) -> None:
        has_begun.set()
        await asyncio.sleep(3_600)

    server.answers[path] = never
    return has_begun


@asynccontextmanager
async def proxy(
    limits: Limits = LIMITS, files: int = FILES, lookup: Lookup = lookup
) -> AsyncIterator[socket.socket]:
    """Run a proxy, and return the door to it."""
    door, given = socket.socketpair()
    given.setblocking(False)
    with door, given:
        serving = asyncio.create_task(proxy_calls.serve(given, files, lookup, limits))
        yield door
        door.close()
        async with asyncio.timeout(5):
            await serving


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        served.answers["/"] = response("hello", "text/plain")
        yield served


@asynccontextmanager
async def alone(
    hosts: Sequence[str],
    limits: Limits = LIMITS,
    secrets: tuple[StandIn, ...] = (),
    authority: Authority | None = None,
) -> AsyncIterator[Call]:
    async with proxy(limits) as door, call_of(door, hosts, secrets, authority) as call:
        yield call


def allowing(server: WebServer) -> list[str]:
    return [f"127.0.0.1:{server.port}"]


# --- what goes through ----------------------------------------------------------------------------


async def test_a_request_reaches_a_listed_server_and_is_told(server: WebServer) -> None:
    async with alone(allowing(server)) as call:
        said = await call.ask(
            f"GET {server.url('/?x=1')} HTTP/1.1", "X-One: 1", "Proxy-Connection: keep-alive"
        )
        assert said.endswith(b"\r\n\r\nhello")
        (told,) = await call.told()
    (heard,) = server.heard
    assert heard == Heard(
        "GET", "/?x=1", {"host": f"127.0.0.1:{server.port}", "x-one": "1", "connection": "close"}, b""
    )
    assert (told.method, told.where, told.verdict, told.status) == (
        "GET",
        server.url("/?x=1"),
        "allowed",
        200,
    )
    assert told.received_bytes == len(response("hello", "text/plain"))


@pytest.mark.parametrize(
    ("headers", "body", "heard"),
    [
        (["Content-Length: 5"], b"abcde", b"abcde"),
        (["Content-Length: 5"], b"abcdeGET http://b.example/ HTTP/1.1\r\n\r\n", b"abcde"),
    ],
)
async def test_a_body_reaches_the_server_and_nothing_after_it(
    server: WebServer, headers: list[str], body: bytes, heard: bytes
) -> None:
    async with alone(allowing(server)) as call:
        assert (await call.ask(f"POST {server.url('/')} HTTP/1.1", *headers, body=body)).endswith(b"hello")
        assert len(await call.told()) == 1
    assert [each.body for each in server.heard] == [heard]


async def test_a_body_in_chunks_reaches_the_server_and_nothing_after_it(server: WebServer) -> None:
    came = bytearray()

    async def keep(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(response("thanks"))

    server.answers["/"] = keep
    raw = await asyncio.start_server(lambda reader, writer: _all_of(reader, writer, came), "127.0.0.1", 0)
    port = raw.sockets[0].getsockname()[1]
    async with raw, alone([f"127.0.0.1:{port}"]) as call:
        said = await call.ask(
            f"POST http://127.0.0.1:{port}/ HTTP/1.1", "Transfer-Encoding: chunked",
            body=b"3\r\nabc\r\n0\r\n\r\nGET http://b.example/ HTTP/1.1\r\n\r\n",
        )  # fmt: skip
    assert said.endswith(b"ok")
    assert came.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")


async def _all_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, came: bytearray) -> None:
    came += await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
    await writer.drain()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            came += await reader.read(1)
    writer.close()


async def test_a_program_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    here = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, alone([here]) as call:
        reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
        lines = (f"PUT http://{here}/ HTTP/1.1", "Content-Length: 5", "Expect: 100-continue", "", "")
        writer.write("\r\n".join(lines).encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abcde")
        assert (await reader.read()).endswith(b"\r\n\r\nabcde")
        writer.close()
        (told,) = await call.told()
    assert (told.verdict, told.status) == ("allowed", 200)


async def test_a_tunnel_carries_bytes_both_ways_until_both_sides_have_ended(server: WebServer) -> None:
    async with alone(allowing(server)) as call:
        head = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode()
        said = await call.send(head + b"GET / HTTP/1.1\r\n\r\n")
        (told,) = await call.told()
    assert said == b"HTTP/1.1 200 Connection established\r\n\r\n" + response("hello", "text/plain")
    assert (told.method, told.where, told.status) == ("CONNECT", f"127.0.0.1:{server.port}", 200)
    assert told.sent_bytes == len(b"GET / HTTP/1.1\r\n\r\n")


async def test_each_call_has_its_own_hosts_and_hears_of_its_own_requests(server: WebServer) -> None:
    async with proxy() as door, call_of(door, allowing(server)) as one, call_of(door, ["a.example"]) as other:
        assert b" 200 OK" in await one.ask(f"GET {server.url('/')} HTTP/1.1")
        assert b" 403 " in await other.ask(f"GET {server.url('/')} HTTP/1.1")
        assert [each.verdict for each in await one.told()] == ["allowed"]
        assert [each.verdict for each in await other.told()] == ["refused"]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("a.example:443", "not listed"), ("b.example:22", "not listed"), ("192.0.2.1:443", "not listed"),
        ("127.0.0.1:443", "not listed"), ("localhost:443", "this machine"), ("0177.0.0.1:443", "unusual"),
        ("meta.example:443", "leads to 169.254.169.254"),
        ("2130706433:443", "unusual"), ("[::ffff:127.0.0.1]:443", "inside another one"),
        ("b.example:443", "leads to 127.0.0.1"), ("meta.example:80", "leads to 169.254.169.254"),
        ("two.example:443", "leads to"), ("mixed.example:443", "leads to 10.0.0.1"),
        ("b.example:0443", "unusual"), ("b.example%00.a.example:443", "unusual"),
    ],
)  # fmt: skip
async def test_nothing_connects_to_what_is_not_listed_or_leads_elsewhere(where: str, why: str) -> None:
    async with alone([*NAMES]) as call:
        said = (await call.ask(f"CONNECT {where} HTTP/1.1")).decode()
        assert said.startswith("HTTP/1.1 403")
        assert why in said
        (told,) = await call.told()
    assert told.verdict == "refused"


async def test_a_refusal_says_which_line_of_the_configuration_would_allow_it(server: WebServer) -> None:
    async with alone(["a.example"]) as call:
        assert b'[network] allow = ["b.example"]' in await call.ask("CONNECT b.example:443 HTTP/1.1")
        assert f'[network] allow = ["127.0.0.1:{server.port}"]'.encode() in await call.ask(
            f"GET {server.url('/')} HTTP/1.1"
        )


async def test_a_header_that_names_another_host_refuses_the_request(server: WebServer) -> None:
    async with alone(allowing(server)) as call:
        assert b" 400 " in await call.ask(f"GET {server.url('/')} HTTP/1.1", "Host: a.example")
    assert server.heard == []


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 50"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("X: 1\nTransfer-Encoding: chunked",),
        ("Content-Length: 5\r\n Transfer-Encoding: chunked",),
    ],
)
async def test_a_smuggled_request_does_not_reach_the_server(
    server: WebServer, lines: tuple[str, ...]
) -> None:
    async with alone(allowing(server)) as call:
        hidden = b"0\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"
        assert b" 400 " in await call.ask(f"POST {server.url('/')} HTTP/1.1", *lines, body=hidden)
    assert server.heard == []


async def test_a_chunk_with_two_readings_ends_the_request(server: WebServer) -> None:
    async with alone(allowing(server)) as call:
        lines = (f"POST {server.url('/slow')} HTTP/1.1", "Transfer-Encoding: chunked")
        silent(server)
        assert b" 400 " in await call.ask(*lines, body=b"3;x\nabc\r\n0\r\n\r\n")


async def test_a_secret_in_an_address_does_not_leave(server: WebServer) -> None:
    token = "ghp_" + "a1B2" * 9
    async with alone(allowing(server)) as call:
        said = await call.ask(f"GET {server.url(f'/?t={token}')} HTTP/1.1")
        assert b"looks like a secret" in said
        assert token.encode() not in said
    assert server.heard == []


async def test_an_address_is_told_whole_or_not_at_all(server: WebServer) -> None:
    """It is masked later, and nobody masks a part of a secret."""
    async with alone(allowing(server)) as call:
        await call.ask(f"GET {server.url('/' + 'x' * 7_000)} HTTP/1.1")
        await call.ask(f"GET {server.url('/' + 'x' * 9_000)} HTTP/1.1")
        told = await call.told()
    assert [each.where for each in told] == [
        server.url("/" + "x" * 7_000),
        f"[an address of {len(server.url('/')) + 9_000:,} characters]",
    ]
    assert not any("xxx" in each.why for each in told)


async def test_a_server_that_announces_a_response_without_end_is_said_to_fail(server: WebServer) -> None:
    server.answers["/"] = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000
    async with alone(allowing(server)) as call:
        said = await call.ask(f"GET {server.url('/')} HTTP/1.1")
        (told,) = await call.told()
    assert 0 < said.count(b" 103 ") <= 20
    assert (told.verdict, told.why) == ("failed", "The server announces a response without end.")


class Quick(Plain):
    """A side that always has more and takes all at once, so that who waits for it never gives way."""

    left = 100

    async def receive(self, most: int) -> bytes:
        self.left -= 1
        return b"x" * 10 if self.left > 0 else b""

    async def send(self, data: bytes) -> None:
        pass


@pytest.mark.parametrize("length", [0, 990], ids=["what follows the request", "its body"])
async def test_a_program_that_is_always_ready_lets_others_have_their_turn(length: int) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with socket.socket() as any_socket:
        program = Quick(any_socket)
        passage = _Passage(program, Reach([], lookup), LIMITS)
        waiting = asyncio.create_task(others())
        async with passage._limited():
            await passage._send_body(program, Body(length), b"")
        waiting.cancel()
    assert turns >= 99


# --- limits ---------------------------------------------------------------------------------------


async def test_a_head_that_is_too_long_is_refused(server: WebServer) -> None:
    async with alone(allowing(server)) as call:
        assert b" 431 " in await call.ask(f"GET {server.url('/')} HTTP/1.1", f"X: {'x' * 40_000}")
        assert b" 431 " in await call.send(b"x" * 1_000_000)


async def test_a_head_that_comes_too_slowly_ends_and_holds_nobody_up(server: WebServer) -> None:
    async with alone(allowing(server), QUICK) as call:
        slow = [
            await asyncio.open_connection("127.0.0.1", call.port) for _ in range(proxy_calls.MAX_CONNECTIONS)
        ]
        for _, writer in slow:
            writer.write(b"GET ")
        assert b" 200 OK" in await call.ask(f"GET {server.url('/')} HTTP/1.1")
        assert b" 408 " in await slow[0][0].read()
        for _, writer in slow:
            writer.close()


async def test_many_connections_wait_for_each_other_and_not_for_another_call(server: WebServer) -> None:
    silent(server)
    held: list[asyncio.StreamWriter] = []
    async with (
        proxy(files=500) as door,
        call_of(door, allowing(server)) as greedy,
        call_of(door, allowing(server)) as other,
    ):
        for _ in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", greedy.port)
            writer.write(f"GET {server.url('/slow')} HTTP/1.1\r\n\r\n".encode())
            held.append(writer)
        assert b" 200 OK" in await other.ask(f"GET {server.url('/')} HTTP/1.1")
        for writer in held:
            writer.close()


async def test_names_that_nobody_resolves_hold_up_only_the_call_that_asks_for_them(server: WebServer) -> None:
    asked = list[str]()

    async def never(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        if host.endswith(".slow.example"):
            await asyncio.sleep(3_600)
        return ["127.0.0.1"]

    here = f"fine.example:{server.port}"
    limits = Limits(connect_s=0.2)
    async with (
        proxy(limits, lookup=never) as door,
        call_of(door, ["*.slow.example"]) as greedy,
        call_of(door, [here, *allowing(server)]) as other,
    ):
        said = await asyncio.gather(
            *(greedy.ask(f"CONNECT n{n}.slow.example:443 HTTP/1.1") for n in range(30))
        )
        assert all(b" 502 The name" in each for each in said)
        assert len(asked) == 8
        assert b" 200 OK" in await other.ask(f"GET http://{here}/ HTTP/1.1")


async def test_a_silent_server_ends_a_request(server: WebServer) -> None:
    silent(server)
    async with alone(allowing(server), QUICK) as call:
        assert b" 504 " in await call.ask(f"GET {server.url('/slow')} HTTP/1.1")
        (told,) = await call.told()
    assert told.verdict == "failed"


@pytest.mark.parametrize("how", ["response", "body", "tunnel"])
async def test_no_more_than_the_limit_goes_through(server: WebServer, how: str) -> None:
    server.answers["/much"] = response(b"x" * (2 << 20))
    async with alone(allowing(server), QUICK) as call:
        if how == "response":
            said = await call.ask(f"GET {server.url('/much')} HTTP/1.1")
        elif how == "body":
            lines = (f"POST {server.url('/')} HTTP/1.1", f"Content-Length: {2 << 20}")
            said = await call.ask(*lines, body=b"x" * (2 << 20))
        else:
            start = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode()
            said = await call.send(start + b"GET /much HTTP/1.1\r\n\r\n")
        (told,) = await call.told()
    assert len(said) < 1 << 20
    assert (told.verdict, told.why) == ("failed", "More than 1 MiB went through.")


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"SSH-2.0-x\r\n\r\n", 502), (b"", 502), (b"x" * 100_000, 502), (b"HTTP/1.1 101 Go\r\n\r\n", 502)],
)
async def test_a_server_that_does_not_speak_http_is_said_to_fail(
    server: WebServer, answer: bytes, status: int
) -> None:
    server.answers["/"] = answer
    async with alone(allowing(server)) as call:
        assert f" {status} ".encode() in await call.ask(f"GET {server.url('/')} HTTP/1.1")


async def test_a_name_or_server_that_is_not_there_is_said_to_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with alone([f"127.0.0.1:{port}"]) as call:
        assert b" 502 127.0.0.1" in await call.ask(f"GET http://127.0.0.1:{port}/ HTTP/1.1")


async def test_only_so_many_requests_of_a_call_are_told_and_the_others_are_counted(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_EXCHANGES > 3
    monkeypatch.setattr(proxy_calls, "MAX_EXCHANGES", 3)
    async with alone(allowing(server)) as call:
        for _ in range(5):
            await call.ask("GET http://a.example/ HTTP/1.1")
        assert await call.more() == 2
        assert len(await call.told()) == 3


def files_of_this_process() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_connection_that_waits_takes_no_file_of_the_proxy(server: WebServer) -> None:
    has_begun = silent(server)
    async with proxy(files=300) as door, call_of(door, allowing(server)) as call:
        held: list[asyncio.StreamWriter] = []
        before = files_of_this_process()
        for _ in range(120):
            _, writer = await asyncio.open_connection("127.0.0.1", call.port)
            writer.write(f"GET {server.url('/slow')} HTTP/1.1\r\n\r\n".encode())
            held.append(writer)
        await has_begun.wait()
        await asyncio.sleep(0.2)
        inside = files_of_this_process() - before - len(held)
        for writer in held:
            writer.close()
    each_most = (300 - 300 // 4 - 64) // 4
    assert inside <= 3 * each_most + 10  # of three files, one is the server's


async def test_a_call_whose_files_do_not_come_ends_alone(server: WebServer) -> None:
    async with proxy() as door, call_of(door, allowing(server)) as call:
        door.sendall(b"+")  # as the machine passes them when the proxy has no place for more
        ours, channel = socket.socketpair()
        with ours, channel:
            socket.send_fds(door, [b"+"], [channel.fileno()])
            channel.close()
            ours.setblocking(False)
            told = await asyncio.get_running_loop().sock_recv(ours, 1_000)
            assert b"This call had no network" in told
        assert b" 200 OK" in await call.ask(f"GET {server.url('/')} HTTP/1.1")


async def test_calls_beyond_the_files_of_the_proxy_hear_why_they_have_no_network(server: WebServer) -> None:
    async with proxy(files=100) as door, contextlib.AsyncExitStack() as calls:
        places = 100 // 4 // 4
        before = files_of_this_process()
        held = [await calls.enter_async_context(call_of(door, allowing(server))) for _ in range(places + 3)]
        for call in held[places:]:
            (told,) = await call.told()
            assert (told.verdict, told.why) == ("failed", proxy_calls.FULL.format(files=100))
        assert b" 200 OK" in await held[0].ask(f"GET {server.url('/')} HTTP/1.1")
        await held[0].told()
        async with call_of(door, allowing(server)) as late:
            assert b" 200 OK" in await late.ask(f"GET {server.url('/')} HTTP/1.1")
        assert files_of_this_process() - before < 6 * len(held)


async def test_a_program_that_goes_away_frees_its_place_although_the_server_is_silent(
    server: WebServer,
) -> None:
    has_begun = silent(server)
    async with alone(allowing(server), Limits(linger_s=0.1)) as call:
        _, writer = await asyncio.open_connection("127.0.0.1", call.port)
        writer.write(f"GET {server.url('/slow')} HTTP/1.1\r\n\r\n".encode())
        await has_begun.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        writer.transport.abort()
        await asyncio.sleep(0.3)
        (told,) = await call.told()
    assert told.why in ("Nothing came for too long.", "The connection broke.")


# --- ends -----------------------------------------------------------------------------------------


async def test_at_the_end_of_a_call_its_connections_are_closed_and_told(server: WebServer) -> None:
    has_begun = silent(server)
    async with alone(allowing(server)) as call:
        reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
        writer.write(f"GET {server.url('/slow')} HTTP/1.1\r\n\r\n".encode())
        await has_begun.wait()
        (told,) = await call.told()
        assert (told.verdict, told.why) == ("failed", "The call ended before.")
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", call.port)


async def test_a_proxy_without_its_driver_ends_with_all_calls(server: WebServer) -> None:
    has_begun = silent(server)
    async with proxy() as door, call_of(door, allowing(server)) as call:
        reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
        writer.write(f"GET {server.url('/slow')} HTTP/1.1\r\n\r\n".encode())
        await has_begun.wait()
        door.close()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
