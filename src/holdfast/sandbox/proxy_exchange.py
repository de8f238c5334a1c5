"""Answers one request that comes out of a sandbox: judges it, takes it to its server, and brings back the response.

The policy judges the address as it judges those of the web tools. Then the name is resolved once, every address is
judged, and the connection goes to one of exactly these. A connection serves one request. `proxy_heads` and
`proxy_bodies` read and write what goes through, `proxy_streams` moves it, `proxy_calls` accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import NoReturn

import msgspec

from holdfast.policy.addresses import refusal as address_refusal
from holdfast.policy.urls import URL_MAX_CHARS, Misread, Target, judged, may_have_secret, target_of
from holdfast.protocol.allowed import address_of
from holdfast.protocol.counts import counted
from holdfast.protocol.traffic import Exchange, StandIn, Verdict
from holdfast.sandbox.names import Lookup
from holdfast.sandbox.proxy_bodies import LAST_CHUNK, Body, Unreadable, chunk
from holdfast.sandbox.proxy_heads import (
    END,
    MAX_HEAD_BYTES,
    Answer,
    Head,
    answered,
    framed,
    names_another,
    outgoing,
    read,
    refusal,
)
from holdfast.sandbox.proxy_secrets import Finding, Hiding, Misplaced, with_secrets
from holdfast.sandbox.proxy_streams import Plain, secured
from holdfast.sandbox.proxy_tls import Certificates, trusting
from holdfast.sandbox.whole import same

_CHUNK_BYTES = 64 << 10
_HELD_BYTES = 64 << 10
"""So much of a body is looked at before anything goes to the server."""
_MAX_LINGER_BYTES = 1 << 20
_MAX_ANNOUNCED = 20
"""So many responses may announce another one."""
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_PARTING_S = 2.0
_USUAL_PORTS = (80, 443)
_CALL_ENDED = "The call ended before."
_CUT_OFF = "The server got the beginning of the request, and nobody knows what it did."
NOT_TRUSTED = (
    "The program does not accept the certificate of Holdfast's proxy, which reads requests to {host} "
    "because a secret is for it. Programs that insist on the host's own certificate cannot use secrets."
)
NOT_SECURED = (
    "The program speaks HTTP without TLS in a tunnel to {host}, where Holdfast's proxy expects TLS because a "
    "secret is for it. Without a tunnel, the proxy sends HTTP on."
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
    pause_s: float = 1.0
    """How long a program may be silent within the beginning of a long body that is held back."""
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
    await _answer(_Passage(Plain(client), reach, limits), tell)


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
        plain = await passage.opened(target)
    except OSError as error:
        is_plain = isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST"
        why = (NOT_SECURED if is_plain else NOT_TRUSTED).format(host=target.host)
        raise _Stopped("failed", 502, why) from None
    passage.has_begun = False
    await _answer(passage.inner(plain, target), tell)


class _Passage:
    """One request on its way. It counts what goes through.

    Args:
        client: The connection of the program.
        reach: Where it may go.
        limits: Its limits.
        within: Where the tunnel leads through which it came; None: it came through none.
    """

    def __init__(self, client: Plain, reach: Reach, limits: Limits, within: Target | None = None) -> None:
        self.verdict: Verdict = "allowed"
        self.why = ""
        self.has_begun = False
        self.has_answered = False
        self.is_over = False
        """The program got the whole response."""
        self._is_held = True
        """Nothing of the request has gone to the server."""
        self._coming: asyncio.Task[bytes] | None = None
        """What the program sends next, if somebody waits for it already."""
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
        if len(where) > URL_MAX_CHARS:  # nobody masks a part of a secret
            where = f"[an address of {counted(len(where), 'character')}]"
        return Exchange(method, where, self.verdict, self.why, self._status, self._sent, self._received)

    async def say(self, words: bytes) -> None:
        """Say the last words to the program, and wait a moment until it has read all."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(min(self._limits.linger_s, _PARTING_S)):
                if words:
                    await self._client.send(words)
                await self._client.end()
                left = _MAX_LINGER_BYTES  # unread bytes would take the words away from the program
                while left > 0 and (more := await self._loop.sock_recv(self._client.sock, _CHUNK_BYTES)):
                    left -= len(more)

    async def opened(self, target: Target) -> Plain:
        """Open the tunnel, and return the plain side of what the program sends through it. Raises what `secured`
        raises.
        """
        assert self._reach.certificates is not None
        await self._client.send(_ESTABLISHED)
        self.has_answered = True
        context = self._reach.certificates.context(target.host)
        return await secured(self._client, context, self._limits.connect_s)

    def inner(self, plain: Plain, target: Target) -> _Passage:
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
            head, known = with_secrets(head, self._reach.secrets)
        except Misplaced as error:
            raise _Stopped("refused", 403, str(error)) from None
        self._hiding = Hiding(each.value for each in known) if known else None
        async with self._server(target) as server, self._limited():
            await (self._tunnel(server, rest) if head.is_tunnel else self._ask(server, head, target, rest))
        return None

    @contextlib.asynccontextmanager
    async def _server(self, target: Target) -> AsyncIterator[Plain]:
        """Give the connection to the server, or the plain side of it."""
        with await self._connected(target) as server:
            if self._within is None:
                yield Plain(server)
                return
            try:
                plain = await secured(Plain(server), trusting(), self._limits.connect_s, target.host)
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
                    more = await self._client.receive(MAX_HEAD_BYTES)
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

    async def _tunnel(self, server: Plain, rest: bytes) -> None:
        """Move bytes in both directions until both sides have ended."""
        await self._client.send(_ESTABLISHED)
        self.has_answered, self._status = True, 200
        if rest:
            self._count(sent=len(rest))
            await server.send(rest)
        await _all(
            self._move(self._client, server, lambda size: self._count(sent=size)),
            self._move(server, self._client, lambda size: self._count(received=size)),
        )

    async def _ask(self, server: Plain, head: Head, target: Target, rest: bytes) -> None:
        """Send the request and bring back the response. Both may happen at once."""
        body, begin = Body(head.length), b""
        try:
            if self._is_looked_at_first(head, rest):
                begin, rest = await self._begin(body, rest), b""
            start = outgoing(head, target)
            self._count(sent=len(start))
            self._is_held = False
            await server.send(start)
            await self._exchanged(self._send_body(server, body, rest, begin), self._bring(server, head))
        finally:
            if self._coming is not None:
                self._coming.cancel()
                await asyncio.gather(self._coming, return_exceptions=True)
        await self.say(b"")

    async def _exchanged(
        self, send: Coroutine[object, object, None], bring: Coroutine[object, object, None]
    ) -> None:
        """Send the body and bring the response, until the program has the whole response."""
        sending, bringing = asyncio.create_task(send), asyncio.create_task(bring)
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

    def _is_looked_at_first(self, head: Head, rest: bytes) -> bool:
        """Return whether to look at the beginning of the body before the head goes to the server: it may be refused,
        and the program does not wait for the server's leave to send it.
        """
        may_be_refused = head.length == "chunks" or (head.length != 0 and bool(self._reach.secrets))
        waits = not rest and any(same(name) == "expect" for name, _ in head.headers)
        return may_be_refused and not waits

    async def _begin(self, body: Body, data: bytes) -> bytes:
        """Return all of a short body, or the beginning of a long one: what is refused for it does nothing."""
        begin = bytearray()
        is_short = body.length != "chunks" and int(body.length) <= _HELD_BYTES
        while True:
            begin += self._checked(body, data)
            if body.is_over or len(begin) >= _HELD_BYTES:
                return bytes(begin)
            self._wait(self._limits.idle_s)
            self._coming = asyncio.create_task(self._client.receive(_CHUNK_BYTES))
            # A receipt that is cancelled could lose what has just come.
            await asyncio.wait({self._coming}, timeout=None if is_short else self._limits.pause_s)
            if not self._coming.done():
                return bytes(begin)
            data = await self._more()

    async def _send_body(self, server: Plain, body: Body, data: bytes, begin: bytes = b"") -> None:
        """Send the body on, from its beginning, and nothing that follows it. Then wait until the program closes its
        side.
        """
        while begin or not body.is_over:
            part = begin or self._checked(body, data)
            if part:
                self._count(sent=len(part))
                await server.send(part)
                await asyncio.sleep(0)  # others have their turn, also if both sides are quick
            begin = data = b""
            if not body.is_over:
                data = await self._more()
        dropped = b"x"
        with contextlib.suppress(OSError):  # it went away
            while dropped:
                dropped = await self._client.receive(_CHUNK_BYTES)
                await asyncio.sleep(0)
        self._wait(self._limits.linger_s)

    def _checked(self, body: Body, data: bytes) -> bytes:
        """Return what goes on of these bytes of a body, if it may."""
        try:
            part = body.take(data)
            self._finding.check(part)
        except (Unreadable, Misplaced) as error:
            status = error.status if isinstance(error, Unreadable) else 403
            if self._is_held:
                raise _Stopped("refused", status, str(error)) from None
            raise _Stopped("cut off", status, f"{_CUT_OFF} {error}") from None  # lists show the beginning
        if body.length == "chunks":
            return chunk(part) + (LAST_CHUNK if body.is_over else b"")
        return part

    async def _more(self) -> bytes:
        """Return what the program sends next of a body."""
        coming, self._coming = self._coming, None
        if data := await (coming or self._client.receive(_CHUNK_BYTES)):
            return data
        raise _Stopped("failed", 400, "The body of the request has no end.")

    async def _bring(self, server: Plain, head: Head) -> None:
        """Bring the response to the program, with those that only announce it."""
        answer, rest = await self._answer_of(server, b"")
        for _ in range(_MAX_ANNOUNCED):
            if answer.status >= 200:
                break
            await self._client.send(self._shown(bytes(answer)))
            answer, rest = await self._answer_of(server, rest)
        else:
            raise _Stopped("failed", 502, "The server announces a response without end.")
        if self._hiding is not None:
            await self._bring_hidden(server, head, answer, rest, self._hiding)
            return
        self.has_answered = True
        await self._client.send(bytes(answer) + rest)
        await self._move(server, self._client, lambda size: self._count(received=size))

    async def _answer_of(self, server: Plain, came: bytes) -> tuple[Answer, bytes]:
        """Return the next response of the server without its body, and what came after it."""
        data = bytearray(came)
        while END not in data:
            more = await server.receive(_CHUNK_BYTES)
            if not more or len(data) > MAX_HEAD_BYTES:
                raise _Stopped("failed", 502, "The server does not speak HTTP, or broke off.")
            self._count(received=len(more))
            data += more
        end = data.index(END) + len(END)
        try:
            answer = answered(bytes(data[:end]))
        except Unreadable:
            raise _Stopped("failed", 502, "The server does not speak HTTP.") from None
        if answer.status == 101:
            raise _Stopped("failed", 502, "The server wants to speak another protocol than HTTP.")
        self._status = answer.status
        return answer, bytes(data[end:])

    async def _bring_hidden(
        self, server: Plain, head: Head, answer: Answer, data: bytes, hiding: Hiding
    ) -> None:
        """Bring a response whose server knows a secret: its content, with stars in place of the value. What may be
        the beginning of the value is held back, and dropped if the response breaks off.
        """
        try:
            answer, length = framed(answer, head.method, head.minor)
        except Unreadable as error:
            raise _Stopped("failed", error.status, str(error)) from None
        body, is_chunked = Body(length, is_strict=False), length == "chunks" and head.minor > 0
        self.has_answered = True
        await self._client.send(self._shown(bytes(answer)))
        while not body.is_over:
            try:
                shown = hiding.take(body.take(data))
            except Unreadable:
                raise _Stopped("failed", 502, "The chunks of the response cannot be read.") from None
            if shown:
                await self._client.send(chunk(shown) if is_chunked else shown)
            if body.is_over:
                break
            data = await server.receive(_CHUNK_BYTES)
            if not data and length != "close":
                raise _Stopped("failed", 502, "The server broke off.")
            if not data:
                break
            self._count(received=len(data))
            await asyncio.sleep(0)
        rest = hiding.rest()
        await self._client.send(chunk(rest) + LAST_CHUNK if is_chunked else rest)

    def _shown(self, head: bytes) -> bytes:
        return head if self._hiding is None else self._hiding.whole(head)

    async def _move(self, source: Plain, sink: Plain, count: Callable[[int], None]) -> None:
        """Move bytes until the source has no more."""
        while data := await source.receive(_CHUNK_BYTES):
            count(len(data))
            await sink.send(data)
            await asyncio.sleep(0)
        with contextlib.suppress(OSError):
            await sink.end()

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
