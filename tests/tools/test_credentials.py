"""http_request with a stored secret: which server gets it, and that the result never has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.access.credentials import Credentials
from holdfast.config.settings import SecretUse
from holdfast.errors import UsageError
from holdfast.policy.protected import Own
from holdfast.protocol.ports import RawResult
from holdfast.protocol.settings import changed
from holdfast.tools.builtin import make_tools
from holdfast.tools.egress import MAX_BODY_BYTES
from holdfast.tools.web import Web
from tests.tools.conftest import Bench
from tests.tools.web_server import Heard, WebServer, response, web_server

VALUE = "tulip-" + "under-9-moons"


class Api:
    """Two servers, one of which is the secret's."""

    def __init__(self, bench: Bench, server: WebServer, other: WebServer) -> None:
        self.bench = bench
        self.server = server
        self.other = other

    async def send(self, url: str, method: str = "GET", **rest: Any) -> RawResult:
        return await self.bench.call("http_request", method=method, url=url, **rest)

    def got(self) -> list[str | None]:
        """The header of each request that the servers heard."""
        return [heard.headers.get("authorization") for heard in (*self.server.heard, *self.other.heard)]


def value_of(name: str) -> str:
    if name == "LOST":
        raise UsageError(f"There is no secret {name}.", hint=f"Store it: `holdfast secret set {name}`.")
    return VALUE


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with web_server() as server, web_server() as other:
        listed = (f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}")
        uses = {
            "MINE": SecretUse(listed[:1]),
            "LOST": SecretUse(listed[:1]),
            "BAD": SecretUse(listed[:1], "", "Host"),
        }
        tools = make_tools(
            secret_in=lambda _: "", own=Own(), web=Web(credentials=Credentials(uses, value_of))
        )
        bench = Bench(tmp_path, tools)
        bench.settings = changed(bench.settings, allowed_hosts=listed)
        for each in (server, other):
            each.answers["/"] = response('{"ok": true}', "application/json")
        yield Api(bench, server, other)
        await tools.aclose()


@pytest.mark.requirement("S7")
async def test_the_header_of_the_secret_is_added_in_place_of_the_models_own(api: Api) -> None:
    result = await api.send(api.server.url("/"), auth="MINE", headers={"authorization": "mine", "X-A": "b"})
    assert (result.status, api.got(), api.server.heard[0].headers["x-a"]) == ("ok", [f"Bearer {VALUE}"], "b")
    assert (VALUE in result.text, result.is_private) == (False, True)


@pytest.mark.requirement("S7")
async def test_another_host_gets_nothing_at_all(api: Api) -> None:
    result = await api.send(api.other.url("/"), auth="MINE")
    assert (result.status, api.got()) == ("error", [])
    assert f"only for 127.0.0.1:{api.server.port}" in result.text


@pytest.mark.requirement("S7", "C13")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_the_secret_to_its_host_alone(api: Api, status: int) -> None:
    api.server.redirect("/away", api.other.url("/back"), status)
    api.other.redirect("/back", api.server.url("/"), status)
    result = await api.send(api.server.url("/away"), auth="MINE")
    assert (result.status, api.got()) == ("ok", [f"Bearer {VALUE}", f"Bearer {VALUE}", None])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LOST", "holdfast secret set LOST"),
        ("NONE", "Secrets with hosts: BAD, LOST, MINE"),
        ("BAD", "connection"),
    ],
)
async def test_a_name_that_leads_to_no_header_sends_nothing(api: Api, name: str, said: str) -> None:
    result = await api.send(api.server.url("/"), auth=name)
    assert (result.status, api.got()) == ("error", [])
    assert said in result.text


async def test_what_a_server_echoes_is_masked_also_where_the_body_is_cut(api: Api) -> None:
    async def echo(heard: Heard, writer: Any) -> None:
        text = heard.headers["authorization"]
        padding = "x" * (MAX_BODY_BYTES - len(text) - 24) if heard.target == "/long" else ""
        writer.write(response(f"{text} {padding} {text} {text}", "text/plain"))
        await writer.drain()

    api.server.answers |= {"/": echo, "/long": echo}
    for path in ("/", "/long"):
        result = await api.send(api.server.url(path), auth="MINE")
        assert (result.status, api.got()[-1]) == ("ok", f"Bearer {VALUE}")
        assert VALUE[:8] not in result.text
        assert "[redacted:" in result.text


@pytest.mark.requirement("S7")
async def test_what_a_server_echoes_is_masked_also_where_a_header_or_an_address_is_cut(api: Api) -> None:
    for before in range(980, 1_000, 4):
        echoed = f"{'x' * before}{VALUE}"
        api.server.answers["/"] = response("", "text/plain", headers=(f"X-Request-Id: {echoed}",))
        result = await api.send(api.server.url("/"), auth="MINE")
        assert ("x" * before in result.text, VALUE[:4] in result.text) == (True, False)
    start = api.server.url("/")
    for before in range(480, 500, 4):
        padding = "x" * (before - len(start))
        api.server.redirect("/go", f"/{padding}{VALUE}")
        result = await api.send(api.server.url("/go"), auth="MINE")
        assert (padding in result.text, VALUE[:4] in result.text) == (True, False)


@pytest.mark.requirement("S7")
async def test_the_host_of_a_secret_is_asked_for_all_of_it_and_sends_no_piece(api: Api) -> None:
    async def pieces(heard: Heard, writer: Any) -> None:
        text, wanted = "you sent " + heard.headers.get("authorization", VALUE), heard.headers.get("range")
        status, body = ("206 Partial Content", text[16:24]) if wanted else ("200 OK", text)
        writer.write(response(body, "text/plain", status))
        await writer.drain()

    asked = {"Range": "bytes=16-23", "if_range": "x", "A-IM": "vcdiff", "X-Ms-Range": "bytes=0-3", "X-A": "b"}
    api.server.answers["/"] = api.other.answers["/"] = pieces
    for more in ({"auth": "MINE"}, {}):  # it may remember what an earlier request told it
        result = await api.send(api.server.url("/"), headers=asked, **more)
        assert result.status == "ok"
        assert VALUE[3:] not in result.text.replace(VALUE, "")
        heard = api.server.heard[-1].headers
        assert {"range", "if_range", "a-im", "x-ms-range"}.isdisjoint(heard)
        assert (heard["accept-encoding"], heard["x-a"]) == ("identity", "b")
    assert "206 Partial Content" in (await api.send(api.other.url("/"), headers=asked)).text


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        ("206 Partial Content", (), "piece"),
        ("226 IM Used", (), "piece"),
        ("200 OK", ("Content-Range: bytes 0-3/9",), "piece"),
        ("200 OK", ("Content-Type: Multipart/ByteRanges; boundary=x",), "piece"),
        ("404 Not Found", ("Content-Encoding: br",), "compressed"),
        ("200 OK", ("Content-Encoding: gzip",), "compressed"),
    ],
)
async def test_a_piece_that_the_host_of_a_secret_sends_unasked_is_refused(
    api: Api, status: str, headers: tuple[str, ...], why: str
) -> None:
    kind = "" if "Type" in "".join(headers) else "text/plain"
    api.server.answers["/"] = response(VALUE[:8], kind, status, headers)
    for tool, rest in (("http_request", {"method": "GET", "auth": "MINE"}), ("web_fetch", {})):
        result = await api.bench.call(tool, url=api.server.url("/"), **rest)
        assert (result.status, VALUE[:4] in result.text) == ("error", False)
        assert why in result.text
