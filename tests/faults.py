"""Calls that fail: the k-th call below a folder meets an error, or the process ends there, within this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

WRITES = ("fsync", "rename", "unlink", "rmdir", "mkdir", "fchmod", "symlink", "write", "open")
READS = ("open", "read", "stat", "listdir", "readlink", "scandir")
_BY_FD = ("fsync", "fchmod", "write", "read")


class Died(BaseException):
    """The process was killed. No later call has an effect."""


class Way(NamedTuple):
    """How a call fails."""

    error: int = errno.EIO
    """0: the process ends there."""
    calls: tuple[str, ...] = WRITES
    stays: bool = False
    """All later calls fail too."""
    is_late: bool = False
    """The call has its effect before it fails."""


WAYS = {
    "kill": Way(0),
    "eio": Way(),
    "late": Way(is_late=True),
    "enospc": Way(errno.ENOSPC),
    "full": Way(errno.ENOSPC, stays=True),
    "read": Way(calls=READS),
    "dead": Way(calls=(*WRITES, *READS), stays=True),
}


class Count:
    """How many calls there were."""

    def __init__(self) -> None:
        self.calls = 0
        self.hit = ""


@contextmanager
def failing(folder: Path, k: int, way: Way) -> Iterator[Count]:
    """Let the k-th of the calls below a folder fail."""
    plain = {name: getattr(os, name) for name in way.calls}
    readlink, count, top = os.readlink, Count(), os.path.realpath(folder)

    def place(name: str, words: tuple[Any, ...], named: dict[str, Any]) -> str:
        if name in _BY_FD or isinstance(words[0], int):
            return readlink(f"/proc/self/fd/{words[0]}")
        folder_fd = named.get("dst_dir_fd" if name == "rename" else "dir_fd")
        path = os.fsdecode(words[1 if name in ("rename", "symlink") else 0])
        above = readlink(f"/proc/self/fd/{folder_fd}") if folder_fd is not None else ""
        return os.path.join(above, path)  # noqa: PTH118

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*words: Any, **named: Any) -> Any:
            is_read = name == "open" and not words[1] & os.O_CREAT
            is_below = f"{place(name, words, named)}/".startswith(f"{top}/")
            if not is_below or (is_read and way.calls == WRITES):
                return call(*words, **named)
            count.calls += 1
            if count.calls == k or (count.calls > k and (way.stays or not way.error)):
                count.hit = count.hit or name
                if not way.error:
                    raise Died
                if way.is_late and name != "open":
                    call(*words, **named)
                raise OSError(way.error, os.strerror(way.error))
            return call(*words, **named)

        return calling

    for name, call in plain.items():
        setattr(os, name, wrapped(name, call))
    try:
        yield count
    finally:
        for name, call in plain.items():
            setattr(os, name, call)
