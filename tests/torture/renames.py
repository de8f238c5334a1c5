"""Counts how often each file of a folder is replaced, as the kernel tells it."""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOVED_FROM, _MOVED_TO, _OVERFLOW = 0x40, 0x80, 0x4000
_WATCHED = _MOVED_FROM | _MOVED_TO
"""What loses a name is watched too: the kernel makes one of two events that are the same and follow one another."""
_HEAD = struct.Struct("iIII")


class Renames:
    """What took a name in the folders since they are watched."""

    def __init__(self, root: Path, folders: tuple[str, ...]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        for folder in folders:
            number = libc.inotify_add_watch(self._fd, os.fsencode(root / folder), _WATCHED)
            if number < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {root / folder}")
            self._folders[number] = folder

    def counts(self) -> Counter[str]:
        """The files, named as seen from the root; to be asked once."""
        return Counter(self._events())

    def _events(self) -> Iterator[str]:
        while True:
            try:
                read = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            while read:
                number, mask, _, length = _HEAD.unpack_from(read)
                if mask & _OVERFLOW:
                    raise OverflowError("the kernel dropped some")
                if mask & _MOVED_TO:
                    name = read[_HEAD.size : _HEAD.size + length].rstrip(b"\0").decode()
                    yield str(Path(self._folders[number]) / name)
                read = read[_HEAD.size + length :]

    def close(self) -> None:
        """Watch no more."""
        os.close(self._fd)


@contextmanager
def renames_in(root: Path, *folders: str) -> Iterator[Renames]:
    """Watch folders below the root."""
    watch = Renames(root, folders)
    try:
        yield watch
    finally:
        watch.close()
