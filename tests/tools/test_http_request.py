"""http_request: what it sends, to whom a redirect may send it on, and what comes back."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.policy.protected import Own
from holdfast.protocol.ports import RawResult
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Allowed, Asked, Refused
from holdfast.tools.builtin import make_tools
from tests.tools.conftest import Bench
from tests.tools.web_server import WebServer, response, web_server

SECRET = "hunter2-hunter2"


class Api:
    """Two servers that are listed, and http_request."""

    def __init__(self, bench: Bench, server: WebServer, other: WebServer) -> None:
        self.bench = bench
        self.server = server
        self.other = other

    async def send(self, method: str = "GET", path: str = "/", **rest: Any) -> RawResult:
        return await self.bench.call("http_request", method=method, url=self.server.url(path), **rest)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    tools = make_tools(secret_in=lambda text: "HUNTER" if SECRET in text else "", own=Own())
    bench = Bench(tmp_path, tools)
    async with web_server() as server, web_server() as other:
        listed = (f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}")
        bench.settings = changed(bench.settings, allowed_hosts=listed)
        for each in (server, other):
            each.answers["/"] = response('{"ok": true}', "application/json")
        yield Api(bench, server, other)
    await tools.aclose()


async def test_a_request_has_its_method_headers_and_body_and_comes_back_whole(api: Api) -> None:
    api.server.answers["/made"] = response(
        '{"id": 1}', "application/json", "201 Created", ("Location: /made/1", "Set-Cookie: s=" + "c" * 20)
    )
    result = await api.send("POST", "/made", headers={"X-Kind": "a"}, body='{"n": "ü"}')
    (heard,) = api.server.heard
    assert (heard.method, heard.body.decode()) == ("POST", '{"n": "ü"}')
    assert (heard.headers["x-kind"], heard.headers["content-type"]) == ("a", "application/json")
    assert (result.status, result.trust, result.origin) == ("ok", "untrusted", f"127.0.0.1:{api.server.port}")
    head, _, *lines = result.text.split("\n")
    assert head == f"[POST {api.server.url('/made')}: 201 Created, application/json, 9 bytes]"
    assert lines[:-1] == ["location: /made/1", "content-type: application/json", "", '{"id": 1}']


@pytest.mark.parametrize(
    ("method", "status", "verdict"),
    [("GET", "404 Not Found", "error"), ("HEAD", "200 OK", "ok"), ("DELETE", "204 No Content", "ok"),
     ("GET", "500 Oh", "error"), ("GET", "304 Not Modified", "ok"), ("OPTIONS", "200 OK", "ok")],
)  # fmt: skip
async def test_the_status_of_the_server_is_that_of_the_result(
    api: Api, method: str, status: str, verdict: str
) -> None:
    body = "" if method == "HEAD" or status[:3] in ("204", "304") else "why"
    api.server.answers["/"] = response(body, "text/plain", status)
    result = await api.send(method)
    assert result.status == verdict
    assert f": {status[:3]}" in result.text


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"}, {"X": "a\nb"}, {"X\r\nHost": "evil"}, {"X:": "a"}, {"": "a"},
        {"X Y": "a"}, {"X": "ü"}, {"Host": "evil"},
        {"host": "evil"}, {"Content-Length": "0"}, {"Transfer-Encoding": "chunked"}, {"X": "a\0"},
        {"Connection": "close"}, {"Proxy-Authorization": "x"}, {"Accept": "a", "accept": "b"}, {"X": "a" * 9_000},
        {f"X-{n}": "a" for n in range(51)}, {"Upgrade": "websocket"}, {"Expect": "100-continue"}, {"é": "a"},
    ],
)  # fmt: skip
async def test_a_header_that_could_become_another_request_is_refused(
    api: Api, headers: dict[str, str]
) -> None:
    result = await api.send(headers=headers)
    assert result.status == "error"
    assert api.server.heard == []


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("part", ["headers", "body", "url", "basic"])
async def test_the_value_of_a_known_secret_is_refused_in_any_part(api: Api, part: str) -> None:
    basic = base64.b64encode(f"ann:{SECRET}".encode()).decode().rstrip("=")
    rest: dict[str, dict[str, Any]] = {
        "headers": {"headers": {"X-Key": SECRET}},
        "basic": {"headers": {"Authorization": f"Basic {basic}"}},
        "body": {"body": f'{{"key": "{SECRET}"}}'},
        "url": {"path": f"/?k={SECRET}"},
    }
    result = await api.send(**rest[part])
    assert "arguments contain the value of the secret HUNTER" in result.text
    assert api.server.heard == []


@pytest.mark.requirement("C12")
async def test_another_origin_gets_neither_credentials_nor_any_other_header_of_the_call(api: Api) -> None:
    headers = {"Authorization": "Bearer x", "Cookie": "s=1", "X-Api-Key": "k", "Accept": "text/plain"}
    api.server.redirect("/here", "/")
    api.server.redirect("/there", api.other.url("/"))
    assert (await api.send(path="/here", headers=headers)).status == "ok"
    assert (await api.send(path="/there", headers=headers)).status == "ok"
    assert (await api.send("POST", "/there", headers={"Authorization": "Bearer x"}, body="b")).status == "ok"
    assert "authorization" not in api.other.heard[1].headers
    near, far = api.server.heard[1], api.other.heard[0]
    assert [near.headers.get(name.lower()) for name in headers] == [*headers.values()]
    assert [far.headers.get(name.lower()) for name in headers] == [None, None, None, "text/plain"]


@pytest.mark.parametrize(
    ("method", "status", "is_far", "then"),
    [
        ("POST", 301, False, "GET"), ("POST", 302, False, "GET"), ("POST", 303, False, "GET"),
        ("PUT", 303, False, "GET"), ("POST", 307, False, "POST"),
        ("PUT", 308, False, "PUT"), ("DELETE", 302, False, "DELETE"),
        ("POST", 302, True, "GET"), ("POST", 307, True, ""), ("PUT", 302, True, ""), ("DELETE", 301, True, ""),
        ("GET", 302, True, ""), ("GET", 302, False, "GET"),
    ],
)  # fmt: skip
async def test_a_redirect_repeats_what_changes_something_only_at_the_same_origin(
    api: Api, method: str, status: int, is_far: bool, then: str
) -> None:
    target = api.other if is_far else api.server
    api.server.redirect("/old", target.url("/"), status)
    result = await api.send(method, "/old", body="text")
    heard = [each for each in target.heard if each.target == "/"]
    assert [each.method for each in heard] == ([then] if then else [])
    for each in heard:
        assert each.body == (b"text" if then == method else b"")
        assert ("content-type" in each.headers) == (then == method)
    assert (result.status == "ok") == bool(then)
    assert bool(then) or "is not repeated elsewhere" in result.text


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("method", "rest", "verdict", "then"),
    [
        ("GET", {}, Allowed, "rerun"), ("HEAD", {}, Allowed, "rerun"), ("GET", {"body": "x"}, Asked, ""),
        ("POST", {}, Asked, ""), ("DELETE", {}, Asked, ""), ("GET", {"url": "https://evil.example/"}, Refused, ""),
        ("TRACE", {}, Refused, ""), ("get", {}, Refused, ""),
    ],
)  # fmt: skip
async def test_supervised_asks_about_what_changes_or_sends_something(
    api: Api, method: str, rest: dict[str, str], verdict: type, then: str
) -> None:
    api.bench.settings = changed(api.bench.settings, autonomy="supervised")
    arguments = {"method": method, "url": api.server.url("/"), **rest}
    admission = await api.bench.admit("http_request", **arguments)
    assert isinstance(admission, verdict)
    assert not isinstance(admission, Allowed) or admission.on_interrupt == then


async def test_what_changes_something_does_not_run_again_after_a_crash(api: Api) -> None:
    admission = await api.bench.admit("http_request", method="POST", url=api.server.url("/"))
    assert isinstance(admission, Allowed)
    assert (admission.effect, admission.on_interrupt) == ("network", "unknown")
