"""Runs a command as a process tree that ends with its call, whatever happens.

The tree is its own session with a clean environment. Its guard (see `guard`) ends it at its timeout, at its idle
timeout, when it prints too much, when the call is cancelled, when its first process has exited, and when this
process dies. What a command can do is up to its fence and the sandbox that keeps it: without one it can do what the
user can do. `tools` turns a result into text for the model.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from holdfast.errors import Lapsed, SandboxUnavailable
from holdfast.protocol.counts import counted
from holdfast.protocol.fence import FLOOD_BYTES, NO_INPUT, WITH_OUTPUT, Launch, Sandbox, Undone
from holdfast.protocol.traffic import NO_REQUESTS, Requests
from holdfast.redact import Redactor, border_of, ever_known, reach_bytes_of, split_bytes_at
from holdfast.sandbox import own_folder, trees
from holdfast.sandbox.installed import ROOT
from holdfast.sandbox.proxy import Proxy, Way

_NO_SANDBOX = "This session runs its commands in a sandbox, and this process has none."
_NO_FENCE = "Nothing was run: this process runs its programs in a sandbox, and this one has no fence."
_NO_SANDBOX_HINT = "Set [sandbox] mode as it was when the session began, and run `holdfast doctor`."
_CHANGED = (
    "The command did not run: the workspace changed while its sandbox was made. It can be called again."
)
_UNMADE = "The command did not run: its sandbox could not be made ({why})."
_LAST_WORDS = frozenset({"used", "late", "failed", "unmade"})
"""What a guard says when nothing of its tree is there."""
_CLEAN_NAMES = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL")
_KEEPER = str(Path(__file__).with_name("keeper_child.py"))
_CHUNK_BYTES = 1 << 16
_PATIENCE_S = 2.0
"""Longer than a guard needs to end its tree. After this, something is wrong with the guard."""
_HOPE_S = 30.0
"""How long it is tried to end a tree."""


How = Literal["exited", "timeout", "idle", "flood", "processes", "memory", "replaced", "left"]


class Ended(msgspec.Struct, frozen=True):
    """The outcome."""

    how: How
    exit_code: int
    """The exit code of the first process. A negative number is the signal that ended it."""
    output: str
    """stdout and stderr in order of arrival, with a line that says so if the middle was dropped. Where it was cut, no
    part of a secret is left."""
    output_bytes: int
    """The length of the whole output, with dropped bytes."""
    put_right: Undone = Undone()
    """What was undone afterwards."""
    requests: Requests = NO_REQUESTS
    """What it asked of the network through the proxy."""
    replaced: str = ""
    """The protected or secret file that somebody outside replaced, so that the sandbox no longer kept it."""
    cpu_s: float = 0.0
    """The processor time of all its processes together."""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command may see: none that could contain a provider's key."""
    return {name: value for name, value in environ.items() if name in _CLEAN_NAMES or name.startswith("LC_")}


