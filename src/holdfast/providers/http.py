"""Sends requests to providers over HTTP: exact bytes out, chunks in, and every network error as a Failure.

One pool of connections serves all providers of a runtime. Nothing here knows a wire format or retries.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.deadlines import Deadline, Deadlines
from holdfast.protocol.failures import Failure
from holdfast.protocol.ports import Check
from holdfast.providers.errors import clip
from holdfast.providers.sse import Heard

if TYPE_CHECKING:
    import aiohttp

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
"""How much of a refusal is read: more than any real one, less than an endless page."""

AFTER_END_S = 1.0
"""How long to wait for the end of a response after its last event, to keep its connection."""

Receive = Callable[[bytes], Heard]
"""Takes a chunk of a stream, and returns what it says."""


class Response(msgspec.Struct, frozen=True):
    """The HTTP response of a server. `body` is empty for a stream, whose chunks went to the receiver."""

    status: int
    headers: Mapping[str, str]
    """The headers as received. Ignore upper and lower case in their names."""
    body: bytes = b""


class NoResponse(msgspec.Struct, frozen=True):
    """Why there is no response, or not a whole one."""

    failure: Failure
    was_sent: bool = True
    """Whether the server may have the request, and may charge for it."""
    size_bytes: int = 0
    """How many bytes came of a response that was too large to keep."""


class Link(msgspec.Struct, frozen=True):
    """What a user sets about how a provider is spoken to."""

    cache: Literal["auto", "blocks", "off"] = "auto"
    """How it learns what to keep in its cache. `auto`: in the way that its server is known to read best."""
    keeps_an_hour: bool = False
    headers: Mapping[str, str] = {}
    """These come with each request."""
    proxy: str = ""
    """In the place of the one in the environment."""
    ca_pem: str = ""
    """Certificates that count beside those of the system."""


USUAL_LINK = Link()


class HttpPool:
    """Keep-alive connections to all providers of a runtime, opened on first use."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str] = {}
        self._deadlines = Deadlines()
        self._links: dict[str, Link] = {}
        self._trusted: dict[str, ssl.SSLContext] = {}

    def route(self, url: str, link: Link) -> None:
        """Speak to this address in this way from now on."""
        self._links[url] = link

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        idle_s: float,
        check: Check,
        receive: Receive | None = None,
        kept: list[bytes] | None = None,
    ) -> Response | NoResponse:
        """Send exactly these bytes. An event stream goes to `receive` chunk by chunk; another response is read whole.
        Its chunks go to `kept` too, for who wants to know what came of a response that breaks off.
        `idle_s` is the longest silence, before the first word and after each. Comments, pings and empty lines
        count as silence. A redirect is a response like any other: it is not followed.

        Cancelling closes the connection. Never raises for what the network or the server does.

        Raises:
            Fenced: the `check` failed, and nothing was sent.
        """
        import aiohttp

        from holdfast.providers.body import CheckedBody

        data = CheckedBody(body, check)
        session = self._open()
        link = self._links.get(url, USUAL_LINK)
        proxy = link.proxy or (proxy_for(url, self._proxies) if self._proxies else None)
        try:
            with self._deadlines.at(asyncio.get_running_loop().time() + idle_s) as deadline:
                async with session.post(
                    url,
                    data=data,
                    headers=headers,
                    allow_redirects=False,
                    proxy=proxy,
                    ssl=self._trusting(link.ca_pem) if link.ca_pem else True,
                ) as response:
                    return await _read(response, deadline, idle_s, receive, [] if kept is None else kept)
        except aiohttp.ClientConnectorCertificateError as error:
            message = "The certificate of the model's server is not valid for its address."
            return NoResponse(
                Failure("provider_fatal", message, clip(f"{_authority(url)}: {error}")), was_sent=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            message = f"The model's server at {_authority(url)} is not reachable."
            failure = Failure("provider_transient", message, clip(f"{_authority(url)}: {error}"))
            return NoResponse(failure, was_sent=False)
        except TimeoutError:
            message = f"The model's server was silent for {idle_s:g} s."
            return NoResponse(Failure("provider_transient", message, _authority(url)))
        except (aiohttp.ClientError, OSError) as error:
            if data.fenced is not None:
                raise data.fenced from None
            message, kind = "The connection to the model's server broke.", type(error).__name__
            return NoResponse(
                Failure("provider_transient", message, clip(f"{_authority(url)}: {kind}: {error}"))
            )

    async def aclose(self) -> None:
        """Close every connection. The pool opens again on its next use."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _trusting(self, ca_pem: str) -> ssl.SSLContext:
        """Return what trusts these certificates, too. Reading those of the system takes long, so it is kept."""
        found = self._trusted.get(ca_pem)
        if found is None:
            found = self._trusted[ca_pem] = ssl.create_default_context()
            found.load_verify_locations(cadata=ca_pem)
        return found

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._proxies = proxies_of(os.environ)
            self._session = aiohttp.ClientSession(
                # The runtime decides how many requests are in flight; a wait here would count as silence.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "holdfast", "Accept-Encoding": "identity"},
            )
        return self._session


async def _read(
    response: aiohttp.ClientResponse,
    deadline: Deadline,
    idle_s: float,
    receive: Receive | None,
    kept: list[bytes],
) -> Response | NoResponse:
    chunks = kept if response.status == 200 else []  # a refusal costs nothing
    is_stream = receive is not None and response.status == 200 and _is_event_stream(response.headers)
    limit = MAX_RESPONSE_BYTES if response.status == 200 else MAX_ERROR_BYTES
    size_bytes, patience_s = 0, idle_s
    while chunk := await response.content.readany():
        size_bytes += len(chunk)
        if size_bytes > limit:
            if response.status != 200:
                break
            message = f"The response is larger than {MAX_RESPONSE_BYTES >> 20} MiB."
            return NoResponse(Failure("provider_fatal", message), size_bytes=size_bytes)
        if is_stream and receive is not None:
            heard = receive(chunk)
        else:
            chunks.append(chunk)
            heard = Heard.NOTHING if chunk.isspace() else Heard.SOMETHING
        if response.content.at_eof():
            break
        if heard is Heard.END:
            patience_s = AFTER_END_S
        if heard is not Heard.NOTHING:
            deadline.move(asyncio.get_running_loop().time() + patience_s)
    return Response(response.status, response.headers, b"".join(chunks))


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    """Return whether it is a stream. Servers that ignore `stream` answer in JSON, and gateways in HTML; some name no
    type.
    """
    kind = headers.get("content-type", "")
    return "json" not in kind and "html" not in kind


@functools.lru_cache(maxsize=256)
def is_loopback(url: str) -> bool:
    """Return whether the address is this machine: localhost, 127.0.0.0/8 or ::1."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, by the part before `_proxy`.

    Either case counts, and lower case wins. `HTTP_PROXY` does not count, because a CGI request could set it.
    """
    proxies: dict[str, str] = {}
    for name in sorted(environment):
        what, underscore, ending = name.lower().rpartition("_")
        if ending == "proxy" and underscore and environment[name] and name != "HTTP_PROXY":
            proxies[what] = environment[name]
    return proxies


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy for the address among those of `proxies_of`; never one for loopback."""
    parts = urlsplit(url)
    if is_loopback(url) or _is_direct(parts.hostname or "", proxies.get("no", "")):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def _is_direct(host: str, no_proxy: str) -> bool:
    """Return whether `no_proxy` names the host: `*`, the host itself, or a domain that contains it."""
    names = [name.strip().lstrip(".") for name in no_proxy.split(",")]
    return any(name == "*" or host == name or host.endswith(f".{name}") for name in names if name)


def _authority(url: str) -> str:
    """Return host and port, without a user and password in the address."""
    return urlsplit(url).netloc.rpartition("@")[2]
