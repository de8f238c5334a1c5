"""TLS that ends in the proxy: for the hosts of secrets alone, and only if both sides can be sure of each other."""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from holdfast.protocol.fence import Fence, Finding, Launch
from holdfast.protocol.traffic import Authority, Exchange, StandIn
from holdfast.sandbox import bubblewrap, landlock, proxy_tls
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.sandbox.proxy_exchange import Limits
from holdfast.testing.clock import never_over
from tests.sandbox.test_proxy import Call, alone, files_of_this_process, silent
from tests.sandbox.test_proxy_secrets import MARK, VALUE, echo
from tests.tools.web_server import Heard, WebServer, response, web_server

LIMIT_S = 60.0
FETCH = """
import sys
from urllib.request import Request, urlopen

print(urlopen(Request(sys.argv[1], headers={"Authorization": sys.argv[2]})).read())
"""


class World(NamedTuple):
    """What this machine trusts, and a server that it trusts."""

    certificate: str
    server: WebServer

    @property
    def url(self) -> str:
        return self.server.url("/", scheme="https")

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def secret(self) -> StandIn:
        return StandIn("MINE", MARK, VALUE, "Authorization", (self.host,))


@pytest.fixture(scope="module")
def authorities() -> tuple[Authority, Authority]:
    """The one that this machine trusts, and the proxy's."""
    return proxy_tls.new_authority(), proxy_tls.new_authority()


