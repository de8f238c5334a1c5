"""Locks of open files and folders. They end with their process, so nobody waits for one that was killed."""

from __future__ import annotations

import fcntl
import os
from typing import Literal

Lock = Literal["ours", "theirs", "none"]


def try_lock(fd: int) -> Lock:
    """Lock a file until it is closed, and return whose its lock is. `none`: its file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "theirs"
    except OSError:
        return "none"
    return "ours"


def is_named(fd: int, path: str | os.PathLike[str], folder: int | None = None) -> bool:
    """Return whether a path, seen from a folder, still leads to an open file. Another process may have removed it
    before it was locked.
    """
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False
