"""Reads what a program sends to the proxy, and writes what the proxy sends on: functions of bytes, and nothing else.

A request that two programs could read in different ways is refused, and what goes on is written anew. So nothing that
was not judged gets to a server. `proxy_bodies` reads what follows a head, and `proxy_exchange` moves the bytes.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.policy.urls import Target
from holdfast.protocol.allowed import plain_host, split_port
from holdfast.protocol.traffic import TUNNEL
from holdfast.sandbox.proxy_bodies import Length, Unreadable
from holdfast.sandbox.whole import Headers, same, why_not_whole

MAX_HEAD_BYTES = 32 << 10
MAX_HEADERS = 100
END = b"\r\n\r\n"

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.([01])")
_RESPONSE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_ABSOLUTE = re.compile(r"(https?)://[^/?#]*((?:[/?][^#]*)?)", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,15}")
_MAX_METHOD_CHARS = 20
_REFUSED_METHODS = frozenset({"TRACE", "TRACK", "PRI"})
"""Two send back what they got, with credentials. The last one begins another protocol."""
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer",
     "upgrade", "transfer-encoding", "content-length", "host", "http2-settings"}
)  # fmt: skip
"""Headers that are not sent on, or are written anew."""
_OF_A_CONNECTION = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "upgrade"}
)
"""Headers of a response that are not sent on."""
_OF_A_BODY = frozenset({"content-length", "transfer-encoding", "trailer"})
_WITHOUT_BODY = (204, 304)


class Head(msgspec.Struct, frozen=True):
    """The head of a request."""

    method: str
    url: str
    """The whole address, which the policy judges. For a tunnel, an address of its host and port."""
    path: str
    """What the server is asked for; empty for a tunnel."""
    headers: Headers
    """All but those that are written anew."""
    length: Length
    """Where the body ends."""
    minor: int
    """The version of the protocol is 1.`minor`."""
    host: str
    """What its header says; empty if it has none."""

    @property
    def is_tunnel(self) -> bool:
        return self.method == TUNNEL

    @property
    def where(self) -> str:
        """What a person reads of it."""
        return self.url.removeprefix("https://").removesuffix("/") if self.is_tunnel else self.url


def read(head: bytes, within: Target | None = None) -> Head:
    """Return what a head says, which ends with an empty line. `within`: it came through a tunnel to this target.

    Raises:
        Unreadable: nobody should act on it.
    """
    first, headers = _lines(head, _REQUEST)
    method, wanted, minor = first[1], first[2], int(first[3])
    if within is not None:
        wanted = _inside(wanted, method, within)
    if method.upper() in _REFUSED_METHODS or len(method) > _MAX_METHOD_CHARS:
        raise Unreadable(405, f"The method {method[:_MAX_METHOD_CHARS]} is not sent on.")
    length = _length(headers, minor)
    if method == TUNNEL:
        if length != 0 or not re.fullmatch(r"[^/?#@]+:[0-9]+", wanted):
            raise Unreadable(400, "A CONNECT names a host and a port, and has no body.")
        url, path = f"https://{wanted}/", ""
    else:
        url, path = wanted, _path(wanted, "http" if within is None else "https")
    hosts = [value for name, value in headers if name.lower() == "host"]
    if len(hosts) > 1:
        raise Unreadable(400, "The request names its host twice.")
    connection = ",".join(value for name, value in headers if name.lower() == "connection")
    dropped = _HOP_BY_HOP | {same(each.strip()) for each in connection.split(",")}
    kept = tuple((name, value) for name, value in headers if same(name) not in dropped)
    return Head(method, url, path, kept, length, minor, hosts[0] if hosts else "")


def names_another(head: Head, target: Target) -> bool:
    """Return whether the header of a request names another host than its address, which leads to a target."""
    name, port = split_port(head.host)
    return bool(head.host) and (plain_host(name) != target.host or port not in (0, target.port))


def outgoing(head: Head, target: Target) -> bytes:
    """Return the head that goes to the server.

    Whatever is to be changed in a request on its way, such as the placeholder of a secret, is changed in a `Head`
    before this.
    """
    authority = _authority(target, 443 if head.url.startswith("https:") else 80)
    lines = [f"{head.method} {head.path} HTTP/1.{head.minor}", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in head.headers]
    if head.length == "chunks":
        lines.append("Transfer-Encoding: chunked")
    elif head.length or head.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {head.length}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


class Answer(msgspec.Struct, frozen=True):
    """The head of a server's response."""

    first: str
    status: int
    headers: Headers

    def __bytes__(self) -> bytes:
        """What the program gets: without what belongs to one connection."""
        kept = [f"{name}: {value}" for name, value in self.headers if name.lower() not in _OF_A_CONNECTION]
        last = ["Connection: close"] if self.status >= 200 else []
        return "\r\n".join([self.first, *kept, *last, "", ""]).encode("latin-1")


