"""What is mounted in a sandbox, and whether it is where it belongs; how what is mounted is opened.

A guard uses it. It uses little of the standard library, so that a keeper starts in milliseconds.
"""

# Pathlib would double the time that a keeper takes to start.

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from stat import S_ISLNK
from typing import Any

from holdfast.sandbox import waiting

LOOK_S = 0.05
"""How often is looked what somebody has renamed, and how many processes there are."""
_SETTLE_S = 0.005
"""How long a sandbox needs at most, usually, from its gate to the beginning of its program."""
_BLANK_MODE = 0o100444
"""A file, to be read by all."""


class Mounts:
    """What must stay mounted in a sandbox while its program runs.

    A program outside that renames a file over another one takes away what is mounted on it inside. The kernel wakes
    those who poll the list of mounts. If a place itself is renamed, nobody is woken: so it is read at times, too.
    """

    def __init__(self, pid: int, held: dict[str, Any]) -> None:
        root = held["root"]
        self._process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._begun = os.fsencode(held["folder"].removeprefix(root))
        self._needed = {
            name.removeprefix(root): (must_be, base.removeprefix(root))
            for name, (must_be, base) in held["mounts"].items()
        }
        self._paths = dict(zip(self._needed, held["paths"], strict=True))
        self._due_s = time.monotonic() + _SETTLE_S
        self.fd = -1
        """What becomes ready when mounts change; -1 before the program has begun."""

    def wait_s(self) -> float:
        """Return when to look next."""
        return LOOK_S if self.fd >= 0 else max(0.001, self._due_s - time.monotonic())

    def lost(self, *, is_last: bool = False) -> str:
        """Return a place where somebody has put something else; empty if all is kept, or nothing can be told."""
        now_s = time.monotonic()
        has_changed = self.fd >= 0 and bool(waiting.ready([], 0, [self.fd]))
        found = ""
        if now_s < self._due_s and not has_changed and not is_last:
            return found
        with contextlib.suppress(OSError):  # it has ended
            gone = (self._paths[name] for name in misplaced(self._lines(), self._needed))
            found = next(filter(_is_there, gone), "")
        self._due_s = time.monotonic() + max(_SETTLE_S, 50 * (time.monotonic() - now_s))
        return found

    def _lines(self) -> list[bytes]:
        """Return the list of the mounts; an OSError says that the program has not begun, or has ended."""
        # The paths are those of its process at the moment when the list was opened.
        fd = (
            self.fd
            if self.fd >= 0
            else os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._process)
        )
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb", closefd=False) as mounted:
            lines = mounted.readlines()
        if self.fd < 0 and not any(line.split(b" ", 5)[4] == self._begun for line in lines):
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.fd = fd
        return lines


def _is_there(path: str) -> bool:
    """Return whether there is something. What is just being removed has lost its mounts, and can still be found for a
    moment; it has no name any more.
    """
    with contextlib.suppress(OSError):
        return os.lstat(path).st_nlink > 0
    return False


def are_in_place(mounted: Iterable[bytes], mounts: dict[str, tuple[bool, str]]) -> bool:
    """Return whether the kernel's list has a mount at each place, upon the right one, and read-only where it must."""
    return not any(misplaced(mounted, mounts))


def misplaced(mounted: Iterable[bytes], mounts: dict[str, tuple[bool, str]]) -> Iterator[str]:
    """Yield the places where it does not."""
    found = {b"": (b"", b"", False)}
    for line in mounted:
        number, upon, _, _, place, options, _ = line.split(b" ", 6)
        covered = found.get(place)
        if covered and covered[0] == upon:
            upon = covered[1]
        found[place] = number, upon, options.startswith(b"ro")
    for name, (must_be_read_only, base) in mounts.items():
        _, upon, is_read_only = found.get(os.fsencode(name), found[b""])
        is_right = not base or upon == found.get(os.fsencode(base), found[b""])[0]
        if not upon or not is_right or is_read_only < must_be_read_only:
            yield name


def opened(path: str) -> int:
    """Return a descriptor of what lies at an absolute path, to mount it.

    A program of an earlier command may swap a folder for a link at any moment. Mounted by its path, the link would
    show what it leads to.

    Raises:
        OSError: it is gone, or a part of the path is a link.
    """
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for name in path.split("/")[1:]:
            above, fd = fd, os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(above)
        if S_ISLNK(os.fstat(fd).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    except OSError:
        os.close(fd)
        raise
    return fd


def is_blank(path: str) -> bool:
    """Return whether there is such a file as `bwrap` makes to mount something on it."""
    with contextlib.suppress(OSError):
        return _is_blank(os.lstat(path))
    return False


def remove_blank(path: str) -> None:
    """Remove a file if it is such a one. No link on the way is followed: a command may have put one there."""
    above, _, name = path.rpartition("/")
    with contextlib.suppress(OSError):
        folder = opened(above)
        try:
            if _is_blank(os.lstat(name, dir_fd=folder)):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)


def _is_blank(found: os.stat_result) -> bool:
    return found.st_mode == _BLANK_MODE and not found.st_size
