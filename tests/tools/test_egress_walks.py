"""Random walks over redirects and names that change their address: what is not listed never hears a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.policy.protected import Own
from holdfast.protocol.settings import Policy
from holdfast.tools.builtin import make_tools
from holdfast.tools.web import Web
from tests.tools.conftest import Bench
from tests.tools.web_server import Heard, WebServer, web_server

LISTED, FORBIDDEN = "{listed}", "{forbidden}"
"""In an address, the port of the server that is listed, and of the one that is not."""
HOSTS = (
    "127.0.0.1", "steady.example", "turning.example", "wild.sub.example", "forbidden.example", "localhost",
    "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "0.0.0.0",
    "127.0.0.2", "127.0.0.1.", "user@127.0.0.1", "steady.example:80@127.0.0.1", "steady.example\\@127.0.0.1",
    "①27.0.0.1", "steady.example%2f@127.0.0.1", "steady.example#@127.0.0.1", "169.254.169.254",
)  # fmt: skip
ADDRESSES = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "10.0.0.1", "64:ff9b::7f00:1")
STATUSES = (301, 302, 303, 307, 308)


class Step(NamedTuple):
    """One redirect: its status, and where it leads."""

    status: int
    scheme: str
    host: str
    port: str
    path: str

    def to(self, ports: dict[str, str]) -> str:
        relative = self.path if self.host == "127.0.0.1" and not self.scheme else ""
        return relative or f"{self.scheme}//{self.host}:{ports[self.port]}{self.path}"


PATHS = tuple(f"/{number}" for number in range(6))
GOOD = ("steady.example", "turning.example", "wild.sub.example", "127.0.0.1")
"""Hosts that are listed: most steps lead to one of them, so that a walk goes on."""
PLAIN = st.builds(
    Step,
    st.sampled_from(STATUSES),
    st.just("http:"),
    st.sampled_from(GOOD),
    st.just(LISTED),
    st.sampled_from(PATHS[1:]),
)
ODD = st.builds(
    Step,
    st.sampled_from(STATUSES),
    st.sampled_from(("http:", "", "https:", "HTTP:", "file:", "gopher:", "http:\t")),
    st.sampled_from(HOSTS),
    st.sampled_from((LISTED, FORBIDDEN)),
    st.sampled_from(PATHS),
)
WALKS = st.tuples(
    st.lists(st.one_of(PLAIN, PLAIN, ODD), min_size=len(PATHS), max_size=len(PATHS)),
    st.lists(
        st.one_of(
            st.just(["127.0.0.1"]),
            st.just(["127.0.0.2"]),
            st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(("GET", "HEAD", "POST", "PUT", "DELETE")),
    st.sampled_from(GOOD),
)


class Turning:
    """A resolver whose names change their addresses with each question."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked = 0

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        if host != "turning.example":
            return ["127.0.0.1"]
        return self.answers[self.asked % len(self.answers)]


class Land:
    """A server that is listed, and two that are not: on another port, and on the same port of another address."""

    def __init__(self, listed: WebServer, near: WebServer, far: WebServer) -> None:
        self.listed = listed
        self.forbidden = (near, far)
        self.ports = {LISTED: str(listed.port), FORBIDDEN: str(near.port)}


async def walked(land: Land, bench: Bench, walk: Any) -> None:
    steps, answers, method, host = walk
    turning = Turning(answers)
    for server in (land.listed, *land.forbidden):
        server.heard.clear()
        server.answers.clear()
        for path, step in zip(PATHS, steps, strict=True):
            server.answers[path] = redirecting(step, land.ports)
    port = land.listed.port
    hosts = (
        f"127.0.0.1:{port}",
        f"steady.example:{port}",
        f"turning.example:{port}",
        f"*.sub.example:{port}",
    )
    tools = make_tools(secret_in=lambda _: "", own=Own(), web=Web(turning.lookup))
    url = f"http://{host}:{port}/0"
    arguments = {"method": method, "url": url, "headers": {"Authorization": "Bearer x"}, "body": "b"}
    if method in ("GET", "HEAD"):
        del arguments["body"]
    context = bench.context(policy=Policy(allowed_hosts=hosts), timeout_s=20.0)
    result = await tools.run("http_request", json.dumps(arguments), context)
    await tools.aclose()
    assert "bug" not in result.text
    assert [server.heard for server in land.forbidden] == [[], []]
    assert len(land.listed.heard) <= 6
    assert turning.asked <= 6
    origin = land.listed.heard[0].headers["host"] if land.listed.heard else ""
    for heard in land.listed.heard:
        assert heard.headers["host"].lower().rpartition(":")[2] == str(port)
        assert ("authorization" not in heard.headers) or heard.headers["host"] == origin
        assert not heard.body or heard.headers["host"] == origin


def redirecting(step: Step, ports: dict[str, str]) -> Any:
    async def answer(_: Heard, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {step.status} Moved\r\nLocation: {step.to(ports)}\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()

    return answer


async def walk_all(bench: Bench, count: int) -> None:
    """Run so many random walks over two real servers."""
    loop = asyncio.get_running_loop()
    async with (
        web_server() as listed,
        web_server() as near,
        web_server(host="127.0.0.2", port=listed.port) as far,
    ):
        land = Land(listed, near, far)

        @settings(max_examples=count, deadline=None, suppress_health_check=[*HealthCheck], database=None)
        @given(WALKS)
        def walk_one(walk: Any) -> None:
            asyncio.run_coroutine_threadsafe(walked(land, bench, walk), loop).result(60)

        await asyncio.to_thread(walk_one)


@pytest.mark.requirement("C12")
async def test_no_walk_over_redirects_and_names_reaches_what_is_not_listed(tmp_path: Path) -> None:
    await walk_all(Bench(tmp_path, None), 30)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.requirement("C12")
async def test_no_long_walk_over_redirects_and_names_reaches_what_is_not_listed(tmp_path: Path) -> None:
    await walk_all(Bench(tmp_path, None), 1_000)  # type: ignore[arg-type]
