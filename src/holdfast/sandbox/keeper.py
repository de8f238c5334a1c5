"""Starts and ends process trees: the keeper, which is a program (`keeper_child`). `trees` ends a tree from outside.

The driver passes every call to its keeper: one byte with the open files of the call. The keeper forks a guard
(`guard`), which starts the program. A guard adopts orphans (`PR_SET_CHILD_SUBREAPER`): every descendant that loses
its parent comes back to it, even one that forked twice, left its session and cleared its environment. So if a guard
has no children, its tree is gone. It ends the tree when the first process has exited, when the driver closes the
call's socket, and when the driver is gone for any reason. If a command kills its guard, the tree comes to the
keeper, which adopts orphans too and ends them.

A tree is stopped before it is killed, and no process is asked to end by itself: a shell that sees its child end
would begin its next command, although the model reads that the command was ended.

Where the kernel does not allow adoption (macOS) and has no /proc, only process groups are known.

It uses little of the standard library and nothing else, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Collection

from holdfast.sandbox import waiting
from holdfast.sandbox.guard import POLL_S, become, guard
from holdfast.sandbox.living import kill, living, with_descendants

MAX_FDS = 64
"""The most open files of one call."""
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end neither a keeper nor a guard: they exit when their work is done."""


def keep(driver_pid: int) -> None:
    """Fork a guard for every call, until the driver and every guard are gone. Calls come in over standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    become(b"hf-keeper")
    door, driver, wakes = socket.socket(fileno=0), waiting.pidfd(driver_pid), waiting.wakes()
    guards: dict[int, socket.socket] = {}
    """The sockets of the calls too, so that a driver learns when the tree of a call is gone."""
    orphaned: list[socket.socket] = []  # the calls whose guards were killed
    is_open = True
    while is_open or guards or orphaned:
        sources = [wakes, door.fileno(), *driver] if is_open else [wakes]
        ready = waiting.ready(sources, POLL_S if orphaned else None)
        codes, _ = waiting.ended(wakes)
        for pid in codes.keys() & guards.keys():
            control = guards.pop(pid)
            orphaned.append(control) if codes[pid] else control.close()
        if orphaned and not _kill_strays(guards):
            for control in orphaned:
                control.close()
            orphaned.clear()
        if not set(driver).isdisjoint(ready):
            is_open = False
        elif is_open and door.fileno() in ready:
            is_open = _begin(door, driver, guards)


def _begin(door: socket.socket, driver: Collection[int], guards: dict[int, socket.socket]) -> bool:
    """Accept the next call. Return False if the driver is gone."""
    fds = _received(door)
    if not fds:
        return False
    control = socket.socket(fileno=fds[0])
    pid = os.fork()
    if not pid:
        for other in (door, *guards.values()):
            other.close()
        guard(control, fds[1:], driver)
    guards[pid] = control
    for fd in fds[1:]:
        os.close(fd)
    return True


def _received(door: socket.socket) -> list[int]:
    try:
        fds = socket.recv_fds(door, 1, MAX_FDS)[1]
    except OSError:
        return []
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds


def _kill_strays(guards: Collection[int]) -> bool:
    """Kill what a killed guard left to this process. Return whether there was anything."""

    def strays() -> list[int]:
        stats = dict(living())
        mine = {pid for pid, stat in stats.items() if stat.parent == os.getpid()}
        return with_descendants(stats, mine.difference(guards))

    return kill(strays)
