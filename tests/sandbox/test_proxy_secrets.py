"""Secrets on their way through the proxy: which request gets one, and that no response shows it to a program."""

from __future__ import annotations

import asyncio
import base64
import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.traffic import StandIn
from holdfast.redact.redactor import spellings_of
from holdfast.sandbox.proxy_bodies import LAST_CHUNK, Body, chunk
from holdfast.sandbox.proxy_exchange import Limits
from holdfast.sandbox.proxy_heads import read
from holdfast.sandbox.proxy_secrets import Finding, Hiding, Misplaced, with_secrets
from tests.sandbox.test_proxy import alone
from tests.tools.web_server import Heard, WebServer, response, web_server

VALUE = "tulip-" + "under-9-moons"
MARK = "holdfast-placeholder-" + "0123456789abcdef" * 2
HOST = "a.example:80"
MINE = StandIn("MINE", MARK, VALUE, "Authorization", (HOST,))
OTHER = StandIn("OTHER", MARK[::-1], VALUE[::-1], "X-Key", (HOST, "b.example"))


PLAIN = ("Accept-Encoding", "identity")


def sent(*lines: str, url: str = "http://a.example/", method: str = "GET") -> list[tuple[str, str]]:
    head = read("\r\n".join([f"{method} {url} HTTP/1.1", *lines, "", ""]).encode())
    return list(with_secrets(head, (MINE, OTHER))[0].headers)


@pytest.mark.requirement("S7")
def test_a_mark_becomes_the_secret_in_its_header_on_the_way_to_its_host() -> None:
    assert sent(f"authorization: Bearer {MARK}", "Accept: a") == [
        ("authorization", f"Bearer {VALUE}"),
        ("Accept", "a"),
        PLAIN,
    ]
    both = sent(f"Authorization: {MARK}", f"X-Key: k={OTHER.mark}")
    assert both == [("Authorization", VALUE), ("X-Key", f"k={OTHER.value}"), PLAIN]


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_mark_is_found_in_basic_authentication() -> None:
    for said, meant in [
        (f"git:{MARK}", f"git:{VALUE}"), (f"{MARK}:", f"{VALUE}:"),
        (f"{MARK}:x-oauth-basic", f"{VALUE}:x-oauth-basic"),
    ]:  # fmt: skip
        assert sent(f"Authorization: {basic(said)}") == [("Authorization", basic(meant)), PLAIN]
    assert sent(f"Authorization: {basic('another')}", "Authorization: Basic ***") == [PLAIN]


@pytest.mark.parametrize(
    ("said", "is_fine"),
    [
        (MARK, True), (f"Bearer {MARK}", True), (f'Token token="{MARK}"', True), (f"session={MARK}", True),
        (f"sso-key id7:{MARK}", True), (f"Bearer of-else-9 {MARK}", False), (f"Bearer of-else, Bearer {MARK}", False),
        (f"{MARK}, of-else", False), (f"session=of-else; x={MARK}", False), (f"of-else-9={MARK}", False),
        (f"{MARK}{MARK}", False), (basic(f"of-else:x{MARK}"), False), (basic(f"{MARK}:of-else"), False),
        (basic(f"x{MARK}y:{MARK}"), False), (basic(f"{MARK}:{MARK}"), False),
    ],
)  # fmt: skip
@pytest.mark.requirement("S7")
def test_nothing_goes_out_beside_a_mark_that_could_count_instead(said: str, is_fine: bool) -> None:
    stand_in = StandIn("MINE", MARK, VALUE, "Authorization", (HOST,), "sso-key id7:{}")
    head = read(f"GET http://a.example/ HTTP/1.1\r\nAuthorization: {said}\r\n\r\n".encode())
    if is_fine:
        (_, value), _ = with_secrets(head, (stand_in,))[0].headers
        assert value == said.replace(MARK, VALUE)
    else:
        with pytest.raises(Misplaced):
            with_secrets(head, (stand_in,))


@pytest.mark.requirement("S7")
def test_another_value_of_the_header_does_not_reach_the_host_of_the_secret() -> None:
    others = ["Authorization: Bearer of-else", "AUTHORIZATION: x", "X-Key: y", "X_Key: z", "Accept: a"]
    assert sent(*others) == [("Accept", "a"), PLAIN]
    elsewhere = ["Authorization: Bearer of-else"]
    assert sent(*elsewhere, url="http://c.example/") == [("Authorization", "Bearer of-else")]