def answered(head: bytes) -> Answer:
    """Return what the head of a server's response says.

    Raises:
        Unreadable: it is not HTTP.
    """
    first, headers = _lines(head, _RESPONSE)
    return Answer(first[0], int(first[1]), headers)


def framed(answer: Answer, method: str, minor: int) -> tuple[Answer, Length]:
    """Return a response whose body can be read and written anew, for a program that speaks HTTP/1.`minor`, and where
    its body ends.

    Raises:
        Unreadable: the body is compressed or a piece of one, or nobody can tell where it ends.
    """
    lengths = {value for name, value in answer.headers if name.lower() == "content-length"}
    codings = [value.lower() for name, value in answer.headers if name.lower() == "transfer-encoding"]
    kept = tuple((name, value) for name, value in answer.headers if name.lower() not in _OF_A_BODY)
    plain = msgspec.structs.replace(answer, headers=kept)
    has_body = method != "HEAD" and answer.status not in _WITHOUT_BODY and answer.status >= 200
    if why := why_not_whole(answer.status, answer.headers, has_body=has_body):
        raise Unreadable(502, why)
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise Unreadable(502, "The server does not say plainly how long its response is.")
    told = tuple(("Content-Length", length) for length in lengths)
    if not has_body:
        return msgspec.structs.replace(plain, headers=(*kept, *told)), 0
    if codings == ["chunked"]:
        own = (("Transfer-Encoding", "chunked"),) if minor else ()
        return msgspec.structs.replace(plain, headers=(*kept, *own)), "chunks"
    return msgspec.structs.replace(plain, headers=(*kept, *told)), int(*lengths) if lengths else "close"


def refusal(status: int, message: str, advice: str = "") -> bytes:
    """Return an answer of the proxy itself. Many programs show nothing but its first line."""
    body = f"Holdfast's proxy: {message}\n{advice}{chr(10) if advice else ''}".encode()
    phrase = "".join(char for char in message if " " <= char <= "~")[:200].strip()
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def _lines(head: bytes, first: re.Pattern[str]) -> tuple[re.Match[str], Headers]:
    """Return the first line of a head, and its headers."""
    line, *rest = head.removesuffix(END).decode("latin-1").split("\r\n")
    found = first.fullmatch(line)
    if found is None:
        raise Unreadable(400, "The first line is not one of HTTP/1.1.")
    if len(rest) > MAX_HEADERS:
        raise Unreadable(431, f"The head has more than {MAX_HEADERS} headers.")
    headers = [_HEADER.fullmatch(each) for each in rest]
    if None in headers:
        raise Unreadable(400, "A header cannot be read in one way only.")
    return found, tuple((each[1], each[2]) for each in headers if each is not None)


def _length(headers: Headers, minor: int) -> Length:
    """Return where the body ends."""
    lengths = [value for name, value in headers if same(name) == "content-length"]
    codings = [value.lower() for name, value in headers if same(name) == "transfer-encoding"]
    if codings:
        if lengths or codings != ["chunked"] or minor == 0:
            raise Unreadable(400, "The request says in two ways, or in an unusual one, where its body ends.")
        return "chunks"
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise Unreadable(400, "The request has no plain length of its body.")
    return int(lengths[0])


def _inside(wanted: str, method: str, within: Target) -> str:
    """Return the whole address of a request that came through a tunnel."""
    if method == TUNNEL or not wanted.startswith("/"):
        raise Unreadable(400, "Inside of TLS, a request names a path.")
    return f"https://{_authority(within, 443)}{wanted}"


def _authority(target: Target, usual_port: int) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == usual_port else f"{host}:{target.port}"


def _path(url: str, scheme: str = "http") -> str:
    """Return what a server is asked for."""
    if url.startswith("/") or url == "*":
        raise Unreadable(400, "This is a proxy: a request to it names a whole address, http://HOST/PATH.")
    found = _ABSOLUTE.fullmatch(url)
    if found is None or found[1].lower() != scheme:
        raise Unreadable(
            400, "Only http:// addresses without # are read. To others, a program connects by CONNECT."
        )
    return found[2] if found[2].startswith("/") else f"/{found[2]}"
