"""Tells cheaply whether files or folders have changed since they were looked at: the kernel notes it (inotify).

What it cannot tell, a caller must ask for: what another machine changes in a network's file system, and what is
mounted over a folder.
"""

# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Attributes, written to, moved out, moved in, created, removed, removed itself, moved itself (`inotify(7)`)."""
_SHARE = 16
"""All programs of a user watch with one number of places. We take no more than this part of it."""
_READ_BYTES = 1 << 16


class Watched:
    """Some files and folders."""

    def __init__(self) -> None:
        self._fd = _libc().inotify_init1(_FLAGS) if hasattr(_libc(), "inotify_init1") else -1
        self._owner = os.getpid()
        self._left = _most()

    def add(self, path: str) -> bool:
        """Watch a file or folder, and what a folder has as entries, from now on. Return False if that is impossible.

        A link is followed.
        """
        if self._fd < 0 or not self._left:
            return False
        self._left -= 1
        return bool(_libc().inotify_add_watch(self._fd, os.fsencode(path), _EVENTS) >= 0)

    def have_changed(self) -> bool:
        """Return whether any of them has changed. Later calls may return False again."""
        if self._fd < 0:
            return False
        if self._owner != os.getpid():
            return True  # after a fork, two processes would read the notes of one
        with suppress(BlockingIOError):
            return bool(os.read(self._fd, _READ_BYTES))
        return False

    def close(self) -> None:
        """Watch no longer."""
        # After a fork, all files may have been closed, and another one may have the number.
        if self._fd >= 0 and self._owner == os.getpid():
            os.close(self._fd)
        self._fd = -1


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _most() -> int:
    """Return how many places may be watched."""
    with suppress(OSError, ValueError), open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
        return int(file.read(32)) // _SHARE
    return 0
