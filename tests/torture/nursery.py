"""Starts the command many times at the price of one: a process that has loaded it forks itself.

    python -m tests.torture.nursery FD     FD: a socket from whoever asks for processes

What is started is a process of its own like any other, that can be killed, stopped and looked at. Only what comes
before its first line, the loading of Python's modules, was done once for all.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import holdfast
from tests.edge.machine import CUSTOMIZED, Machine

REPOSITORY = Path(__file__).resolve().parent.parent.parent
_LOADED = ("LEASE_MS",)
"""What of the environment is read when modules are loaded."""


class Child:
    """A started process, as `subprocess.Popen` has it."""

    def __init__(self, stdout: int, status: socket.socket) -> None:
        self._status = status.makefile("r")
        status.close()
        self.stdout: IO[str] = os.fdopen(stdout, "r", errors="replace")
        self.pid = int(self._status.readline())
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, or None."""
        if self._waiting.acquire(blocking=False):  # else another thread waits, and knows first
            try:
                if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                    self.returncode = int(self._status.readline())
            finally:
                self._waiting.release()
        return self.returncode

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        with self._waiting:
            if self.returncode is None:
                self.returncode = int(self._status.readline())
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.wait()
        self.stdout.close()
        self._status.close()


def start(machine: Machine, words: Sequence[str], environ: Mapping[str, str]) -> Child:
    """As `Machine.start`."""
    _, options = machine.launch(words, environ)
    request = {"words": list(words), "cwd": str(options["cwd"]), "environ": options["env"]}
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    said = os.open(machine.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    door = _door(tuple(options["env"].get(name, "") for name in _LOADED))
    body = json.dumps(request).encode()
    socket.send_fds(door, [body], [writing, said, theirs.fileno()])
    for fd in (writing, said):
        os.close(fd)
    theirs.close()
    return Child(reading, ours)


@cache
def _door(loaded: tuple[str, ...]) -> socket.socket:
    """The socket of a nursery whose modules were loaded with these values; it goes when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    chosen = {name: value for name, value in zip(_LOADED, loaded, strict=True) if value}
    environ = {name: value for name, value in os.environ.items() if name not in _LOADED}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.torture.nursery", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=REPOSITORY,
        env={**environ, **chosen, "PYTHONPATH": str(CUSTOMIZED)},
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    atexit.register(_close, ours, process)
    return ours


def _close(door: socket.socket, process: subprocess.Popen[bytes]) -> None:
    door.close()
    process.wait()


# --- the process that forks ---------------------------------------------------------------------


def main() -> None:
    """Fork what is asked for, and say how each ended, until nobody asks any more."""
    for name in ("aiohttp", "genai_prices", "jsonschema_rs", *modules()):
        import_module(name)
    gc.collect()
    gc.freeze()
    door = socket.socket(fileno=int(sys.argv[1]))
    waking, woken = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    tellers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([door, waking], [], [])
        if waking in ready:
            with suppress(BlockingIOError):
                os.read(waking, 4096)
            while tellers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with tellers.pop(ended[0]) as teller, suppress(OSError):
                    teller.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
        if door in ready:
            body, fds, _, _ = socket.recv_fds(door, 1 << 20, 3)
            if not body:
                return
            teller = socket.socket(fileno=fds[2])
            pid = os.fork()
            if not pid:
                become(json.loads(body), *fds[:2])
                return
            tellers[pid] = teller
            teller.sendall(b"%d\n" % pid)
            for fd in fds[:2]:
                os.close(fd)


def modules() -> Iterator[str]:
    """All modules of Holdfast but those that are run as programs, and what is for tests."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not found.name.endswith(("__main__", "_child")) and not found.name.startswith("holdfast.testing"):
            yield found.name


def become(request: dict[str, object], out: int, said: int) -> None:
    """Go on as the command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(said, 2)
    os.closerange(3, 512)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    words, environ = request["words"], request["environ"]
    assert isinstance(words, list)
    assert isinstance(environ, dict)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["holdfast", *words]
    runpy.run_path(str(CUSTOMIZED / "sitecustomize.py"))
    runpy.run_module("holdfast", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main()