class Processes:
    """The process trees of one runtime, and their keeper, which lives slightly longer.

    Args:
        sandbox: Keeps everything inside its fence; None: nothing has a fence.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self._keeper: _Keeper | None = None
        self._open: set[socket.socket] = set()
        self._ways: dict[str, Way] = {}
        """The ways out of the calls that run, by their keys."""
        self._cut: set[str] = set()
        """The keys of those whose network was cut."""
        self._proxy = Proxy(lambda launch: self._run(launch, lambda _: None))

    def confine(self, sandbox: Sandbox) -> None:
        """Let nothing begin without a fence from now on."""
        self._sandbox = sandbox

    @property
    def is_fenced(self) -> bool:
        """Whether each launch needs a fence."""
        return self._sandbox is not None

    async def run(
        self, launch: Launch, on_output: Callable[[str], None], redact: Redactor | None = None
    ) -> Ended:
        """Run the command to its end. Nothing of its tree is left when this returns or raises.

        If that cannot be, as with a process that waits for a dead disk, it counts as running: the outcome is `left`,
        and nothing is undone.

        Args:
            launch: What to run.
            on_output: Hears the output as it comes.
            redact: Finds the secrets at which the output must not be cut; None: one that knows all that any redactor
                of this process has known.

        Raises:
            OSError: it could not be started (no such program, no such folder, no more processes).
            Lapsed: the launch's check failed, and nothing was started.
            SandboxUnavailable: it has a fence and nothing here keeps it inside, or it has none and there is a
                sandbox, or what it would be shown is gone.
            asyncio.CancelledError: the call was cancelled. The tree is gone within a second.
        """
        fence = launch.fence
        if fence is None and self._sandbox is not None:
            raise SandboxUnavailable(_NO_FENCE)
        if fence is None:
            return await self._run(launch, on_output, redact)
        if self._sandbox is None:
            raise SandboxUnavailable(_NO_SANDBOX, hint=_NO_SANDBOX_HINT)
        if fence.network == "none":
            return await self._run(self._sandbox.launch(launch, fence), on_output, redact)
        if launch.secrets:
            launch = replace(launch, authorities=self._proxy.authorities())
        try:
            async with self._proxy.way(fence.hosts, launch.on_exchange, launch.secrets) as way:
                self._ways[launch.key] = way
                if launch.key in self._cut:
                    way.close()
                leading = replace(launch, pass_fds=(*launch.pass_fds, way.fd), way_fd=way.fd)
                ended = await self._run(self._sandbox.launch(leading, fence), on_output, redact)
        finally:
            self._ways.pop(launch.key, None)
            self._cut.discard(launch.key)
        return replace(ended, requests=way.requests())

    def cut(self, key: str) -> None:
        """Cut off the network of a call that has a way out, also if that is only about to be made. What it waits for
        there fails.
        """
        self._cut.add(key)
        if key in self._ways:
            self._ways[key].close()

    async def _run(
        self, launch: Launch, on_output: Callable[[str], None], redact: Redactor | None = None
    ) -> Ended:
        """Run a command as a sandbox leaves it."""
        output = _Output(on_output, launch.kept_bytes)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        control, given = socket.socketpair()
        self._open.add(control)
        tree: _Tree | None = None
        undone, is_left = Undone(), False

        async def wind_up() -> None:
            nonlocal undone, is_left
            if tree is not None and not await tree.end():
                is_left = True
                return
            try:
                if launch.put_right is not None:
                    undone = await asyncio.to_thread(launch.put_right)
            finally:
                if launch.own_folder:
                    await asyncio.to_thread(own_folder.remove, launch.own_folder)

        try:
            try:
                self._hand_over(launch, given, writing)
            finally:
                os.close(writing)
                given.close()
            tree = await _Tree.of(launch, control)
            how = await _until_end(tree, launch, reading, output)
        finally:
            try:
                await _uninterrupted(wind_up())
            finally:
                output.drain(reading)
                os.close(reading)
                control.close()
                self._open.discard(control)
        return Ended(
            "left" if is_left else how,
            tree.exit_code,
            await asyncio.to_thread(output.cut, redact) if output.is_long else output.text(),
            output.size_bytes,
            undone,
            replaced=tree.replaced,
            cpu_s=tree.cpu_s,
        )

    async def end(self, keys: Collection[str]) -> None:
        """End every process of the calls with these keys, no matter which driver started it."""
        if keys:
            await asyncio.to_thread(trees.end_trees, frozenset(keys))
            await asyncio.to_thread(own_folder.remove_left, keys)

    async def aclose(self) -> None:
        """End what still runs, then the keeper."""
        for control in self._open:
            with contextlib.suppress(OSError):  # it has ended
                control.shutdown(socket.SHUT_WR)
        await self._proxy.aclose()
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.dismiss)
            self._keeper = None

    def _hand_over(self, launch: Launch, given: socket.socket, writing: int) -> None:
        if self._keeper is not None and self._keeper.process.poll() is not None:
            self._keeper.dismiss()  # somebody killed it
            self._keeper = None
        if self._keeper is None:
            self._keeper = _start_keeper()
        stdin = () if launch.stdin_fd == NO_INPUT else (launch.stdin_fd,)
        stderr = () if launch.stderr_fd == WITH_OUTPUT else (launch.stderr_fd,)
        fds = [given.fileno(), writing, *stdin, *stderr, *launch.pass_fds]
        socket.send_fds(self._keeper.door, [b"+"], fds)


class _Keeper(NamedTuple):
    """A keeper, and the socket that passes calls to it."""

    process: subprocess.Popen[bytes]
    door: socket.socket

    def dismiss(self) -> None:
        """Close its socket, so that it ends after its guards, and reap it."""
        self.door.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # somebody froze it; its guards do not need it
            self.process.wait()


def _start_keeper() -> _Keeper:
    """Start a keeper in its own session."""
    door, given = socket.socketpair()
    door.setblocking(False)
    # Blocked from its birth: it could not block them itself before its first line.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _KEEPER, ROOT, str(os.getpid())],
            stdin=given.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=clean_environment(os.environ),
            start_new_session=True,
        )
    except BaseException:
        door.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        given.close()
    return _Keeper(process, door)


class _Tree:
    """A running call, as its guard reports it."""

    def __init__(self, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._key = key
        self._writer = writer
        self._word = ""
        self._is_over = False
        """Whether the guard has said that the tree is gone."""
        self._number = -signal.SIGKILL
        self.replaced = ""
        """See `Ended.replaced`."""
        self.cpu_s = 0.0
        """See `Ended.cpu_s`."""
        self._has_spoken = asyncio.Event()
        self._gone = asyncio.create_task(self._listen(reader))

    @staticmethod
    async def of(launch: Launch, control: socket.socket) -> _Tree:
        """Tell the guard at the other end of the socket what to run.

        Raises:
            Lapsed: the launch's check failed, and the guard was not told.
        """
        reader, writer = await asyncio.open_unix_connection(sock=control)
        try:
            until_ms = launch.check()  # nothing waits from here on: what the check began, the tree ends
        except BaseException:
            writer.transport.abort()
            raise
        request = {
            "until_ms": until_ms,
            "name": trees.guard_name(launch.key),
            "argv": launch.argv,
            "cwd": launch.cwd,
            "env": {**launch.env, trees.VARIABLE: launch.key},
            "has_stdin": launch.stdin_fd != NO_INPUT,
            "has_stderr": launch.stderr_fd != WITH_OUTPUT,
            "pass_fds": launch.pass_fds,
            "given": {number: content.hex() for number, content in launch.given.items()},
            "opened": dict(launch.opened),
            "limits": dict(launch.limits),
            "held": to_builtins(launch.held),
            "rights": to_builtins(launch.rights),
            "covered": launch.covered,
            "processes": launch.processes,
            "memory": launch.memory_bytes,
        }
        writer.write(json.dumps(request).encode() + b"\n")
        return _Tree(launch.key, reader, writer)

    @property
    def exit_code(self) -> int:
        """The exit code of the first process. If its guard was killed before it could report, it counts as killed."""
        return self._number

    async def exited(self) -> Literal["exited", "processes", "memory", "replaced"]:
        """Wait until the first process has exited, or nobody is left to report it, or its guard ended it.

        Raises:
            OSError: it could not be started.
            Lapsed: it was too late to start it.
            SandboxUnavailable: something that it would be shown is gone.
        """
        await self._has_spoken.wait()
        if self._word == "late":
            raise Lapsed("The lease lapsed before the program could be started.")
        if self._word in ("failed", "unmade") and self._number == errno.ESTALE:
            raise SandboxUnavailable(_CHANGED)
        if self._word == "unmade":
            raise SandboxUnavailable(_UNMADE.format(why=os.strerror(self._number)))
        if self._word == "failed":
            raise OSError(self._number, os.strerror(self._number))
        match self._word:
            case "replaced" | "processes" | "memory" as how:
                return how
        return "exited"

    async def end(self) -> bool:
        """End what is left of the tree. Return whether it is gone."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _HOPE_S
        await asyncio.wait((self._gone,), timeout=_PATIENCE_S)
        is_gone = self._has_ended
        while not is_gone and loop.time() < until_s:
            # The guard was killed or frozen, or the machine is very busy.
            is_gone = await asyncio.to_thread(trees.end_trees, (self._key,))
            await asyncio.wait((self._gone,), timeout=_PATIENCE_S)
            is_gone = is_gone or self._has_ended
        self._gone.cancel()
        self._writer.transport.abort()
        return is_gone

    @property
    def _has_ended(self) -> bool:
        # A frozen keeper may still hold the socket.
        return self._gone.done() or self._is_over

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Wait until the tree is gone, which closes the socket."""
        try:
            async for line in reader:
                word, said = json.loads(line)
                self._is_over = word in _LAST_WORDS
                if word == "used":
                    self.cpu_s = said / 1_000
                    continue
                self._word = word
                if word == "replaced":
                    self.replaced = said
                else:
                    self._number = said
                self._has_spoken.set()
        except ConnectionError:
            return
        finally:
            self._has_spoken.set()


async def _until_end(tree: _Tree, launch: Launch, reading: int, output: _Output) -> How:
    """Wait for the first process and read its output. Return which limit was reached first, if any."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + launch.timeout_s
    limit = asyncio.timeout_at(min(deadline, loop.time() + launch.idle_s))

    def hear() -> None:
        if not output.read(reading):
            loop.remove_reader(reading)
        elif not limit.expired():
            is_flood = output.size_bytes > launch.flood_bytes
            limit.reschedule(loop.time() if is_flood else min(deadline, loop.time() + launch.idle_s))

    try:
        async with limit:
            loop.add_reader(reading, hear)
            return await tree.exited()
    except TimeoutError:
        if output.size_bytes > launch.flood_bytes:
            return "flood"
        return "timeout" if loop.time() >= deadline else "idle"
    finally:
        loop.remove_reader(reading)


