"""The proxy of a runtime, as its calls see it: gives each call a way out of its sandbox, and hears of its requests.

The proxy is a process of its own, started with the first call that needs it. It ends with the runtime, also if that
is killed. If somebody kills the proxy, the requests of the calls that run fail, and the next call starts another one.
`proxy_child` is the program, `way_child` makes the way from inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.protocol.fence import Launch
from holdfast.protocol.traffic import Authority, Exchange, Requests, StandIn, Told, Word
from holdfast.sandbox import proxy_tls
from holdfast.sandbox.installed import ROOT

PORT = 3128
"""Where the proxy is found inside. Every sandbox has a network of its own."""
BROKEN = "The proxy ended while the call ran."
SLOW = "The proxy was too slow to tell all requests of the call."
_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY")
"""Where Holdfast is. Its own programs import it from there."""
_CHILD = str(Path(__file__).with_name("proxy_child.py"))
_WAY = Path(__file__).with_name("way_child.py").read_text(encoding="utf-8")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PATIENCE_S = 3.0
"""How long the proxy may say nothing when a call ends, or take nothing when one begins."""
_BREATH_S = 0.01
_BUSY = (errno.EAGAIN, errno.ETOOMANYREFS)
"""The proxy has not taken yet what was passed before."""
_WORD_BYTES = 1 << 20


class Way:
    """The way out of one call.

    Args:
        fd: What its first program needs to make the way.
        writer: Says something to the proxy about the call.
        on_exchange: Hears of each request when it has ended.
    """

    def __init__(
        self, fd: int, writer: asyncio.StreamWriter, on_exchange: Callable[[Exchange], None]
    ) -> None:
        self.fd = fd
        self._writer = writer
        self.is_over = False
        """Whether the proxy has told all."""
        self._on_exchange = on_exchange
        self.heard_s = 0.0
        """When the proxy last said something, by the clock of the loop."""
        self._exchanges: list[Exchange] = []
        self._more = 0

    def requests(self) -> Requests:
        """Return its requests so far."""
        return Requests(tuple(self._exchanges), self._more)

    def close(self) -> None:
        """Let the proxy close it, with all that goes through. The programs of the call may live on."""
        with contextlib.suppress(OSError, RuntimeError):  # the proxy is gone, or it is closed
            self._writer.write_eof()

    def hear(self, word: Word) -> None:
        """Take in what the proxy tells."""
        if word.exchange is not None:
            self._exchanges.append(word.exchange)
            self._on_exchange(word.exchange)
        else:
            self._more, self.is_over = word.more, True


class Proxy:
    """The proxy of one runtime.

    Args:
        run: Runs a process tree to its end.
    """

    def __init__(self, run: Callable[[Launch], Awaitable[object]]) -> None:
        self._run = run
        self._authority: Authority | None = None
        self._authorities = b""
        self._door: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks = set[asyncio.Task[None]]()
        """With those of proxies that somebody froze or killed."""

    @contextlib.asynccontextmanager
    async def way(
        self,
        hosts: Sequence[str],
        on_exchange: Callable[[Exchange], None] = lambda _: None,
        secrets: tuple[StandIn, ...] = (),
    ) -> AsyncIterator[Way]:
        """Give a call a way to hosts, as `[network] allow` names them, with secrets for some of them. It is closed
        at the end, and has heard of all requests then.
        """
        ours, channel = socket.socketpair()
        inside, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inside, ours:
            with channel, entrance:
                await self._pass([channel.fileno(), entrance.fileno()])
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_WORD_BYTES)
            way = Way(inside.fileno(), writer, on_exchange)
            hearing = asyncio.create_task(_hear(reader, way))
            writer.write(
                msgspec.json.encode(Told(tuple(hosts), secrets, self._authority if secrets else None)) + b"\n"
            )
            try:
                yield way
            finally:
                way.close()
                try:
                    is_slow = not await _told_all(hearing, way)
                finally:
                    hearing.cancel()
                    writer.transport.abort()
            if not way.is_over:
                way.hear(Word(Exchange("", "", "failed", SLOW if is_slow else BROKEN)))

    def authorities(self) -> bytes:
        """Return what a command with secrets may trust: the proxy, too. From then on, there is an authority."""
        if self._authority is None:
            self._authority = proxy_tls.new_authority()
            self._authorities = proxy_tls.bundle(self._authority)
        return self._authorities

    async def aclose(self) -> None:
        """End it."""
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._task = None

    async def _pass(self, fds: list[int]) -> None:
        """Pass the files of a call to the proxy, and start one if nothing takes them."""
        if not await self._is_taken(fds):
            self._start()
            await self._is_taken(fds)  # else the call hears at once that its proxy is gone

    async def _is_taken(self, fds: list[int]) -> bool:
        """Return whether the proxy took the files: it lives, and nobody froze it."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while (door := self._door) is not None and self._task is not None and not self._task.done():
            try:
                socket.send_fds(door, [b"+"], fds)
            except OSError as error:
                is_over = error.errno not in _BUSY or loop.time() - began_s > _PATIENCE_S
                if is_over and door is self._door:  # else another call has started a new one
                    return False
                await asyncio.sleep(_BREATH_S)
            else:
                return True
        return False

    def _start(self) -> None:
        if self._door is not None:
            self._door.close()
        self._door, given = socket.socketpair()
        self._door.setblocking(False)
        launch = Launch(
            argv=(sys.executable, "-I", "-S", _CHILD, *folders()),
            cwd="/",
            key=f"proxy-{os.getpid()}-{secrets.token_hex(4)}",
            env={name: os.environ[name] for name in _TRUST if name in os.environ},
            timeout_s=math.inf,
            idle_s=math.inf,
            check=lambda: sys.maxsize,  # it has no effect of its own: what a call does ends with the call
            stdin_fd=given.fileno(),
            kept_bytes=_WORD_BYTES,
        )
        self._task = asyncio.create_task(self._live(launch, given))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _live(self, launch: Launch, given: socket.socket) -> None:
        with given, contextlib.suppress(OSError):  # it cannot be started: every call finds its way closed
            await self._run(launch)


