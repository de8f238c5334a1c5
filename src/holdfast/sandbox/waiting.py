"""Waiting of a keeper and its guards: for children that end, for sockets, and for lists of the kernel that change.

It uses little of the standard library, so that a keeper starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable


def ready(fds: Iterable[int], timeout_s: float | None = None, changing: Iterable[int] = ()) -> set[int]:
    """Wait so long, and return the readable descriptors, and lists of the kernel that changed."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    for fd in changing:
        poll.register(fd, select.POLLPRI)
    return {fd for fd, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}


def pidfd(pid: int) -> list[int]:
    """Return what becomes readable when the process ends: another one may keep its end of the socket."""
    with contextlib.suppress(OSError, AttributeError):
        return [os.pidfd_open(pid)]
    return []


def wakes() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def ended(woken: int) -> tuple[dict[int, int], bool]:
    """Return the exit codes of the children that ended since the last look, and whether any child is left."""
    with contextlib.suppress(BlockingIOError):
        os.read(woken, 1 << 16)
    codes: dict[int, int] = {}
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            codes[child[0]] = os.waitstatus_to_exitcode(child[1])
    except ChildProcessError:
        return codes, False
    return codes, True
