"""Wakes other processes: a unix datagram names a session. If one is lost, the slow poll finds the change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import clearing_up

_ADDRESS_BYTES = 104
"""The longest socket address that every system accepts."""


class Doorbell:
    """The socket of this process, from `open` to `close`."""

    def __init__(self, on_ring: Callable[[str], None]) -> None:
        self._on_ring = on_ring
        self._socket: socket.socket | None = None
        self.path = ""

    def open(self, folder: Path, name: str) -> None:
        """Listen in the folder. Without permission or unix sockets there is no doorbell, and polling must do."""
        path = folder / f"{name}.sock"
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.setblocking(False)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(folder)
            with _addressed(path) as address:
                bell.bind(address)
            path.chmod(0o600)
        except OSError:
            bell.close()
            return
        self._socket, self.path = bell, str(path)
        asyncio.get_running_loop().add_reader(bell.fileno(), self._read)

    def _read(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError):
            while True:
                self._on_ring(self._socket.recv(64).decode("ascii", "replace"))

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            with clearing_up("The socket of the doorbell"):
                Path(self.path).unlink(missing_ok=True)


def ring(path: str, session: str) -> None:
    """Tell the process behind the doorbell to read the session's inbox."""
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.setblocking(False)
        with contextlib.suppress(OSError), _addressed(Path(path)) as address:
            bell.sendto(session.encode(), address)


@contextlib.contextmanager
def _addressed(path: Path) -> Iterator[str]:
    """Return the path as a socket address. A path that is too long goes through its open folder."""
    if len(os.fsencode(path)) < _ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _sweep(folder: Path) -> None:
    """Remove the sockets of processes that are gone: their names begin with the pid."""
    for path in folder.glob("*.sock"):
        pid = path.name.partition("-")[0]
        with contextlib.suppress(ProcessLookupError, ValueError, PermissionError):
            os.kill(int(pid), 0)
            continue
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
