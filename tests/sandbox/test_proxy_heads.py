"""What the proxy reads out of a request, and what it writes: a request with two readings has none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.urls import Target
from holdfast.sandbox.proxy_bodies import LAST_CHUNK, Body, Length, Unreadable, chunk
from holdfast.sandbox.proxy_heads import (
    MAX_HEADERS,
    answered,
    framed,
    names_another,
    outgoing,
    read,
    refusal,
)

A = Target("a.example", 80)


def head(first: str, *headers: str) -> bytes:
    return "\r\n".join([first, *headers, "", ""]).encode("latin-1")


def test_a_request_is_written_anew_without_what_belongs_to_one_connection() -> None:
    found = read(
        head(
            "POST HTTP://A.example/x?y=1 HTTP/1.1", "Host: a.example", "X-One: 1", "Proxy-Authorization: Basic x",
            "Connection: keep-alive, X-Two", "X-Two: 2", "Upgrade: websocket", "TE: trailers", "Content-Length: 3",
            "Proxy_Authorization: Basic x", "X_Two: 3", "HTTP2-Settings: AAMAAABkAAQAAP__", "Keep-Alive: timeout=5",
        )
    )  # fmt: skip
    assert found.url == "HTTP://A.example/x?y=1"
    assert outgoing(found, A) == head(
        "POST /x?y=1 HTTP/1.1", "Host: a.example", "X-One: 1", "Content-Length: 3", "Connection: close"
    )


@pytest.mark.parametrize(("url", "path"), [("http://a.example", "/"), ("http://a.example?x", "/?x")])
def test_an_address_without_a_path_asks_for_the_first_page(url: str, path: str) -> None:
    assert outgoing(read(head(f"GET {url} HTTP/1.1")), A).startswith(f"GET {path} HTTP/1.1\r\n".encode())


def test_a_tunnel_has_the_address_of_its_host() -> None:
    found = read(head("CONNECT [2001:db8::1]:443 HTTP/1.1", "Host: [2001:db8::1]:443"))
    assert found.is_tunnel
    assert found.url == "https://[2001:db8::1]:443/"
    assert found.where == "[2001:db8::1]:443"


UNREADABLE = {
    "two lengths": ("POST http://a.example/ HTTP/1.1", "Content-Length: 3", "Content-Length: 3"),
    "two different lengths": ("POST http://a.example/ HTTP/1.1", "Content-Length: 3", "Content-Length: 30"),
    "a list of lengths": ("POST http://a.example/ HTTP/1.1", "Content-Length: 3, 3"),
    "a length with a sign": ("POST http://a.example/ HTTP/1.1", "Content-Length: +3"),
    "a length in hex": ("POST http://a.example/ HTTP/1.1", "Content-Length: 0x3"),
    "a length in other digits": ("POST http://a.example/ HTTP/1.1", "Content-Length: \xb2"),
    "chunks and a length":
        ("POST http://a.example/ HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 3"),
    "two codings": ("POST http://a.example/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
    "chunks twice": ("POST http://a.example/ HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "an unusual coding": ("POST http://a.example/ HTTP/1.1", "Transfer-Encoding: xchunked"),
    "chunks in HTTP/1.0": ("POST http://a.example/ HTTP/1.0", "Transfer-Encoding: chunked"),
    "a length under a name that servers take for it":
        ("POST http://a.example/ HTTP/1.1", "Content-Length: 3", "Content_Length: 30"),
    "chunks under a name that servers take for it":
        ("POST http://a.example/ HTTP/1.1", "Content-Length: 3", "Transfer_Encoding: chunked"),
    "a space before the colon": ("GET http://a.example/ HTTP/1.1", "Content-Length : 3"),
    "a folded header": ("GET http://a.example/ HTTP/1.1", "X: 1", " Content-Length: 3"),
    "a line feed alone": ("GET http://a.example/ HTTP/1.1", "X: 1\nContent-Length: 3"),
    "a carriage return alone": ("GET http://a.example/ HTTP/1.1", "X: 1\rContent-Length: 3"),
    "a NUL": ("GET http://a.example/ HTTP/1.1", "X: 1\0"),
    "a header without a name": ("GET http://a.example/ HTTP/1.1", ": 1"),
    "a line without a colon": ("GET http://a.example/ HTTP/1.1", "X"),
    "two hosts": ("GET http://a.example/ HTTP/1.1", "Host: a.example", "Host: b.example"),
    "an address with a space": ("GET http://a.example/ x HTTP/1.1",),
    "an address with a tab": ("GET http://a.example/\tx HTTP/1.1",),
    "an address that is not ASCII": ("GET http://a.example/\xe9 HTTP/1.1",),
    "a fragment": ("GET http://a.example/#x HTTP/1.1",),
    "a path alone": ("GET / HTTP/1.1",),
    "a server alone": ("OPTIONS * HTTP/1.1",),
    "another scheme": ("GET ftp://a.example/ HTTP/1.1",),
    "https without a tunnel": ("GET https://a.example/ HTTP/1.1",),
    "another version": ("GET http://a.example/ HTTP/2.0",),
    "no version": ("GET http://a.example/",),
    "a method with a space": ("GE T http://a.example/ HTTP/1.1",),
    "a method that sends back": ("TRACE http://a.example/ HTTP/1.1",),
    "another one that does": ("track http://a.example/ HTTP/1.1",),
    "a method that begins another protocol": ("PRI http://a.example/ HTTP/1.1",),
    "a method that some servers read in upper case": ("trace http://a.example/ HTTP/1.1",),
    "the first line of HTTP/2": ("PRI * HTTP/2.0",),
    "a tunnel without a port": ("CONNECT a.example HTTP/1.1",),
    "a tunnel to a path": ("CONNECT a.example:443/x HTTP/1.1",),
    "a tunnel to a user": ("CONNECT user@a.example:443 HTTP/1.1",),
    "a tunnel with a body": ("CONNECT a.example:443 HTTP/1.1", "Content-Length: 3"),
    "too many headers": ("GET http://a.example/ HTTP/1.1", *["X: 1"] * (MAX_HEADERS + 1)),
}  # fmt: skip


@pytest.mark.parametrize("lines", UNREADABLE.values(), ids=UNREADABLE)
def test_a_request_with_two_readings_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(Unreadable):
        read(head(*lines))


@pytest.mark.parametrize(
    ("header", "is_another"),
    [
        ("A.EXAMPLE", False), ("a.example:80", False), ("a.example.", False),
        ("b.example", True), ("a.example:81", True), ("a.example:x", True), ("a.example b.example", True),
    ],
)  # fmt: skip
def test_a_header_may_only_name_the_host_of_the_address(header: str, is_another: bool) -> None:
    assert names_another(read(head("GET http://a.example/ HTTP/1.1", f"Host: {header}")), A) == is_another


@given(st.binary(max_size=200))
def test_no_bytes_are_a_crash_and_what_is_read_is_written_in_one_line_each(noise: bytes) -> None:
    for start in (b"", b"GET http://a.example/ HTTP/1.1\r\n", b"GET http://a.example/"):
        try:
            found = read(start + noise + b"\r\n\r\n")
        except Unreadable:
            continue
        again = outgoing(found, A)
        assert again.count(b"\r\n\r\n") == 1
        assert again.count(b"\n") == again.count(b"\r\n")


# --- bodies ---------------------------------------------------------------------------------------


def taken(length: Length, pieces: list[bytes], *, is_strict: bool = True) -> tuple[bytes, bool]:
    body, out = Body(length, is_strict=is_strict), b""
    for piece in pieces:
        out += body.take(piece)
    return out, body.is_over


@given(st.lists(st.integers(1, 30), max_size=20))
def test_a_body_ends_where_it_says_however_it_is_cut(cuts: list[int]) -> None:
    chunked = b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n"
    lengths: list[tuple[Length, bytes, bytes]] = [
        (5, b"abcde", b"abcde"),
        ("chunks", chunked, b"abc0123456789"),
    ]
    for length, body, content in lengths:
        pieces, rest = [], body + b"GET http://b.example/ HTTP/1.1\r\n\r\n"
        for cut in cuts:
            pieces.append(rest[:cut])
            rest = rest[cut:]
        assert taken(length, [*pieces, rest]) == (content, True)


@pytest.mark.parametrize(
    "wrong",
    [
        b"-1\r\n", b"+3\r\nabc\r\n", b" 3\r\nabc\r\n", b"3 \r\nabc\r\n", b"3;x=y\r\nabc\r\n", b"3\nabc\r\n", b"\r\n",
        b"0x3\r\nabc\r\n", b"3\r\nabcd\r\n", b"3\r\nabc\n", b"0\r\nX: 1\r\n\r\n", b"f" * 20 + b"\r\n",
    ],
)  # fmt: skip
def test_chunks_with_two_readings_are_refused(wrong: bytes) -> None:
    with pytest.raises(Unreadable):
        taken("chunks", [bytes([byte]) for byte in wrong])


@given(st.lists(st.binary(max_size=30), max_size=9), st.integers(1, 40))
def test_what_is_written_in_chunks_is_read_as_it_was(contents: list[bytes], size: int) -> None:
    written = b"".join(map(chunk, contents)) + LAST_CHUNK
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    for is_strict in (True, False):
        assert taken("chunks", pieces, is_strict=is_strict) == (b"".join(contents), True)


def test_a_server_may_say_more_beside_its_chunks_and_nothing_of_it_goes_on() -> None:
    said = b" 3 ;name=value\r\nabc\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\nmore"
    assert taken("chunks", [bytes([byte]) for byte in said], is_strict=False) == (b"abc", True)
    for endless in (b"0\r\n" + b"X: 1\r\n" * 9_000, b"3;" + b"x" * 9_000, b"3\r\nabcd\r\n", b"+3\r\n"):
        with pytest.raises(Unreadable):
            taken("chunks", [endless], is_strict=False)


# --- answers --------------------------------------------------------------------------------------


def test_a_response_goes_on_without_what_belongs_to_one_connection() -> None:
    given = head("HTTP/1.1 200 OK", "Connection: keep-alive", "Keep-Alive: timeout=5", "Content-Length: 3")
    assert bytes(answered(given)) == head("HTTP/1.1 200 OK", "Content-Length: 3", "Connection: close")
    assert bytes(answered(head("HTTP/1.1 100 Continue"))) == head("HTTP/1.1 100 Continue")


@pytest.mark.parametrize(
    ("lines", "method", "minor", "length", "kept"),
    [
        (["Content-Length: 3"], "GET", 1, 3, ["Content-Length: 3"]),
        (["Content-Length: 3", "content-length: 3"], "GET", 1, 3, ["Content-Length: 3"]),
        (["Content-Encoding: identity", "X: 1"], "GET", 1, "close", ["Content-Encoding: identity", "X: 1"]),
        (["Transfer-Encoding: Chunked", "Trailer: X"], "GET", 1, "chunks", ["Transfer-Encoding: chunked"]),
        (["Transfer-Encoding: chunked", "Content-Length: 3"], "GET", 1, "chunks", ["Transfer-Encoding: chunked"]),
        (["Transfer-Encoding: chunked"], "GET", 0, "chunks", []),
        (["Content-Length: 3", "X-A: 1"], "HEAD", 1, 0, ["X-A: 1", "Content-Length: 3"]),
        (["Content-Encoding: gzip"], "HEAD", 1, 0, ["Content-Encoding: gzip"]),
        (["Transfer-Encoding: gzip"], "HEAD", 1, 0, []),
    ],
)  # fmt: skip
def test_a_response_is_written_anew_with_one_end(
    lines: list[str], method: str, minor: int, length: Length, kept: list[str]
) -> None:
    answer, found = framed(answered(head("HTTP/1.1 200 OK", *lines)), method, minor)
    assert (bytes(answer), found) == (head("HTTP/1.1 200 OK", *kept, "Connection: close"), length)


@pytest.mark.parametrize("status", [100, 103, 204, 304])
def test_some_responses_have_no_body_whatever_they_say(status: int) -> None:
    given = answered(head(f"HTTP/1.1 {status} x", "Transfer-Encoding: chunked", "Content-Encoding: gzip"))
    assert framed(given, "GET", 1)[1] == 0


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 3", "Content-Length: 4"], ["Content-Length: 3, 3"], ["Content-Length: x"],
        ["Transfer-Encoding: gzip, chunked"], ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], ["Transfer-Encoding: x"],
        ["Content-Encoding: gzip"], ["Content-Encoding: br"], ["Content-Encoding: zstd"],
        ["Content-Encoding: identity, deflate"], ["Content-Encoding: identity", "Content-Encoding: gzip"],
    ],
)  # fmt: skip
def test_a_response_that_cannot_be_read_is_refused(lines: list[str]) -> None:
    with pytest.raises(Unreadable, match="The server"):
        framed(answered(head("HTTP/1.1 200 OK", *lines)), "GET", 1)


@pytest.mark.parametrize("first", ["SSH-2.0-OpenSSH", "HTTP/1.1 abc", "HTTP/2 200", "220 mail.example ESMTP"])
def test_what_is_not_http_does_not_go_on(first: str) -> None:
    with pytest.raises(Unreadable):
        answered(head(first))


def test_a_refusal_says_why_in_its_first_line_and_in_its_text() -> None:
    said = refusal(403, "a.example\r\nX: 1 is not listed.", "Ask.").decode()
    first, text = said.split("\r\n")[0], said.partition("\r\n\r\n")[2]
    assert first == "HTTP/1.1 403 a.exampleX: 1 is not listed."
    assert text.endswith("Ask.\n")
