"""Runs a command as a process tree that ends with its call, whatever the call comes to.

The tree is a session of its own with a clean environment. It is ended at its timeout, at its idle timeout,
when it floods, when the call is cancelled, when its first process has exited, and, by the keeper, when this
process dies. What a command may reach is the user's own rights: `[sandbox] mode = "unsafe"`. How a result
reads for a model belongs to `tools`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Literal

import msgspec

from holdfast.sandbox import keeper

KEPT_BYTES = 2 << 20
"""Of an output, this much of its beginning and of its end stays in memory; the middle is counted."""
FLOOD_BYTES = 64 << 20
"""After so much output the tree is ended: nobody will read it, and it costs everyone the processor."""

_CLEAN_NAMES = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL")
_CHUNK_BYTES = 1 << 16


class Launch(msgspec.Struct, frozen=True):
    """What is to be run."""

    argv: tuple[str, ...]
    cwd: str
    key: str
    """The call's key; every process of the tree carries it."""
    env: Mapping[str, str]
    timeout_s: float
    idle_s: float
    """The longest silence of the output."""
    stdin_fd: int = subprocess.DEVNULL
    pass_fds: tuple[int, ...] = ()


class Ended(msgspec.Struct, frozen=True):
    """What came of it."""

    how: Literal["exited", "timeout", "idle", "flood"]
    exit_code: int
    """Of the first process; negative: the number of the signal that ended it."""
    output: str
    """stdout and stderr as they came; with a line that tells so when the middle was dropped."""
    output_bytes: int
    """The length of all output, dropped bytes included."""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command may see: none that could be a provider's key."""
    return {name: value for name, value in environ.items() if name in _CLEAN_NAMES or name.startswith("LC_")}


class Processes:
    """The process trees of one runtime, and the keeper that outlives it by a moment."""

    def __init__(self) -> None:
        self._keeper: subprocess.Popen[bytes] | None = None
        self._watched: set[str] = set()

    async def run(self, launch: Launch, on_output: Callable[[str], None]) -> Ended:
        """Run the command to its end; nothing of its tree is left when this returns or raises.

        Raises:
            OSError: it could not be started (no such program, no such folder, no more processes).
            asyncio.CancelledError: the call was cancelled; the tree is gone within a second.
        """
        output = _Output(on_output)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        process: asyncio.subprocess.Process | None = None
        self._watch(launch.key)
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *launch.argv,
                    cwd=launch.cwd,
                    env={**launch.env, keeper.VARIABLE: launch.key},
                    stdin=launch.stdin_fd,
                    stdout=writing,
                    stderr=writing,
                    start_new_session=True,
                    pass_fds=launch.pass_fds,
                )
            finally:
                os.close(writing)
            self._tell("=", launch.key, str(process.pid))
            how = await _until_end(process, launch, reading, output)
        finally:
            try:
                await _uninterrupted(_end_tree(launch.key, process))
            finally:
                output.drain(reading)
                os.close(reading)
                self._unwatch(launch.key)
        return Ended(how, await process.wait(), output.text(), output.size_bytes)

    async def end(self, keys: Collection[str]) -> None:
        """End every process that carries one of the call keys in its environment, whoever started it."""
        if keys:
            await asyncio.to_thread(keeper.end_trees, frozenset(keys))

    async def aclose(self) -> None:
        """End what still runs, then the keeper."""
        await self.end(tuple(self._watched))
        if self._keeper is not None:
            await asyncio.to_thread(_dismiss, self._keeper)
            self._keeper = None

    def _watch(self, key: str) -> None:
        self._watched.add(key)
        if self._keeper is not None and self._keeper.poll() is not None:
            _dismiss(self._keeper)  # somebody killed it
            self._keeper = None
        if self._keeper is None:
            self._keeper = _start_keeper()
            for open_key in self._watched:
                self._tell("+", open_key)
        else:
            self._tell("+", key)

    def _unwatch(self, key: str) -> None:
        self._watched.discard(key)
        self._tell("-", key)

    def _tell(self, *message: str) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            # A keeper that somebody killed is replaced at the next start.
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._keeper.stdin.write(json.dumps(message).encode() + b"\n")


def _start_keeper() -> subprocess.Popen[bytes]:
    """A keeper in a session of its own, deaf to all but SIGKILL: it ends when its work is done."""
    # Blocked from its birth: between its start and its first line it could not ignore them yet.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**clean_environment(os.environ), keeper.MARK: "1"},
            start_new_session=True,
            bufsize=0,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dismiss(old: subprocess.Popen[bytes]) -> None:
    """Let a keeper end, which it does when its pipe does, and reap it."""
    if old.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            old.stdin.close()
    old.wait()


async def _until_end(
    process: asyncio.subprocess.Process, launch: Launch, reading: int, output: _Output
) -> Literal["exited", "timeout", "idle", "flood"]:
    """Wait for the first process, reading along; says which limit was met first, if any."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + launch.timeout_s
    limit = asyncio.timeout_at(min(deadline, loop.time() + launch.idle_s))

    def hear() -> None:
        if not output.read(reading):
            loop.remove_reader(reading)
        elif not limit.expired():
            is_flood = output.size_bytes > FLOOD_BYTES
            limit.reschedule(loop.time() if is_flood else min(deadline, loop.time() + launch.idle_s))

    try:
        async with limit:
            loop.add_reader(reading, hear)
            await process.wait()
        return "exited"
    except TimeoutError:
        if output.size_bytes > FLOOD_BYTES:
            return "flood"
        return "timeout" if loop.time() >= deadline else "idle"
    finally:
        loop.remove_reader(reading)


async def _end_tree(key: str, process: asyncio.subprocess.Process | None) -> None:
    await asyncio.to_thread(keeper.end_trees, (key,), (process.pid,) if process else ())
    if process:
        await process.wait()


async def _uninterrupted(work: Coroutine[object, object, None]) -> None:
    """Do the work to its end; a cancellation that comes meanwhile is raised after it."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


class _Output:
    """The bytes of an output: the first and the last of them, and how many there were."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self.size_bytes = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, fd: int) -> bool:
        """Take what is there; False when the output has ended."""
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if chunk:
            self._add(chunk)
        return bool(chunk)

    def drain(self, fd: int) -> None:
        """Take what the pipe still holds, without waiting for a process that nobody could end."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(fd, _CHUNK_BYTES):
                self._add(chunk)
                if self.size_bytes > FLOOD_BYTES + KEPT_BYTES:
                    return

    def text(self) -> str:
        tail = b"".join(self._tail)
        dropped = self.size_bytes - len(self._head) - len(tail)
        head_text, tail_text = self._head.decode(errors="replace"), tail.decode(errors="replace")
        if not dropped:
            return (bytes(self._head) + tail).decode(errors="replace")
        return f"{head_text}\n[... {dropped} bytes of output were not kept ...]\n{tail_text}"

    def _add(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if text := self._decoder.decode(chunk):
            self._on_output(text)
        room = KEPT_BYTES - len(self._head)
        self._head += chunk[:room]
        if rest := chunk[room:]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= KEPT_BYTES:
                self._tail_bytes -= len(self._tail.popleft())
