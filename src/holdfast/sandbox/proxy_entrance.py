"""What leads from a sandbox into the proxy, as the first program inside sent it out.

A sandbox with a network of its own has a socket that listens there. One without (`landlock`) has a filter of system
calls with a listener, and the kernel asks it about each `connect`. Then the proxy makes a connection to itself, puts
one end in place of the program's socket, and says that it is connected. Whatever address the program asked for, it
talks to the proxy, and the proxy need not read the program's memory, which could change meanwhile.

Format: `struct seccomp_notif`, `seccomp_notif_resp` and `seccomp_notif_addfd` of linux/seccomp.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Protocol

_NOTICE = struct.Struct("=QIIiIQ6Q")
"""Id, thread, flags; number of the call, architecture, place in the program, arguments."""
_ANSWER = struct.Struct("=QqiI")
"""Id, result, negative error, flags."""
_NEW_FILE = struct.Struct("=QIIII")
"""Id, flags, our file, its number inside, its flags there."""
_IN_PLACE = 1
"""SECCOMP_ADDFD_FLAG_SETFD: the file that has the number by now is closed."""
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ADD_FILE = 0x40182103
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ADDFD, the same on all processors that have a filter."""
_PATIENCE_S = 1.0
"""How long a connection to itself may take."""


class Entrance(Protocol):
    """Where the connections of one call come in."""

    def fileno(self) -> int:
        """Return the file that is readable when one comes."""
        ...

    def accept(self) -> socket.socket:
        """Return the next connection.

        Raises:
            OSError: its program is gone already, or there are no more files.
        """
        ...

    def close(self) -> None:
        """Let nothing more in."""
        ...


def entrance(fd: int) -> Entrance:
    """Return what a file is that came from inside."""
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        return _Listener(fd)
    return _Asked(fd)


class _Listener:
    """A socket that listens inside."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno
        self.close = self._socket.close

    def accept(self) -> socket.socket:
        return self._socket.accept()[0]


class _Asked:
    """The listener of a filter, which is asked about each `connect`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def accept(self) -> socket.socket:
        notice = bytearray(_NOTICE.size)
        fcntl.ioctl(self._fd, _RECEIVE, notice)
        number, thread, *_, inside, _, _, _, _, _ = _NOTICE.unpack(notice)
        try:
            ours = self._connect(number, thread, inside)
        except OSError as error:
            self._answer(number, -(error.errno or errno.ECONNREFUSED))
            raise
        self._answer(number, 0)
        return ours

    def close(self) -> None:
        os.close(self._fd)

    def _connect(self, number: int, thread: int, inside: int) -> socket.socket:
        """Put one end of a new connection in place of a socket inside, and return the other end."""
        is_blocking, on_exec = _modes(thread, inside)
        theirs, ours = _pair()
        with theirs:
            theirs.setblocking(is_blocking)
            try:
                added = _NEW_FILE.pack(number, _IN_PLACE, theirs.fileno(), inside, on_exec)
                fcntl.ioctl(self._fd, _ADD_FILE, added)
            except OSError:
                ours.close()
                raise
        return ours

    def _answer(self, number: int, error: int) -> None:
        try:
            fcntl.ioctl(self._fd, _SEND, _ANSWER.pack(number, 0, error, 0))
        except FileNotFoundError:
            pass  # the program was killed meanwhile


def _modes(thread: int, inside: int) -> tuple[bool, int]:
    """Return whether a socket of a program is blocking, and its flag about programs that it becomes.

    Raises:
        OSError: something else has this number, or the program is gone.
    """
    folder = Path(f"/proc/{thread}")
    if not (folder / f"fd/{inside}").is_socket():
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    lines = (folder / f"fdinfo/{inside}").read_text().splitlines()
    told = dict(line.split(":", 1) for line in lines)
    flags = int(told["flags"], 8)
    return not flags & os.O_NONBLOCK, flags & os.O_CLOEXEC


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new connection. Programs expect TCP, so a pair of local sockets would not do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_PATIENCE_S)
        theirs = socket.create_connection(server.getsockname(), _PATIENCE_S)
        while True:
            ours, address = server.accept()
            if address == theirs.getsockname():
                return theirs, ours
            ours.close()  # somebody else on this machine was quicker
