"""The two sides of a request: connections to a program and to a server, plain or inside of TLS.

TLS is done in memory. So a connection is one open file, and who waits for a side waits for its socket: the limits of
time hold for both kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

_CHUNK_BYTES = 64 << 10


class Plain:
    """A connection without TLS.

    Args:
        sock: It does not block. Its owner closes it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def receive(self, most: int) -> bytes:
        """Return what comes next; nothing at the end."""
        return await self._loop.sock_recv(self.sock, most)

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await self._loop.sock_sendall(self.sock, data)

    async def end(self) -> None:
        """Say that nothing follows."""
        self.sock.shutdown(socket.SHUT_WR)


class Secured(Plain):
    """A connection inside of TLS, whose hands are shaken. One task may read while another one writes."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str | None) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._writing = asyncio.Lock()

    async def shake_hands(self) -> None:
        """Raises OSError if the sides cannot be sure of each other."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self._exchange()
        finally:
            await self._flush()  # also the reason why it failed

    async def receive(self, most: int) -> bytes:
        """Return what comes next; nothing at the end."""
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                await self._exchange()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # many servers end without a word
                return b""

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
        await self._flush()

    async def end(self) -> None:
        """Say that nothing follows."""
        with contextlib.suppress(ssl.SSLError):  # the other side has not said so yet
            self._tls.unwrap()
        await self._flush()
        await super().end()

    async def _exchange(self) -> None:
        """Send what TLS has to say, and take in what comes."""
        await self._flush()
        data = await super().receive(_CHUNK_BYTES)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._writing:
            if data := self._outgoing.read():
                await super().send(data)


async def secured(
    stream: Plain, context: ssl.SSLContext, limit_s: float, server_name: str | None = None
) -> Secured:
    """Return what goes through TLS on a connection: as the client of a server of this name, or as a server.

    Raises:
        OSError: the sides cannot be sure of each other, or one speaks no TLS, or takes too long.
    """
    inside = Secured(stream.sock, context, server_name)
    async with asyncio.timeout(limit_s):
        await inside.shake_hands()
    return inside
