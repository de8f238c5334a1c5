"""Sends one HTTP request to where it may go, and reads what comes back within limits.

Each request, and each redirect, passes the gate of addresses again. Then the name is resolved once, every address is
judged, and the connection goes to one of exactly these. Nothing comes from the environment: no proxy, no `.netrc`, no
cookie. `aiohttp` is heavy, so tools import this module when they first run.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.access.credentials import Credential, with_credential
from holdfast.policy.addresses import refusal
from holdfast.policy.urls import Target, target_of, url_problem
from holdfast.protocol.allowed import host_is_allowed
from holdfast.protocol.ports import Check
from holdfast.sandbox.names import Lookup
from holdfast.sandbox.whole import asking_for_all, why_not_whole

MAX_BODY_BYTES = 5 << 20
MAX_REDIRECTS = 5
CONNECT_S = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({"GET", "HEAD"})
_KEPT_ABROAD = frozenset({"accept", "accept-language"})
"""The headers of the caller that another origin gets: any other one may be a credential."""
_OWN_HEADERS = {"User-Agent": "holdfast", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}


class Request(msgspec.Struct, frozen=True):
    """What to send, and where."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    credential: Credential | None = None
    """What is added where it may go, at each redirect anew."""


class Response(msgspec.Struct, frozen=True):
    """What came back, after all redirects."""

    status: int
    url: str
    """Where it came from."""
    headers: Mapping[str, str]
    body: bytes = b""
    """Decompressed, and at most so long as allowed."""
    is_cut: bool = False
    """The body is longer."""

    @property
    def mime(self) -> str:
        """The type in lower case, without parameters; empty if it has no type."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class NoResponse(Exception):
    """There is no response, or none that may be read. The message is a sentence for the model."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """What the server or the network said, for the journal only."""


class Reach(msgspec.Struct, frozen=True):
    """Where a call may go, and how it finds the way."""

    allowed: Sequence[str]
    """The hosts, as `[network] allow` names them."""
    check: Check
    lookup: Lookup
    """Resolves names."""
    secret_hosts: Sequence[str] = ()
    """The hosts that may know a secret, and may bring it back in any response. They are asked for plain and whole
    ones.
    """


async def exchange(request: Request, reach: Reach, wants: Callable[[Response], bool]) -> Response:
    """Send a request, follow its redirects, and return the response. The caller limits the time.

    Args:
        request: What to send. Its headers were checked.
        reach: Where it may go.
        wants: Whether the body of a response is read, by its status and headers.

    Raises:
        NoResponse: it may not go there, or nothing readable came back.
        Lapsed: the check failed, and nothing was sent after it.
    """
    for _ in range(MAX_REDIRECTS + 1):
        response = await _sent(request, reach, wants)
        if not _leads_on(response):
            return response
        request = _redirected(request, response.status, response.headers["location"])
    raise NoResponse(f"The address redirects more than {MAX_REDIRECTS} times.")


async def _sent(request: Request, reach: Reach, wants: Callable[[Response], bool]) -> Response:
    """Send one request, and follow nothing."""
    problem = url_problem(request.url, reach.allowed)
    if problem is not None:
        raise NoResponse(f"Refused by policy: {problem[1]}")
    target = target_of(request.url)
    guard = _Guard(reach, target)
    knows_secret = host_is_allowed(target.host, target.port, reach.secret_hosts)
    sent = with_credential(request.headers, request.credential, request.url)
    try:
        async with (
            aiohttp.ClientSession(
                connector=_Connector(guard),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                headers=_OWN_HEADERS,
            ) as session,
            session.request(
                request.method,
                _url(request.url, target),
                headers=dict(asking_for_all(sent.items())) if knows_secret else sent,
                data=request.body,
                allow_redirects=False,
            ) as response,
        ):
            headers = {name.lower(): response.headers[name] for name in response.headers}  # the first of each
            url = request.url.partition("#")[0]
            got = Response(response.status, url, headers)
            has_body = request.method != "HEAD"
            why = why_not_whole(got.status, response.headers.items(), has_body=has_body)
            if knows_secret and why:
                raise NoResponse(why)
            if request.method == "HEAD" or _leads_on(got) or not wants(got):
                return got
            body, is_cut = await _body(response.content, headers.get("content-encoding", ""))
            return msgspec.structs.replace(got, body=body, is_cut=is_cut)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise guard.refusal or _failure(error, target) from error


def _url(text: str, target: Target) -> URL:
    """Return the address in the form that is sent. It leads where the gate says."""
    try:
        url = URL(text).with_host(target.host)
    except ValueError as error:
        raise NoResponse("The address cannot be sent.", str(error)) from None
    if (url.host, url.port, url.user) != (target.host, target.port, None):
        raise NoResponse("Refused by policy: programs may read the address in different ways.")
    return url


def _failure(error: Exception, target: Target) -> NoResponse:
    where, detail = f"{target.host}:{target.port}", f"{type(error).__name__}: {error}"
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return NoResponse(f"{where} has no valid certificate for this name.", detail)
        case aiohttp.ClientConnectorDNSError():
            return NoResponse(f"The name {target.host} cannot be resolved.", detail)
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return NoResponse(f"{where} cannot be reached.", detail)
        case _:
            return NoResponse(f"The connection to {where} broke, or it does not speak HTTP.", detail)


# --- connecting -----------------------------------------------------------------------------------


class _Guard(AbstractResolver):
    """Resolves the name of one request, and judges each address before something connects to it."""

    def __init__(self, reach: Reach, target: Target) -> None:
        self.reach = reach
        self._target = target
        self.refusal: NoResponse | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of the name."""
        addresses = await self.reach.lookup(host, port)
        if not addresses:
            raise OSError("the name has no address")
        self.judge(addresses, port)
        return [
            ResolveResult(
                hostname=host, host=each, port=port, family=_family(each), proto=0, flags=_AS_THEY_ARE
            )
            for each in addresses
        ]

    def judge(self, addresses: Sequence[str], port: int) -> None:
        """Refuse addresses to which nothing may connect."""
        problem = refusal(self._target.host, addresses, port, self.reach.allowed)
        if problem:
            self.refusal = NoResponse(f"Refused by policy: {problem}")
            raise OSError("refused")

    async def close(self) -> None:
        """Do nothing: nothing is kept."""