@pytest.mark.requirement("S7")
def test_another_value_does_not_reach_the_host_without_tls_either() -> None:
    assert sent("X-Key: y", "Accept: a", url="http://b.example/") == [("Accept", "a"), PLAIN]
    assert sent("X-Key: y", url="http://b.example:81/") == [("X-Key", "y")]
    head = read(b"GET http://b.example/ HTTP/1.1\r\n\r\n")
    assert with_secrets(head, (MINE, OTHER))[1] == (OTHER,)  # its server may know the value


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("line", "url", "method"),
    [
        (f"Authorization: {MARK}", "http://c.example/", "GET"),
        (f"Authorization: {MARK}", "http://a.example:81/", "GET"),
        (f"Authorization: {MARK}", "http://b.example/", "GET"),
        (f"X-Other: {MARK}", "http://a.example/", "GET"),
        (f"Host: {MARK}", "http://a.example/", "GET"),
        (f"X-Key: {OTHER.mark}", "http://b.example/", "GET"),
        ("Accept: a", f"http://a.example/?x={MARK}", "GET"),
        (f"Authorization: {MARK}", "a.example:80", "CONNECT"),
        (f"Referer: http://x/{MARK}", "http://a.example/", "GET"),
        (f"X-Other: {basic(MARK)}", "http://a.example/", "GET"),
        (f"Authorization: {basic(MARK)}", "http://c.example/", "GET"),
    ],
)
def test_a_mark_anywhere_else_is_refused(line: str, url: str, method: str) -> None:
    with pytest.raises(Misplaced, match="only goes into the header") as caught:
        sent(line, url=url, method=method)
    assert VALUE not in str(caught.value)


def test_nothing_asks_the_host_of_a_secret_for_pieces_or_for_compression() -> None:
    odd = [
        "Accept-Encoding: br",
        "Range: bytes=0-3",
        "If-Range: x",
        "A-IM: gzip",
        "Request-Range: bytes=0-3",
        "x-ms-range: bytes=0-3",
    ]
    assert sent(f"Authorization: {MARK}", *odd) == [("Authorization", VALUE), PLAIN]
    assert sent(*odd) == [PLAIN]
    assert len(sent(*odd, url="http://c.example/")) == len(odd)


def shown(text: bytes, size: int = 1 << 20, values: tuple[str, ...] = (VALUE,)) -> bytes:
    hiding = Hiding(values)
    pieces = [hiding.take(text[at : at + size]) for at in range(0, len(text), size)]
    return b"".join([*pieces, hiding.rest()])


@pytest.mark.requirement("S7")
def test_a_value_is_hidden_however_the_bytes_are_cut() -> None:
    plain, encoded = VALUE.encode(), base64.b64encode(b"user:" + VALUE.encode())
    text = b" ".join([b"tulip-tulip", plain, b"tulip-under", encoded, b"end", plain + plain[:9]])
    expected = shown(text)
    assert (len(expected), plain in expected, encoded in expected) == (len(text), False, False)
    assert expected.startswith(b"tulip-tulip *")
    assert expected.endswith(b"end " + b"*" * len(plain) + plain[:9])
    assert Hiding([VALUE]).whole(text) == expected
    for size in (1, 2, 7, 19, 20):
        assert shown(text, size) == expected


@given(
    st.lists(st.sampled_from([VALUE, VALUE[:9], VALUE[9:], VALUE + VALUE[:3], "-", "x"])), st.integers(1, 50)
)
def test_what_is_shown_depends_on_whole_values_alone(parts: list[str], size: int) -> None:
    text = "".join(parts).encode()
    whole = {
        at + i for at in range(len(text)) if text.startswith(VALUE.encode(), at) for i in range(len(VALUE))
    }
    expected = bytes(ord("*") if at in whole else byte for at, byte in enumerate(text))
    assert shown(text, size) == expected


