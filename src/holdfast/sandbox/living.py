"""Living processes: what the kernel tells of them, and how they are killed.

A keeper and its guards use it, and so does who ends trees from outside (`trees`). It uses little of the standard
library, so that a keeper starts in milliseconds.
"""

# Pathlib would double the time that a keeper takes to start.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_STOPS = 100
"""How often to look for what forked before it was stopped."""
_KERNEL_THREAD = 0x00200000


def with_descendants(stats: dict[int, Stat], roots: Collection[int]) -> list[int]:
    """Return these processes, if they live, and all their descendants, each after its parent."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    following = [pid for pid in roots if pid in stats and stats[pid].parent not in roots]
    found: dict[int, None] = {}
    while following:
        found.update(dict.fromkeys(following))
        following = [pid for parent in following for pid in children.get(parent, ()) if pid not in found]
    return list(found)


class Stat(NamedTuple):
    """What the kernel says about a process."""

    name: bytes
    parent: int
    is_kernel: bool


def living() -> Iterable[tuple[int, Stat]]:
    """Yield all living processes; none without /proc."""
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (stat := stat_of(int(entry))):
                yield int(entry), stat


def stat_of(pid: int) -> Stat | None:
    """Return None if the process is gone or a zombie, which it is not while one of its threads runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:
        return None
    return Stat(head.partition(b"(")[2], int(fields[1]), bool(int(fields[6]) & _KERNEL_THREAD))


def kill(look: Callable[[], list[int]]) -> bool:
    """Stop these processes and what they forked meanwhile, then kill them. Return whether there were any.

    `look` returns them, each after its parent. A process forks nothing more once the signal is sent, so all are
    stopped if none is new.
    """
    seen: list[int] = []
    stopped: set[int] = set()
    for _ in range(_STOPS):
        seen = look()
        fresh = [pid for pid in seen if pid not in stopped]
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        stopped.update(fresh)
    # Children first: the kernel may wake a stopped group when the parent of one of its members ends.
    send(reversed(seen), signal.SIGKILL)
    return bool(seen)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