_AS_THEY_ARE = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class _Connector(aiohttp.TCPConnector):
    """Connects only where its guard lets it, and asks for the lease when the request is about to be written."""

    def __init__(self, guard: _Guard) -> None:
        super().__init__(resolver=guard, use_dns_cache=False, force_close=True, socket_factory=self._socket)
        self._guard = guard

    def _socket(self, found: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an address. All connections begin here, also those to literal addresses."""
        family, kind, protocol, _, (address, port, *_) = found
        self._guard.judge([str(address)], int(port))
        return socket.socket(family, kind, protocol)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Return a connection for a request."""
        connection = await super().connect(req, traces, timeout)
        try:
            self._guard.reach.check()
        except BaseException:
            connection.close()
            raise
        return connection


# --- redirects ------------------------------------------------------------------------------------


def _leads_on(response: Response) -> bool:
    """Return whether a response is a redirect. Nobody reads its body."""
    return response.status in _REDIRECTS and bool(response.headers.get("location"))


def _redirected(request: Request, status: int, location: str) -> Request:
    """Return the request to which a response sends the caller on. Its address is judged when it is sent.

    Raises:
        NoResponse: nobody should follow it.
    """
    if not location.isprintable() or "\\" in location:
        raise NoResponse("The address redirects to one that programs may read in different ways.")
    try:
        url = urljoin(request.url, location)
        old, new = _origin(request.url), _origin(url)
    except ValueError:
        raise NoResponse("The address redirects to one that cannot be read.") from None
    if (old[0], new[0]) == ("https", "http"):
        raise NoResponse("The address redirects from https to http, which is not followed.")
    method, body = request.method, request.body
    if method not in _SAFE and (status == 303 or (status in (301, 302) and method == "POST")):
        method, body = "GET", None
    if new != old and (method not in _SAFE or body is not None):
        what = "A body" if method in _SAFE else f"A {method}"
        where = f"{new[0]}://{new[1]}"
        raise NoResponse(
            f"The address redirects to {where}. {what} is not repeated elsewhere; send it there if that is right."
        )
    headers = dict(request.headers)
    if new != old:
        headers = {name: value for name, value in headers.items() if name.lower() in _KEPT_ABROAD}
    if body is None:
        headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
    return Request(method, url, headers, body, request.credential)


def _origin(url: str) -> tuple[str, str]:
    """Return scheme and authority of an address; the authority with its port."""
    parts = urlsplit(url)
    scheme, port = parts.scheme.lower(), parts.port
    return scheme, f"{(parts.hostname or '').removesuffix('.')}:{port or {'https': 443}.get(scheme, 80)}"


# --- the body -------------------------------------------------------------------------------------


async def _body(content: aiohttp.StreamReader, encoding: str) -> tuple[bytes, bool]:
    """Return the body, at most `MAX_BODY_BYTES` of it both as sent and decompressed, and whether it is longer."""
    unpack = _unpacking(encoding.strip().lower())
    pieces: list[bytes] = []
    left, left_packed = MAX_BODY_BYTES, MAX_BODY_BYTES
    async for chunk in content.iter_any():
        is_cut = len(chunk) > left_packed
        piece = unpack(chunk[:left_packed], left + 1)
        left_packed -= len(chunk)
        pieces.append(piece[:left])
        is_cut = is_cut or len(piece) > left or unpack.has_rest
        left -= len(piece)
        if is_cut:
            return b"".join(pieces), True
    return b"".join(pieces), unpack.is_open


def _unpacking(encoding: str) -> _Plain | _Inflating:
    """Return what decompresses a chunk to at most so many bytes.

    Raises:
        NoResponse: there is no way to decompress it.
    """
    if encoding in ("", "identity"):
        return _Plain()
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise NoResponse("The body is compressed in a way that was not asked for.", encoding)
    return _Inflating(is_deflate=encoding == "deflate")


class _Plain:
    """Leaves chunks as they are."""

    has_rest = False
    is_open = False

    def __call__(self, chunk: bytes, most: int) -> bytes:
        return chunk


class _Inflating:
    """Decompresses gzip and deflate. Some servers send deflate without its header."""

    def __init__(self, *, is_deflate: bool) -> None:
        self._wants_look = is_deflate
        self._has_begun = False
        self._inflate = zlib.decompressobj(wbits=31)

    @property
    def has_rest(self) -> bool:
        """Whether more follows after the end, which is not decompressed."""
        return bool(self._inflate.unused_data)

    @property
    def is_open(self) -> bool:
        """Whether something came, and not its end."""
        return self._has_begun and not self._inflate.eof

    def __call__(self, chunk: bytes, most: int) -> bytes:
        self._has_begun = self._has_begun or bool(chunk)
        if self._wants_look and chunk:
            self._inflate = zlib.decompressobj(wbits=15 if chunk[0] & 0x0F == 8 else -15)
            self._wants_look = False
        try:
            return self._inflate.decompress(chunk, most)
        except zlib.error as error:
            raise NoResponse("The body is not compressed as its header says.", str(error)) from None