def folders() -> tuple[str, ...]:
    """Return the folders from which the proxy imports."""
    return tuple(dict.fromkeys((ROOT, *libraries())))


def libraries() -> tuple[str, ...]:
    """Return the folders of the libraries that programs of Holdfast's own import."""
    loaded = (msgspec, sys.modules.get("cryptography"))  # the last one for secrets only
    return tuple(str(Path(each.__file__).resolve().parents[1]) for each in loaded if each and each.__file__)


def variables() -> dict[str, str]:
    """Return what tells programs where the proxy is. Nothing goes past it: neither would it get anywhere."""
    address = f"http://127.0.0.1:{PORT}"
    names = [*_VARIABLES, *map(str.lower, _VARIABLES)]
    return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}


def interpreter() -> str:
    """Return the folder that `through` needs to see."""
    return os.path.realpath(sys.base_prefix)


def through(way_fd: int, argv: Sequence[str]) -> tuple[str, ...]:
    """Return what makes the way from inside, and becomes this program."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-c", _WAY, str(way_fd), str(PORT), *argv)


async def _hear(reader: asyncio.StreamReader, way: Way) -> None:
    """Take in what the proxy tells of a call."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError, ValueError):
        async for line in reader:
            way.heard_s = loop.time()
            way.hear(msgspec.json.decode(line, type=Word))


async def _told_all(hearing: asyncio.Task[None], way: Way) -> bool:
    """Wait until the proxy has told all, or is gone. Return whether that came before it was silent for too long."""
    loop = asyncio.get_running_loop()
    way.heard_s = loop.time()
    while not hearing.done() and (left_s := way.heard_s + _PATIENCE_S - loop.time()) > 0:
        await asyncio.wait({hearing}, timeout=left_s)
    return hearing.done()