def test_a_value_within_another_one_and_one_that_overlaps_it_are_hidden_whole() -> None:
    outer, inner, beside = VALUE, VALUE[3:14], VALUE[10:] + "-and-more"
    text = (outer[:10] + beside).encode()
    for size in (1, 3, 12, 100):
        assert shown(text, size, (inner, outer, beside)) == b"*" * len(text)


ECHOED = {
    "html/template of Go": {"+": "&#43;", "'": "&#39;"},
    "Gson": {"=": "\\u003d", "'": "\\u0027"},
    "mustache": {"/": "&#x2F;", "=": "&#x3D;", "'": "&#39;"},
    ".NET": {"+": "&#x2B;", "'": "&#x27;"},
    "XML": {"'": "&apos;"},
    "JSON in JSON": {"=": "\\\\u003d"},
    "URL": {"+": "%2B", "/": "%2F", "=": "%3D", "'": "%27"},
}


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("server", ECHOED)
def test_a_value_is_hidden_as_servers_of_other_languages_echo_it_however_it_is_cut(server: str) -> None:
    value = "Zx8+kd/Q2m'Vq7=="
    echoed = "".join(ECHOED[server].get(char, char) for char in value)
    text, expected = f"<{echoed}><{echoed}>".encode(), f"<{'*' * len(echoed)}>".encode() * 2
    for size in range(1, len(text) + 1):
        hiding = Hiding([value])
        shown = [hiding.take(text[at : at + size]) for at in range(0, len(text), size)]
        assert b"".join([*shown, hiding.rest()]) == expected


@pytest.mark.requirement("S7")
def test_base64_shows_no_bit_of_a_value_with_or_without_line_breaks() -> None:
    for before in range(60):
        shows = set()
        for first, last in ("90", "zZ", "aa"):
            whole = base64.b64encode(f"{'~' * before}{first}tulip-under-moons{last}:".encode()).decode()
            for text in (whole, "\n".join(whole[at : at + 60] for at in range(0, len(whole), 60))):
                hidden = Hiding([f"{first}tulip-under-moons{last}"]).whole(text.encode())
                shows.add(hidden.replace(b"\n", b""))
        # The end of a line becomes a star, too.
        assert len({each.replace(b"*", b"") for each in shows}) == 1


