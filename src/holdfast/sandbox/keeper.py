"""Ends process trees; and, run as a program, the keeper that does so when its driver dies.

    python -I -S keeper.py DRIVER_PID < pipe     one JSON list a line: ["+", KEY], ["=", KEY, PID], ["-", KEY]

The keeper holds the reading end of a pipe from the driver. However the driver ends, also by SIGKILL, the
pipe ends with it (or its pid does, should another process have inherited the pipe), and the keeper ends
every tree that is still registered, then itself. Standard library only, so that it starts in milliseconds.

A process belongs to a tree when it is the root or its descendant, is in the root's session or group, or
carries the call's key in its environment, which a child keeps through `setsid` and `nohup`. Without /proc
(macOS) only groups are known. Starting processes belongs to `process`.
"""

# Pathlib would double the time that the keeper takes to start.
# ruff: noqa: PTH112, PTH123, PTH208

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

VARIABLE = "HOLDFAST_CALL"
"""The environment variable that names the call a process works for."""

MARK = "HOLDFAST_KEEPER"
"""The environment variable that a keeper is known by. It belongs to no tree, not even its driver's: a driver
may itself run inside a tool, and when that is ended its keeper still has to end what the driver ran."""

GRACE_S = 0.3
"""Between asking (TERM) and ending (KILL)."""
_END_S = 0.6
_POLL_S = 0.01
_LOOKS = 4
"""As often nobody must be found, while there is a process that could not be told."""
_KERNEL_THREAD = 0x00200000


def end_trees(keys: Collection[str], roots: Collection[int] = ()) -> None:
    """End every process of these calls; returns when they are gone, or after at most a second.

    Args:
        keys: The calls, as they stand in `HOLDFAST_CALL`.
        roots: Pids of processes that were started as leaders of a session of their own.
    """
    if not _lives(keys, roots):
        return
    _signal(members(keys, roots), roots, signal.SIGTERM)
    term_until = time.monotonic() + GRACE_S
    while _lives(keys, roots) and time.monotonic() < term_until:
        time.sleep(_POLL_S)
    kill_until = time.monotonic() + _END_S
    while _lives(keys, roots) and time.monotonic() < kill_until:
        # Again and again, since a process may fork between the look and the signal.
        _signal(members(keys, roots), roots, signal.SIGKILL)
        time.sleep(_POLL_S)


def members(keys: Collection[str], roots: Collection[int] = ()) -> set[int]:
    """The pids of all living processes that belong to the calls or the roots; never this process."""
    return _look(keys, roots)[0]


def _look(keys: Collection[str], roots: Collection[int]) -> tuple[set[int], bool]:
    """The members, and whether some process could not be told: one that is just becoming another program
    has no environment for a moment."""
    needles = {f"{VARIABLE}={key}".encode() for key in keys}
    parents: dict[int, int] = {}
    found: set[int] = set()
    is_unsure = False
    for pid in _pids():
        stat = _stat(pid) if pid != os.getpid() else None
        if stat is None:
            continue
        parents[pid] = stat.parent
        if pid in roots or stat.group in roots or stat.session in roots:
            found.add(pid)
        elif needles and not stat.is_kernel:
            environment = _environment(pid)
            is_unsure = is_unsure or environment == {b""}
            if not needles.isdisjoint(environment):
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return {pid for pid in found if f"{MARK}=1".encode() not in _environment(pid)}, is_unsure


def _pids() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return ()


class _Stat(NamedTuple):
    """What the kernel says of a process."""

    parent: int
    group: int
    session: int
    is_kernel: bool


def _stat(pid: int) -> _Stat | None:
    """None when the process is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return _Stat(int(fields[1]), int(fields[2]), int(fields[3]), bool(int(fields[6]) & _KERNEL_THREAD))


def _environment(pid: int) -> set[bytes]:
    """Its variables as NAME=VALUE; nothing when it is gone or somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def _signal(pids: Iterable[int], groups: Iterable[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _lives(keys: Collection[str], roots: Collection[int]) -> bool:
    for _ in range(_LOOKS):
        found, is_unsure = _look(keys, roots)
        if found or any(map(_group_lives, roots)):
            return True
        if not is_unsure:
            return False
        time.sleep(_POLL_S)
    return False


def _group_lives(group: int) -> bool:
    """Whether a group has members, where there is no /proc; with it `members` sees more (and no zombies)."""
    if os.path.isdir("/proc/self"):
        return False
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


# --- the program --------------------------------------------------------------------------------


def main() -> None:
    """Keep watch until the driver is gone, then end what it left."""
    watched: dict[str, int] = {}
    buffer = b""
    for chunk in _messages(int(sys.argv[1])):
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            _note(watched, json.loads(line))
    end_trees(watched.keys(), {pid for pid in watched.values() if pid})


def _messages(driver: int) -> Iterable[bytes]:
    """What comes through standard input, until it ends or the driver's process does."""
    sources = [0]
    with contextlib.suppress(OSError, AttributeError):
        sources.append(os.pidfd_open(driver))
    while True:
        ready = select.select(sources, (), ())[0]
        chunk = os.read(0, 65536) if 0 in ready else b""
        if not chunk:
            return
        yield chunk


def _note(watched: dict[str, int], message: list[str]) -> None:
    match message:
        case ["+", key]:
            watched[key] = 0
        case ["=", key, pid]:
            watched[key] = int(pid)
        case ["-", key]:
            watched.pop(key, None)


if __name__ == "__main__":
    main()
