"""Lets the commands of a home take turns: while one looks at what is there, no other one is put right.

Commands of several processes may run in one workspace. The folder of their traces is their lock, and the workspace
itself tells the commands of another home, which have their traces elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

from holdfast.clock import SYSTEM_CLOCK
from holdfast.locks import try_lock

_PATIENCE_MS = 10_000
"""Nobody waits longer for another process, which may be frozen."""
_POLL_S = 0.002
_TRIES = 100
"""How often a folder is tried, which another process locks for a moment to see whether anybody has it."""


class Table:
    """The commands of a home that run in this process."""

    def __init__(self, folder: Path | None) -> None:
        self.running: dict[str, Any] = {}
        """Their traces by name. Also those that have ended and could not be put right."""
        self._folder = folder
        self._turn = RLock()
        self._here: dict[str, list[int]] = {}
        """The folders in which they run, each open as often."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """No command is put right meanwhile, so its trace is still there afterwards."""
        with self._turn, _locked(self._folder, fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No command is put right meanwhile, and nobody looks."""
        with self._turn, _locked(self._folder, fcntl.LOCK_EX):
            yield

    def enter(self, folder: str) -> None:
        """A command begins in a folder: the processes of other homes can see that."""
        with suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._here.setdefault(folder, []).append(fd)
            for _ in range(_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    break

    def leave(self, folder: str) -> None:
        """A command has ended there."""
        if fds := self._here.get(folder):
            os.close(fds.pop())


def table_of(folder: Path | None) -> Table:
    """Return the table of all in this process that have the same home, or none."""
    place = os.path.realpath(folder) if folder is not None else ""
    return _tables().setdefault(place, Table(folder))


@cache
def _tables() -> WeakValueDictionary[str, Table]:
    return WeakValueDictionary()


def has_others(folder: str) -> bool:
    """Return whether commands run in a folder, of any process."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return try_lock(fd) == "theirs"
    finally:
        os.close(fd)


@contextmanager
def _locked(folder: Path | None, how: int) -> Iterator[None]:
    """Lock a folder, unless that is not possible. It is made if it is not there."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # then no trace can be stored, and no command begins
        yield
        return
    try:
        until_ms = SYSTEM_CLOCK.uptime_ms() + _PATIENCE_MS
        while not _is_got(fd, how) and SYSTEM_CLOCK.uptime_ms() < until_ms:
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


def _is_got(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
