"""Answers one request that comes out of a sandbox: judges it, takes it to its server, and brings back the response.

The policy judges the address as it judges those of the web tools. Then the name is resolved once, every address is
judged, and the connection goes to one of exactly these. A connection serves one request. `proxy_heads` reads and
writes the heads, `proxy_calls` accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import NoReturn

import msgspec

from holdfast.policy.addresses import refusal as address_refusal
from holdfast.policy.urls import Misread, Target, judged, may_have_secret, target_of
from holdfast.protocol.allowed import address_of
from holdfast.protocol.traffic import Exchange, StandIn, Verdict
from holdfast.sandbox.names import Lookup
from holdfast.sandbox.proxy_heads import (
    END,
    MAX_HEAD_BYTES,
    Body,
    Head,
    Unreadable,
    answered,
    names_another,
    outgoing,
    read,
    refusal,
)
from holdfast.sandbox.proxy_secrets import Finding, Hiding, Misplaced, with_secrets
from holdfast.sandbox.proxy_tls import Certificates, with_program, with_server

_CHUNK_BYTES = 64 << 10
_MAX_LINGER_BYTES = 1 << 20
_SHOWN_CHARS = 500
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_PARTING_S = 2.0
_USUAL_PORTS = (80, 443)
_CALL_ENDED = "The call ended before."
NOT_TRUSTED = (
    "The program does not accept the certificate of Holdfast's proxy, which reads requests to {host} "
    "because a secret is for it. Programs that insist on the host's own certificate cannot use secrets."
)

Tell = Callable[[Exchange], None]


class Reach(msgspec.Struct, frozen=True):
    """Where a call may go, and how it finds the way."""

    hosts: Sequence[str]
    """As `[network] allow` names them."""
    lookup: Lookup
    secrets: tuple[StandIn, ...] = ()
    certificates: Certificates | None = None
    """With them, the TLS of connections to the hosts of secrets is looked into."""

    def looks_into(self, url: str) -> bool:
        """Return whether the proxy has to read what goes through a tunnel to this address."""
        return self.certificates is not None and any(
            may_have_secret(each.hosts, url) for each in self.secrets
        )


class Limits(msgspec.Struct, frozen=True):
    """The limits of one connection."""

    head_s: float = 10.0
    """How long the head of a request may take."""
    connect_s: float = 10.0
    idle_s: float = 300.0
    """The longest silence of both sides."""
    linger_s: float = 10.0
    """The longest silence of a server after the program has closed its side."""
    max_bytes: int = 2 << 30
    """The most that goes through, in both directions together."""


LIMITS = Limits()


class _Stopped(Exception):
    """The request goes no further.

    Args:
        verdict: What becomes of it.
        status: The status of the answer.
        why: The reason as a sentence.
        advice: What the program's user can do about it, as a sentence.
    """

    def __init__(self, verdict: Verdict, status: int, why: str, advice: str = "") -> None:
        super().__init__(why)
        self.verdict = verdict
        self.status = status
        self.why = why
        self.advice = advice


async def answer(client: socket.socket, reach: Reach, tell: Tell, limits: Limits = LIMITS) -> None:
    """Answer the request of a program, and tell of it. The caller closes the connection."""
    with contextlib.suppress(OSError):  # it is gone already
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    await _answer(_Passage(client, reach, limits), tell)


async def _answer(passage: _Passage, tell: Tell) -> None:
    try:
        if (target := await passage.go()) is not None:
            await _look_inside(passage, target, tell)
    except _Stopped as stopped:
        passage.verdict, passage.why = stopped.verdict, stopped.why
        if not passage.has_answered:
            await passage.say(refusal(stopped.status, stopped.why, stopped.advice))
    except OSError:
        if not passage.is_over:
            passage.verdict, passage.why = "failed", "The connection broke."
    except asyncio.CancelledError:
        if not passage.is_over:
            passage.verdict = "allowed" if passage.has_answered else "failed"
            passage.why = _CALL_ENDED
        raise
    finally:
        if passage.has_begun:
            tell(passage.exchange())


async def _look_inside(passage: _Passage, target: Target, tell: Tell) -> None:
    """Answer the request that comes through a tunnel, and tell of it instead of the tunnel."""
    try:
        async with passage.opened(target) as plain:
            passage.has_begun = False
            await _answer(passage.inner(plain, target), tell)
    except OSError:
        if passage.has_begun:
            raise _Stopped("failed", 502, NOT_TRUSTED.format(host=target.host)) from None


class _Passage:
    """One request on its way. It counts what goes through.

    Args:
        client: The connection of the program.
        reach: Where it may go.
        limits: Its limits.
        within: Where the tunnel leads through which it came; None: it came through none.
    """

    def __init__(
        self, client: socket.socket, reach: Reach, limits: Limits, within: Target | None = None
    ) -> None:
        self.verdict: Verdict = "allowed"
        self.why = ""
        self.has_begun = False
        self.has_answered = False
        self.is_over = False
        """The program got the whole response."""
        self._client = client
        self._reach = reach
        self._limits = limits
        self._within = within
        self._loop = asyncio.get_running_loop()
        self._head: Head | None = None
        self._status = self._sent = self._received = 0
        self._limit = asyncio.timeout(None)
        self._finding = Finding(reach.secrets)
        self._hiding: Hiding | None = None

    def exchange(self) -> Exchange:
        """Return what is to be told."""
        head = self._head
        method, where = (head.method, head.where) if head is not None else ("", "")
        return Exchange(
            method, where[:_SHOWN_CHARS], self.verdict, self.why, self._status, self._sent, self._received
        )

    async def say(self, words: bytes) -> None:
        """Say the last words to the program, and wait a moment until it has read all."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(min(self._limits.linger_s, _PARTING_S)):
                if words:
                    await self._loop.sock_sendall(self._client, words)
                self._client.shutdown(socket.SHUT_WR)
                left = _MAX_LINGER_BYTES  # unread bytes would take the words away from the program
                while left > 0 and (more := await self._loop.sock_recv(self._client, _CHUNK_BYTES)):
                    left -= len(more)

    @contextlib.asynccontextmanager
    async def opened(self, target: Target) -> AsyncIterator[socket.socket]:
        """Open the tunnel, and give the plain side of what the program sends through it. Raises what
        `proxy_tls.with_program` raises.
        """
        assert self._reach.certificates is not None
        await self._loop.sock_sendall(self._client, _ESTABLISHED)
        self.has_answered = True
        context = self._reach.certificates.context(target.host)
        async with with_program(self._client, context, self._limits.connect_s) as plain:
            yield plain

    def inner(self, plain: socket.socket, target: Target) -> _Passage:
        """Return the passage of the request that comes through the tunnel."""
        return _Passage(plain, self._reach, self._limits, target)

    async def go(self) -> Target | None:
        """Take the request to its server, and the response back. Return where it leads if it is a tunnel that has to
        be looked into: nothing happened then.
        """
        head, rest = await self._read_head()
        if head is None:
            return None
        self._head = head
        target = self._judged(head)
        if head.is_tunnel and self._reach.looks_into(head.url):
            if rest:
                raise _Stopped("refused", 400, "The program did not wait until the tunnel was there.")
            return target
        try:
            head, used = with_secrets(head, self._reach.secrets)
        except Misplaced as error:
            raise _Stopped("refused", 403, str(error)) from None
        self._hiding = Hiding(each.value for each in used) if used else None
        async with self._server(target) as server, self._limited():
            await (self._tunnel(server, rest) if head.is_tunnel else self._ask(server, head, target, rest))
        return None

    @contextlib.asynccontextmanager
    async def _server(self, target: Target) -> AsyncIterator[socket.socket]:
        """Give the connection to the server, or the plain side of it."""
        with await self._connected(target) as server:
            if self._within is None:
                yield server
                return
            async with contextlib.AsyncExitStack() as stack:
                try:
                    secured = with_server(server, target.host, self._limits.connect_s)
                    plain = await stack.enter_async_context(secured)
                except OSError:
                    why = f"{target.host} has no valid certificate for this name."
                    raise _Stopped("failed", 502, why) from None
                yield plain

    # --- before the server --------------------------------------------------------------------

    async def _read_head(self) -> tuple[Head | None, bytes]:
        """Return the head, and what came after it; None if the program closed the connection before."""
        data = bytearray()
        try:
            async with asyncio.timeout(self._limits.head_s):
                while END not in data:
                    if len(data) > MAX_HEAD_BYTES:
                        raise _Stopped("refused", 431, f"The head is longer than {MAX_HEAD_BYTES >> 10} KiB.")
                    more = await self._loop.sock_recv(self._client, MAX_HEAD_BYTES)
                    if not more:
                        return None, b""
                    self.has_begun = True
                    data += more
        except TimeoutError:
            raise _Stopped("failed", 408, f"The head had no end after {self._limits.head_s:g} s.") from None
        end = data.index(END) + len(END)
        if end > MAX_HEAD_BYTES:
            raise _Stopped("refused", 431, f"The head is longer than {MAX_HEAD_BYTES >> 10} KiB.")
        try:
            return read(bytes(data[:end]), self._within), bytes(data[end:])
        except Unreadable as error:
            raise _Stopped("refused", error.status, str(error)) from None

    def _judged(self, head: Head) -> Target:
        found = judged(head.url, self._reach.hosts)
        if not isinstance(found, Target):
            _refuse(found[1], head.url)
        if names_another(head, found):
            raise _Stopped("refused", 400, "Address and header of the request name different hosts.")
        return found

    async def _connected(self, target: Target) -> socket.socket:
        """Return a connection to where a target leads, if all its addresses may be reached."""
        try:
            async with asyncio.timeout(self._limits.connect_s):
                is_literal = address_of(target.host) is not None
                addresses = (
                    [target.host] if is_literal else await self._reach.lookup(target.host, target.port)
                )
        except (OSError, TimeoutError, UnicodeError):
            raise _Stopped("failed", 502, f"The name {target.host} cannot be resolved.") from None
        if problem := address_refusal(target.host, addresses, target.port, self._reach.hosts):
            raise _Stopped("refused", 403, problem)
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            server = socket.socket(family, socket.SOCK_STREAM)
            try:
                server.setblocking(False)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(self._limits.connect_s / len(addresses)):
                    await self._loop.sock_connect(server, (address, target.port))
            except (OSError, TimeoutError):
                server.close()
            except BaseException:
                server.close()
                raise
            else:
                return server
        raise _Stopped("failed", 502, f"{target.host}:{target.port} cannot be reached.")

    # --- with the server ----------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Limit the silence of both sides together."""
        try:
            async with asyncio.timeout(self._limits.idle_s) as self._limit:
                yield
        except TimeoutError:
            raise _Stopped("failed", 504, "Nothing came for too long.") from None

    async def _tunnel(self, server: socket.socket, rest: bytes) -> None:
        """Move bytes in both directions until both sides have ended."""
        await self._loop.sock_sendall(self._client, _ESTABLISHED)
        self.has_answered, self._status = True, 200
        if rest:
            self._count(sent=len(rest))
            await self._loop.sock_sendall(server, rest)
        await _all(
            self._move(self._client, server, lambda size: self._count(sent=size)),
            self._move(server, self._client, lambda size: self._count(received=size)),
        )

    async def _ask(self, server: socket.socket, head: Head, target: Target, rest: bytes) -> None:
        """Send the request and bring back the response. Both may happen at once."""
        start = outgoing(head, target)
        self._count(sent=len(start))
        await self._loop.sock_sendall(server, start)
        sending = asyncio.create_task(self._send_body(server, Body(head.length), rest))
        bringing = asyncio.create_task(self._bring(server))
        try:
            await asyncio.wait({sending, bringing}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), _Stopped):
                sending.result()
            await bringing
            self.is_over = True
        finally:
            sending.cancel()
            bringing.cancel()
            await asyncio.gather(sending, bringing, return_exceptions=True)
        await self.say(b"")

    async def _send_body(self, server: socket.socket, body: Body, data: bytes) -> None:
        """Send the body on, and nothing that follows it. Then wait until the program closes its side."""
        while not body.is_over:
            if data:
                try:
                    part = body.take(data)
                    self._finding.check(part)
                except Unreadable as error:
                    raise _Stopped("refused", error.status, str(error)) from None
                except Misplaced as error:
                    raise _Stopped("refused", 403, str(error)) from None
                self._count(sent=len(part))
                await self._loop.sock_sendall(server, part)
            if not body.is_over and not (data := await self._loop.sock_recv(self._client, _CHUNK_BYTES)):
                raise _Stopped("failed", 400, "The body of the request has no end.")
        dropped = b"x"
        while dropped:
            dropped = await self._loop.sock_recv(self._client, _CHUNK_BYTES)
        self._wait(self._limits.linger_s)

    async def _bring(self, server: socket.socket) -> None:
        """Bring the response to the program, with those that only announce it."""
        data = bytearray()
        while True:
            while END not in data:
                more = await self._loop.sock_recv(server, _CHUNK_BYTES)
                if not more or len(data) > MAX_HEAD_BYTES:
                    raise _Stopped("failed", 502, "The server does not speak HTTP, or broke off.")
                self._count(received=len(more))
                data += more
            end = data.index(END) + len(END)
            try:
                self._status, head = answered(bytes(data[:end]))
            except Unreadable:
                raise _Stopped("failed", 502, "The server does not speak HTTP.") from None
            if self._status == 101:
                raise _Stopped("failed", 502, "The server wants to speak another protocol than HTTP.")
            if self._hiding is not None and _is_packed(head):
                raise _Stopped("failed", 502, "The server compressed its response, in which a secret may be.")
            del data[:end]
            self.has_answered = self._status >= 200
            rest = bytes(data) if self.has_answered else b""
            await self._loop.sock_sendall(self._client, self._hidden(head + rest))
            if self.has_answered:
                break
        await self._move(server, self._client, lambda size: self._count(received=size), self._hiding)

    def _hidden(self, data: bytes) -> bytes:
        return data if self._hiding is None else self._hiding.take(data)

    async def _move(
        self,
        source: socket.socket,
        sink: socket.socket,
        count: Callable[[int], None],
        hiding: Hiding | None = None,
    ) -> None:
        """Move bytes until the source has no more."""
        buffer = bytearray(_CHUNK_BYTES)
        view = memoryview(buffer)
        while size := await self._loop.sock_recv_into(source, buffer):
            count(size)
            moved = view[:size] if hiding is None else hiding.take(bytes(view[:size]))
            await self._loop.sock_sendall(sink, moved)
            await asyncio.sleep(0)  # others have their turn, also if both sides are quick
        if hiding is not None:
            await self._loop.sock_sendall(sink, hiding.rest())
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _count(self, sent: int = 0, received: int = 0) -> None:
        self._sent += sent
        self._received += received
        if self._sent + self._received > self._limits.max_bytes:
            raise _Stopped("failed", 502, f"More than {self._limits.max_bytes >> 20:,} MiB went through.")
        self._wait(self._limits.idle_s)

    def _wait(self, longest_s: float) -> None:
        """Begin to count the silence anew."""
        if not self._limit.expired():
            self._limit.reschedule(self._loop.time() + longest_s)


async def _all(*works: Coroutine[object, object, None]) -> None:
    """Do all of it at once. The first failure ends the rest."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_packed(head: bytes) -> bool:
    """Return whether the body of a response has another form than its content."""
    return re.search(rb"(?im)^content-encoding:(?![ \t]*identity[ \t]*\r?$)", head) is not None


def _refuse(why: str, url: str) -> NoReturn:
    """Refuse an address, and say how a person can allow it."""
    try:
        target = target_of(url)
    except Misread:
        raise _Stopped("refused", 403, why) from None
    host = f"[{target.host}]" if ":" in target.host else target.host
    entry = (
        host if target.port in _USUAL_PORTS and address_of(target.host) is None else f"{host}:{target.port}"
    )
    advice = f'A person can allow it with [network] allow = ["{entry}"].'
    if target.host in ("127.0.0.1", "::1", "localhost"):
        advice += " A server of this same command is reached without the proxy (NO_PROXY)."
    raise _Stopped("refused", 403, why, advice)