@pytest.fixture
async def world(
    authorities: tuple[Authority, Authority], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    file = tmp_path / "machine.pem"
    file.write_text(authorities[0].certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    proxy_tls.trusting.cache_clear()
    context = proxy_tls.Certificates(authorities[0]).context("127.0.0.1")
    async with web_server(context) as server:
        server.answers["/"] = echo
        yield World(authorities[0].certificate, server)
    proxy_tls.trusting.cache_clear()


@asynccontextmanager
async def inside(
    call: Call, world: World, trusted: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a tunnel, and speak TLS in it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
    try:
        writer.write(f"CONNECT {world.host} HTTP/1.1\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await writer.start_tls(ssl.create_default_context(cadata=trusted), server_hostname="127.0.0.1")
        yield reader, writer
    finally:
        writer.transport.abort()


async def through(call: Call, world: World, trusted: str, *lines: str) -> bytes:
    """Send a request inside a tunnel, and return the whole answer."""
    async with inside(call, world, trusted) as (reader, writer), asyncio.timeout(10):
        writer.write("\r\n".join(["GET / HTTP/1.1", f"Host: {world.host}", *lines, "", ""]).encode())
        return await reader.read()


@pytest.mark.requirement("S7")
async def test_a_secret_gets_into_a_request_inside_of_tls(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    ours = authorities[1]
    async with alone([world.host], secrets=(world.secret,), authority=ours) as call:
        said = await through(call, world, ours.certificate, f"Authorization: Bearer {MARK}")
        refused = await through(call, world, ours.certificate, f"X-Other: {MARK}")
        told = await call.told()
    assert [heard.headers.get("authorization") for heard in world.server.heard] == [f"Bearer {VALUE}"]
    assert (said.count(b"*" * len(VALUE)), VALUE.encode() in said, refused.split(b" ")[1]) == (
        3,
        False,
        b"403",
    )
    assert [(each.method, each.where, each.verdict) for each in told] == [
        ("GET", world.url, "allowed"),
        ("GET", world.url, "refused"),
    ]


async def test_without_a_secret_for_the_host_tls_goes_through_untouched(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    elsewhere = StandIn("MINE", MARK, VALUE, "Authorization", ("a.example",))
    async with alone([world.host], secrets=(elsewhere,), authority=authorities[1]) as call:
        assert b"none and none" in await through(call, world, world.certificate)
        (told,) = await call.told()
    assert (told.method, told.where) == ("CONNECT", world.host)


async def test_a_program_that_does_not_trust_the_proxy_fails_with_the_reason(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    async with alone([world.host], secrets=(world.secret,), authority=authorities[1]) as call:
        with pytest.raises(ssl.SSLError):
            await through(call, world, world.certificate)
        (told,) = await call.told()
    assert (told.verdict, world.server.heard) == ("failed", [])
    assert "does not accept the certificate of Holdfast's proxy" in told.why


async def test_a_program_that_speaks_no_tls_in_its_tunnel_fails_with_the_reason(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    async with alone([world.host], secrets=(world.secret,), authority=authorities[1]) as call:
        tunnel, plain = f"CONNECT {world.host} HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
        writer.write(tunnel.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.write(plain)
        async with asyncio.timeout(5):
            await reader.read()
        writer.transport.abort()
        (told,) = await call.told()
    assert (told.verdict, world.server.heard) == ("failed", [])
    assert "speaks HTTP without TLS in a tunnel" in told.why


@pytest.mark.requirement("S7")
async def test_a_server_that_this_machine_does_not_trust_gets_no_secret(
    world: World, authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    proxy_tls.trusting.cache_clear()
    async with alone([world.host], secrets=(world.secret,), authority=authorities[1]) as call:
        said = await through(call, world, authorities[1].certificate, f"Authorization: {MARK}")
        (told,) = await call.told()
    assert (said.split(b" ")[1], told.verdict, world.server.heard) == (b"502", "failed", [])
    assert "no valid certificate" in told.why


async def test_a_program_that_does_not_read_inside_of_tls_ends_its_request(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    has_ended = asyncio.Event()

    async def flood(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(bytes(1 << 20))
                await writer.drain()
        finally:
            has_ended.set()

    world.server.answers["/"] = flood
    ours = authorities[1]
    async with (
        alone([world.host], Limits(idle_s=0.3), (world.secret,), ours) as call,
        inside(call, world, ours.certificate) as (_, writer),
    ):
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        writer.write(f"GET / HTTP/1.1\r\nHost: {world.host}\r\n\r\n".encode())
        async with asyncio.timeout(5):
            await has_ended.wait()
        (told,) = await call.told()
    assert told.why == "Nothing came for too long."


async def test_a_server_that_does_not_read_inside_of_tls_ends_the_request(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    ours = authorities[1]
    async with (
        alone([world.host], Limits(idle_s=0.3), (world.secret,), ours) as call,
        inside(call, world, ours.certificate) as (reader, writer),
    ):
        silent(world.server, "/")
        head = f"POST / HTTP/1.1\r\nHost: {world.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"800000\r\n" + bytes(8 << 20) + b"\r\n")
        async with asyncio.timeout(5):
            assert b" 504 " in await reader.read()
        (told,) = await call.told()
    assert told.why == "Nothing came for too long."


async def test_a_connection_inside_of_tls_has_one_file_on_each_side(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    has_begun = silent(world.server, "/")
    ours = authorities[1]
    async with (
        alone([world.host], secrets=(world.secret,), authority=ours) as call,
        inside(call, world, ours.certificate) as (_, writer),
    ):
        before = files_of_this_process()
        writer.write(f"GET / HTTP/1.1\r\nHost: {world.host}\r\n\r\n".encode())
        await has_begun.wait()
        assert files_of_this_process() - before == 2  # the proxy's to the server, and the server's own


async def test_a_large_body_goes_through_tls_unchanged(
    world: World, authorities: tuple[Authority, Authority]
) -> None:
    content = os.urandom(3 << 20)
    world.server.answers["/"] = response(content)
    ours = authorities[1]
    async with alone([world.host], secrets=(world.secret,), authority=ours) as call:
        said = await through(call, world, ours.certificate)
        (told,) = await call.told()
    assert said.endswith(content)
    assert (told.verdict, told.received_bytes) == ("allowed", len(response(content)))


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("backend", [bubblewrap, landlock], ids=["bubblewrap", "landlock"])
async def test_real_programs_in_a_sandbox_trust_the_proxy(
    world: World, tmp_path: Path, backend: ModuleType
) -> None:
    made = backend.make()
    if isinstance(made, Finding):
        pytest.skip(made.fault)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "fetch.py").write_text(FETCH)
    command = f"""
        curl -sS -H 'Authorization: {MARK}' {world.url}; echo
        /usr/bin/env python3 fetch.py {world.url} {MARK}
        cat "$SSL_CERT_FILE" > trusted.pem
    """
    exchanges = list[Exchange]()
    launch = Launch(
        ("/bin/bash", "-c", command), str(workspace), f"test-{os.getpid()}:tls", clean_environment(os.environ),
        LIMIT_S, LIMIT_S, never_over, secrets=(world.secret,), on_exchange=exchanges.append,
        fence=Fence((str(workspace),), private=(str(Path.home()),), hosts=(world.host,)),
    )  # fmt: skip
    processes = Processes(made)
    try:
        ended = await processes.run(launch, lambda _: None)
    finally:
        await processes.aclose()
    stars = "*" * len(VALUE)
    assert ended.output.splitlines() == [f"{stars} and {stars}", f"b'{stars} and {stars}'"]
    assert world.certificate in (workspace / "trusted.pem").read_text()
    assert [(each.where, each.verdict) for each in exchanges] == [(world.url, "allowed")] * 2
    assert [heard.headers["authorization"] for heard in world.server.heard] == [VALUE, VALUE]


def test_certificates_are_kept_for_a_bounded_number_of_hosts(
    authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret for `*.example.com` has as many hosts as a program makes up."""
    monkeypatch.setattr(proxy_tls, "_MOST_HOSTS", 3)
    certificates = proxy_tls.Certificates(authorities[1])
    made = [weakref.ref(certificates.context(f"{number}.example.com")) for number in range(8)]
    assert certificates.context("7.example.com") is made[-1]()
    assert sum(each() is not None for each in made) <= 3