@pytest.mark.requirement("S7")
def test_nothing_of_the_longest_spelling_of_a_value_is_shown_before_its_end() -> None:
    form = max(spellings_of(VALUE), key=lambda each: each.most)
    room, line_break = form.most - len(form.text) - 2, "\r\n" + " " * 8
    breaks = [line_break] * (room // len(line_break)) + ["\n".ljust(room % len(line_break))] * (room % 10 > 0)
    broken = "".join(char + (breaks.pop() if breaks else "") for char in form.text)
    text = f"A{broken}A".encode()  # the characters on its edges depend on the value, too
    assert (len(text), Hiding([VALUE]).whole(text)) == (form.most, b"*" * form.most)
    hiding = Hiding([VALUE])
    assert hiding.take(text[:-1]) == b""
    assert hiding.take(text[-1:]) + hiding.rest() == b"*" * form.most


@pytest.mark.requirement("S7")
def test_neither_what_is_shown_nor_what_comes_late_tells_a_part_of_a_value() -> None:
    """A program that chooses what the server sends learns nothing from a guess that is right but for its end."""
    for length in range(1, len(VALUE)):
        right, wrong = VALUE[:length], "?" * length
        for before in ("", "x" * 100):
            hidings = [Hiding([VALUE]) for _ in (right, wrong)]
            come = [
                each.take((before + guess).encode())
                for each, guess in zip(hidings, (right, wrong), strict=True)
            ]
            assert len(come[0]) == len(come[1])
            assert [each.rest() for each in hidings] == [
                (before + guess).encode()[len(come[0]) :] for guess in (right, wrong)
            ]


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


async def raw(server: WebServer, answer: bytes, *request: str) -> tuple[bytes, str]:
    """Ask a server that answers with these bytes, and return what the program reads, and what the driver hears."""
    server.answers["/"] = answer
    line = f"Authorization: Bearer {MARK}"
    first = request or (f"GET {server.url('/')} HTTP/1.1",)
    async with alone([f"127.0.0.1:{server.port}"], secrets=(stand_in(server),)) as call:
        said = await call.ask(*first, line)
        (told,) = await call.told()
    return said, told.why or told.verdict


def cut(text: bytes, size: int) -> bytes:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return b"".join(b"%x;a=b\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\nX: 1\r\n\r\n"


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("size", [1, 9, 1_000])
async def test_a_value_is_hidden_however_the_server_cuts_it_into_chunks(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    text = b"you sent " + VALUE.encode() + b"."
    async with web_server() as server:
        said, told = await raw(server, head + cut(text, size))
        old, _ = await raw(server, head + cut(text, size), f"GET {server.url('/')} HTTP/1.0")
    masked = b"you sent " + b"*" * len(VALUE) + b"."
    start, _, body = said.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in start
    assert Body("chunks").take(body) == masked
    assert old == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + masked
    assert told == "allowed"


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("where", ["Content-Encoding", "Transfer-Encoding"])
@pytest.mark.parametrize("how", ["gzip", "deflate", "br", "gzip, chunked", "identity, gzip", "x-mine"])
async def test_a_response_in_another_form_than_plain_is_refused(where: str, how: str) -> None:
    answer = response(zlib.compress(VALUE.encode()), headers=(f"{where}: {how}",))
    async with web_server() as server:
        said, told = await raw(server, answer)
    assert said.startswith(b"HTTP/1.1 502 ")
    assert told == "The server compressed its response, in which a secret may be."


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\ntul",
        b"HTTP/1.1 200 OK\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\ntul",
        b"HTTP/1.1 226 IM Used\r\nContent-Length: 3\r\n\r\ntul",
        b"HTTP/1.1 200 OK\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 3\r\n\r\ntul",
    ],
)
async def test_a_piece_of_a_response_is_refused(answer: bytes) -> None:
    async with web_server() as server:
        said, told = await raw(server, answer)
    assert said.startswith(b"HTTP/1.1 502 ")
    assert b"tul" not in said
    assert told == "The server sent a piece of its response. A secret may be cut by it."


@pytest.mark.requirement("S7")
async def test_a_value_is_hidden_in_what_a_server_announces_before_its_response() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </%b>\r\n\r\n" % VALUE.encode()
    async with web_server() as server:
        said, told = await raw(server, early + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert said.startswith(b"HTTP/1.1 103 Early Hints\r\n")
    assert VALUE.encode() not in said
    assert b"</" + b"*" * len(VALUE) + b">" in said
    assert (said[-2:], told) == (b"ok", "allowed")


@pytest.mark.requirement("S7")
async def test_what_a_server_has_heard_before_is_hidden_in_answers_to_other_requests() -> None:
    async with web_server() as server:
        server.answers["/"] = response(f"stored: {VALUE}")
        async with alone([f"127.0.0.1:{server.port}"], secrets=(stand_in(server),)) as call:
            said = await call.ask(f"GET {server.url('/')} HTTP/1.1")
    assert said.endswith(b"stored: " + b"*" * len(VALUE))


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n",
    ],
)
async def test_what_was_held_back_is_dropped_if_the_server_breaks_off(head: bytes) -> None:
    async with web_server() as server:
        said = [
            (await raw(server, head + b"x" * 200 + end))[0]
            for end in (VALUE[:-1].encode(), b"?" * (len(VALUE) - 1))
        ]
        _, told = await raw(server, head + b"x")
    assert said[0] == said[1]
    assert b"xxxxxxxx" in said[0]
    assert told == "The server broke off."


async def test_a_whole_response_ends_without_waiting_for_the_server_to_close() -> None:
    async def stay(heard: Heard, writer: Any) -> None:
        writer.write(response("hello") + b"more than it said")
        await writer.drain()
        await asyncio.sleep(3_600)

    async with web_server() as server:
        server.answers["/"] = stay
        async with alone([f"127.0.0.1:{server.port}"], secrets=(stand_in(server),)) as call:
            assert (await call.ask(f"GET {server.url('/')} HTTP/1.1")).endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n" + VALUE.encode(),
        b"HTTP/1.1 304 Not Modified\r\n\r\n" + VALUE.encode(),
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n" + VALUE.encode(),
    ],
)
async def test_nothing_follows_a_response_without_a_body(answer: bytes) -> None:
    async with web_server() as server:
        said, told = await raw(server, answer)
    assert (said.endswith(b"\r\n\r\n"), VALUE.encode() in said, told) == (True, False, "allowed")


