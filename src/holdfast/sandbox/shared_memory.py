"""Gives a call shared memory of its own, where the kernel lets this process make a namespace of mounts.

Semaphores and shared memory of all programs lie in one folder, and no rule can tell those of a call from others. A
guard uses this before it has a program. The namespace lives as long as its tree, and nothing of it is left then.
"""

# Pathlib would double the time that a keeper takes to start.
# ruff: noqa: PTH123

from __future__ import annotations

import contextlib
import ctypes
import os
import socket

_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_DOWNWARDS = 0x4000 | 0x80000
"""MS_REC and MS_SLAVE: what is mounted outside later is seen inside, and not the other way round."""
_NO_DEVICES = 0x2 | 0x4
"""MS_NOSUID and MS_NODEV."""
_OPTIONS = b"mode=1777,size=%d"


def is_made(folder: str, size_bytes: int) -> bool:
    """Mount memory there, for this process and all that it will start. Return whether that is so.

    A user who may not mount anything gets a namespace of users for it. It is made by another process: if the second
    step fails, this one has lost nothing.
    """
    libc = ctypes.CDLL(None)
    if not libc.unshare(_NEW_MOUNTS):
        return _is_mounted(libc, folder, size_bytes)
    mine, given = socket.socketpair()
    helper = os.fork()
    if not helper:
        with contextlib.suppress(OSError):
            mine.close()
            if _has_own_user(libc) and _is_mounted(libc, folder, size_bytes):
                given.send(b"+")
                given.recv(1)  # until the other process is in there, or gone
        os._exit(0)
    given.close()
    with mine:
        made = os.pidfd_open(helper) if mine.recv(1) else -1
        is_there = made >= 0 and not libc.setns(made, _NEW_USER | _NEW_MOUNTS)
    if made >= 0:
        os.close(made)
    os.waitpid(helper, 0)
    return is_there


def _has_own_user(libc: ctypes.CDLL) -> bool:
    """Enter new namespaces, in which this user has its number, and others have none."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_USER | _NEW_MOUNTS):
        return False
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    return True


def _is_mounted(libc: ctypes.CDLL, folder: str, size_bytes: int) -> bool:
    return not (
        libc.mount(None, b"/", None, _DOWNWARDS, None)
        or libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", _NO_DEVICES, _OPTIONS % size_bytes)
    )