async def _uninterrupted(work: Coroutine[object, object, None]) -> None:
    """Finish the work. Raise a cancellation that comes meanwhile after it; there may be several."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


class _Output:
    """The first and the last bytes of an output, and how many there were."""

    def __init__(self, on_output: Callable[[str], None], kept_bytes: int) -> None:
        self.size_bytes = 0
        self._kept_bytes = kept_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, fd: int) -> bool:
        """Read what is there. Return False if the output has ended."""
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if chunk:
            self._add(chunk)
        return bool(chunk)

    def drain(self, fd: int) -> None:
        """Read what the pipe still has, without waiting for a process that could not be ended."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(fd, _CHUNK_BYTES):
                self._add(chunk)
                if self.size_bytes > FLOOD_BYTES + self._kept_bytes:
                    return

    @property
    def is_long(self) -> bool:
        """Whether the middle was dropped."""
        return self.size_bytes > len(self._head) + self._tail_bytes

    def text(self) -> str:
        """Return the whole output, if its middle was not dropped."""
        return b"".join((self._head, *self._tail)).decode(errors="replace")

    def cut(self, redact: Redactor | None) -> str:
        """Return the beginning and the end of a long output. A little more is kept of both than is returned: it shows
        whether a secret lies where they are cut.
        """
        redact = ever_known() if redact is None else redact
        more = reach_bytes_of(redact)
        head, tail = bytes(self._head), b"".join(self._tail)
        ends, begins = border_of(head, len(head) - more), border_of(tail, more)
        first, _ = split_bytes_at(redact, head, ends)
        _, last = split_bytes_at(redact, tail, begins)
        dropped = self.size_bytes - ends - (len(tail) - begins)
        return f"{first}\n[... {counted(dropped, 'byte')} of output not kept ...]\n{last}"

    def _add(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if text := self._decoder.decode(chunk):
            self._on_output(text)
        room = self._kept_bytes - len(self._head)
        self._head += chunk[:room]
        if rest := chunk[room:]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._kept_bytes:
                self._tail_bytes -= len(self._tail.popleft())