@pytest.mark.requirement("S7")
async def test_a_mark_in_a_body_is_found_however_its_chunks_are_cut() -> None:
    async with (
        web_server() as server,
        alone([f"127.0.0.1:{server.port}"], secrets=(stand_in(server),)) as call,
    ):
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in MARK.encode()) + b"0\r\n\r\n"
        line = "Transfer-Encoding: chunked"
        said = await call.ask(f"POST {server.url('/slow')} HTTP/1.1", line, body=body)
    assert said.startswith(b"HTTP/1.1 403 ")


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("length", "pieces", "verdict"),
    [
        ("Content-Length: 60000", ["x" * 30_000, f"{MARK:x<30000}"], "refused"),
        ("Transfer-Encoding: chunked", ["3\r\nabc\r\n", f"{len(MARK):x}\r\n{MARK}\r\n0\r\n\r\n"], "refused"),
        ("Transfer-Encoding: chunked", ["3\r\nabc\r\n", "3;x\r\nabc\r\n0\r\n\r\n"], "refused"),
        ("Content-Length: 200000", ["x" * 100_000, f"{MARK:x<100000}"], "cut off"),
        (
            "Transfer-Encoding: chunked",
            ["3\r\nabc\r\n", "", f"{len(MARK):x}\r\n{MARK}\r\n0\r\n\r\n"],
            "cut off",
        ),
        ("Transfer-Encoding: chunked", ["3\r\nabc\r\n", "", "3;x\r\nabc\r\n0\r\n\r\n"], "cut off"),
    ],
    ids=["a short body", "chunks", "odd chunks", "a long body", "slow chunks", "slow odd chunks"],
)
async def test_a_request_is_refused_if_the_server_got_nothing_of_it_and_cut_off_otherwise(
    length: str, pieces: list[str], verdict: str
) -> None:
    """An empty piece: the program says nothing until the server has got the rest."""
    got, has_come = bytearray(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while more := await reader.read(1 << 16):
            got.extend(more)
            if b"abc" in got:
                has_come.set()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    here = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    secret = StandIn("MINE", MARK, VALUE, "Authorization", (here,))
    async with server, alone([here], Limits(pause_s=0.01), secrets=(secret,)) as call:
        reader, writer = await asyncio.open_connection("127.0.0.1", call.port)
        writer.write(f"POST http://{here}/start HTTP/1.1\r\n{length}\r\n\r\n".encode())
        for piece in pieces:
            writer.write(piece.encode())
            if piece:
                await writer.drain()
            else:
                await has_come.wait()
        said = (await reader.read()).decode()
        writer.close()
        (told,) = await call.told()
    assert told.verdict == verdict
    assert MARK.encode() not in got
    assert (got.startswith(b"POST /start "), told.sent_bytes > 0) == (verdict == "cut off",) * 2
    assert ("nobody knows what it did" in told.why) == ("nobody knows what it did" in said) == bool(got)
    assert f"/start: {verdict}, " in told.line


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("line", ["Content-Length: 150000", "Transfer-Encoding: chunked"])
async def test_a_body_whose_beginning_is_looked_at_first_reaches_the_server_whole(line: str) -> None:
    content = bytes(range(250)) * 600
    pieces = [content[at : at + 40_000] for at in range(0, len(content), 40_000)]
    is_chunked = line.startswith("Transfer")
    got = bytearray()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = Body("chunks" if is_chunked else len(content))
        while not body.is_over:
            got.extend(body.take(await reader.read(1 << 16)))
        writer.write(response("ok", "text/plain"))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    here = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    secret = StandIn("MINE", MARK, VALUE, "Authorization", (here,))
    async with server, alone([here], secrets=(secret,)) as call:
        sent = b"".join([*map(chunk, pieces), LAST_CHUNK]) if is_chunked else content
        said = await call.ask(f"POST http://{here}/ HTTP/1.1", line, body=sent)
    assert said.endswith(b"ok")
    assert got == content
