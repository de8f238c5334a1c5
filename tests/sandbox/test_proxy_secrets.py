"""Secrets on their way through the proxy: which request gets one, and that no response shows it to a program."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from holdfast.protocol.traffic import StandIn
from holdfast.sandbox.proxy_heads import read
from holdfast.sandbox.proxy_secrets import Finding, Hiding, Misplaced, with_secrets
from tests.sandbox.test_proxy import alone
from tests.tools.web_server import Heard, WebServer, response, web_server

VALUE = "tulip-" + "under-9-moons"
MARK = "holdfast-placeholder-" + "0123456789abcdef" * 2
HOST = "a.example:80"
MINE = StandIn("MINE", MARK, VALUE, "Authorization", (HOST,))
OTHER = StandIn("OTHER", MARK[::-1], VALUE[::-1], "X-Key", (HOST, "b.example"))


def sent(*lines: str, url: str = "http://a.example/", method: str = "GET") -> list[tuple[str, str]]:
    head = read("\r\n".join([f"{method} {url} HTTP/1.1", *lines, "", ""]).encode())
    return list(with_secrets(head, (MINE, OTHER))[0].headers)


@pytest.mark.requirement("S7")
def test_a_mark_becomes_the_secret_in_its_header_on_the_way_to_its_host() -> None:
    assert sent(f"authorization: Bearer {MARK}", "Accept: a") == [
        ("authorization", f"Bearer {VALUE}"),
        ("Accept", "a"),
    ]
    both = sent(f"Authorization: {MARK}", f"X-Key: k={OTHER.mark}")
    assert both == [("Authorization", VALUE), ("X-Key", f"k={OTHER.value}")]


def test_a_mark_is_found_in_the_password_of_basic_authentication() -> None:
    def basic(password: str) -> str:
        return "Basic " + base64.b64encode(f"git:{password}".encode()).decode()

    assert sent(f"Authorization: {basic(MARK)}") == [("Authorization", basic(VALUE))]
    assert sent(f"Authorization: {basic('another')}", "Authorization: Basic ***") == []


@pytest.mark.requirement("S7")
def test_another_value_of_the_header_does_not_reach_the_host_of_the_secret() -> None:
    assert sent("Authorization: Bearer of-somebody-else", "AUTHORIZATION: x", "X-Key: y", "Accept: a") == [
        ("Accept", "a")
    ]
    elsewhere = ["Authorization: Bearer of-somebody-else"]
    assert sent(*elsewhere, url="http://c.example/") == [("Authorization", "Bearer of-somebody-else")]


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("line", "url", "method"),
    [
        (f"Authorization: {MARK}", "http://c.example/", "GET"),
        (f"Authorization: {MARK}", "http://a.example:81/", "GET"),
        (f"Authorization: {MARK}", "http://b.example/", "GET"),
        (f"X-Other: {MARK}", "http://a.example/", "GET"),
        (f"X-Key: {OTHER.mark}", "http://b.example/", "GET"),
        ("Accept: a", f"http://a.example/?x={MARK}", "GET"),
        (f"Authorization: {MARK}", "a.example:80", "CONNECT"),
        (f"Referer: http://x/{MARK}", "http://a.example/", "GET"),
    ],
)
def test_a_mark_anywhere_else_is_refused(line: str, url: str, method: str) -> None:
    with pytest.raises(Misplaced, match="only goes into the header") as caught:
        sent(line, url=url, method=method)
    assert VALUE not in str(caught.value)


def test_with_a_secret_nothing_asks_for_pieces_or_for_compression() -> None:
    odd = ["Accept-Encoding: br", "Range: bytes=0-3", "If-Range: x"]
    assert sent(f"Authorization: {MARK}", *odd) == [("Authorization", VALUE)]
    assert len(sent(*odd)) == 3


@pytest.mark.requirement("S7")
def test_a_value_is_hidden_however_the_bytes_are_cut() -> None:
    plain, encoded = VALUE.encode(), base64.b64encode(b"user:" + VALUE.encode())
    text = b" ".join([b"tulip-tulip", plain, b"tulip-under", encoded, b"end", plain + plain[:9]])
    whole = Hiding([VALUE])
    expected = whole.take(text) + whole.rest()
    assert (len(expected), plain in expected, encoded in expected) == (len(text), False, False)
    assert expected.startswith(b"tulip-tulip *")
    assert expected.endswith(b"end " + b"*" * (len(plain) + 9))
    for size in (1, 2, 7, 19, 20):
        hiding = Hiding([VALUE])
        pieces = [hiding.take(text[at : at + size]) for at in range(0, len(text), size)]
        assert b"".join([*pieces, hiding.rest()]) == expected


def test_a_mark_in_a_body_is_found_however_the_bytes_are_cut() -> None:
    text = b"x" * 20 + MARK.encode() + b"y"
    for size in (1, 5, 60, 200):
        finding = Finding((MINE,))
        with pytest.raises(Misplaced):
            [finding.check(text[at : at + size]) for at in range(0, len(text), size)]
    Finding(()).check(text)


# --- through the proxy ----------------------------------------------------------------------------


async def echo(heard: Heard, writer: Any) -> None:
    text = heard.headers.get("authorization", "none")
    body = f"{text} and {text}"
    if heard.target == "/zip":
        writer.write(
            response(gzip.compress(body.encode()), "text/plain", headers=("Content-Encoding: gzip",))
        )
    else:
        writer.write(response(body, "text/plain", headers=(f"X-Echo: {text}",)))
    await writer.drain()


def stand_in(server: WebServer) -> StandIn:
    return StandIn("MINE", MARK, VALUE, "Authorization", (f"127.0.0.1:{server.port}",))


@pytest.mark.requirement("S7")
async def test_the_server_gets_the_secret_and_the_program_gets_stars() -> None:
    async with web_server() as server, web_server() as other:
        server.answers |= {"/": echo, "/zip": echo}
        hosts = [f"127.0.0.1:{each.port}" for each in (server, other)]
        line = f"Authorization: Bearer {MARK}"
        async with alone(hosts, secrets=(stand_in(server),)) as call:
            said = await call.ask(f"GET {server.url('/')} HTTP/1.1", line)
            packed = await call.ask(f"GET {server.url('/zip')} HTTP/1.1", line)
            away = await call.ask(f"GET {other.url('/')} HTTP/1.1", line)
            body = f"t={MARK}".encode()
            posted = await call.ask(
                f"POST {server.url('/')} HTTP/1.1", f"Content-Length: {len(body)}", body=body
            )
            told = await call.told()
        got = [heard.headers.get("authorization") for heard in (*server.heard, *other.heard)]
    assert got == [f"Bearer {VALUE}", f"Bearer {VALUE}"]
    assert said.count(b"*" * len(VALUE)) == 3
    assert VALUE.encode() not in said + packed + away + posted
    assert [each.split(b" ")[1] for each in (packed, away, posted)] == [b"502", b"403", b"403"]
    assert [each.verdict for each in told] == ["allowed", "failed", "refused", "refused"]
    assert VALUE not in f"{told}"
