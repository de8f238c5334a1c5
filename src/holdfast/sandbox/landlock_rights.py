"""Gives up all rights that a fence does not name, in the process that becomes the program of a call.

A guard forks such a process (`guard`), and `landlock` says what it keeps. What is given up here, nothing that the
process starts gets back. No process stays between. If any step fails, nothing begins. It uses little of the standard
library, so that a keeper starts in milliseconds.
"""

# Pathlib would double the time that a keeper takes to start.
# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from errno import EINVAL, ENOENT, ESTALE
from stat import S_ISDIR
from typing import Any

from holdfast.sandbox.mounted import opened

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of landlock_create_ruleset and so on, the same on all processors."""
_RULE_PATH = 1
_SIGNALS = 0b10
"""LANDLOCK_SCOPE_SIGNAL."""
_MOVE = 1 << 13
"""LANDLOCK_ACCESS_FS_REFER."""
OF_FILES = 0b1100000000000111
"""What of the rights of Landlock means something for a file."""
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_WITH_FILTER, _LISTENING = 1, 1 << 3 | 1 << 5
"""SECCOMP_SET_MODE_FILTER, and SECCOMP_FILTER_FLAG_NEW_LISTENER with _WAIT_KILLABLE_RECV: no signal but a deadly one
interrupts a call that waits for its answer."""
_DROP_FROM_BOUNDS = 24
_MOST_CAPABILITIES = 64
_CAPABILITIES_V3 = 0x20080522

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_Pair = ctypes.c_uint64 * 2
"""Two numbers as the kernel reads them: a rule of a path, a program of a filter, or a limit."""

Kept = Mapping[str, Any]
"""`protocol.fence.Rights` as plain data."""


def signals_below_only(kept: Kept, other: int) -> bool:
    """Give up to signal processes that this one did not start, and return whether that is so. Then one signal to all
    processes reaches its tree only, and nothing in there can fork meanwhile.

    Args:
        kept: What its program will keep.
        other: A descriptor of a process that it may signal until now.

    Raises:
        OSError: a step failed.
    """
    scopes = _SIGNALS & kept["handled"][2] if len(kept["handled"]) > 2 else 0
    if not scopes or not _may_signal(other):
        return False
    libc = _libc()
    ruleset = _ruleset(libc, (_MOVE, 0, scopes))
    # Each layer forbids to move files between folders, unless a rule of its own allows it.
    rule = _Pair(_MOVE, os.open("/", os.O_PATH | os.O_CLOEXEC))
    _ask(libc.syscall, _ADD, ruleset, _RULE_PATH, ctypes.addressof(rule))
    os.close(rule[1])
    _ask(libc.prctl, _NO_NEW_PRIVS, 1)
    _ask(libc.syscall, _RESTRICT, ruleset)
    os.close(ruleset)
    return not _may_signal(other)


def _may_signal(other: int) -> bool:
    """Return whether this process may signal another one. If that has ended, nothing tells it: count it as yes."""
    try:
        signal.pidfd_send_signal(other, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def keep_only(kept: Kept) -> None:
    """Make what is its own, and give up everything but what is kept.

    Raises:
        OSError: a step failed. The process may have given up some rights.
    """
    _give_up(kept, _furnished(kept))


def become(words: list[str], env: Mapping[str, str]) -> None:
    """Become the program. `os.execvpe` does the same, and may import modules that are out of reach by now.

    Raises:
        OSError: it cannot be.
    """
    folders = [""] if "/" in words[0] else env.get("PATH", os.defpath).split(":")
    why = OSError(ENOENT, os.strerror(ENOENT))
    for folder in folders:
        try:
            os.execve(f"{folder}/{words[0]}" if folder else words[0], words, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            why = error
        except ValueError as error:  # a NUL in a word
            raise OSError(EINVAL, os.strerror(EINVAL)) from error
    raise why


def _give_up(kept: Kept, own: int) -> None:
    """Give up the rights by rules of Landlock, all capabilities, and the system calls that a filter refuses. What the
    filter asks about goes out through a `way`.
    """
    libc = _libc()
    # First of all: who ends the tree after its guard was killed finds it by this.
    tag = _Pair(kept["tag"], kept["tag"])
    _ask(libc.setrlimit, kept["tag_limit"], ctypes.addressof(tag))
    ruleset = _ruleset(libc, kept["handled"])
    _allow(libc, ruleset, kept, own)
    _ask(libc.prctl, _NO_NEW_PRIVS, 1)
    _leave_capabilities(libc, kept["capset"])
    _ask(libc.syscall, _RESTRICT, ruleset)
    os.close(ruleset)
    lines = ctypes.create_string_buffer(bytes.fromhex(kept["filter"]))
    program = _Pair(len(lines) // 8, ctypes.addressof(lines))
    if kept["way_fd"] is None:
        _ask(libc.prctl, _SECCOMP, _FILTER, ctypes.addressof(program))
    else:
        listener = _ask(
            libc.syscall, kept["installation"], _WITH_FILTER, _LISTENING, ctypes.addressof(program)
        )
        _give(listener, socket.socket(fileno=kept["way_fd"]))


def _give(listener: int, way: socket.socket) -> None:
    """Give the listener of the filter to the proxy."""
    try:
        socket.send_fds(way, [b"+"], [listener])
    except OSError:
        pass  # the proxy is gone: each connection of the program fails
    os.close(listener)
    way.close()


def _furnished(kept: Kept) -> int:
    """Make its own folder, and the folders, files and links in there. Return a descriptor of it.

    Another process may put something else in its place at any moment, such as a link to what only this process may
    use. So nothing is done by a path, and no link is followed.
    """
    above, name = os.path.split(kept["own"])
    place = opened(above)
    os.mkdir(name, 0o700, dir_fd=place)
    own = os.open(name, _FOLDER, dir_fd=place)
    os.close(place)
    for name in kept["folders"]:
        os.mkdir(name, 0o700, dir_fd=own)
    for path, content in kept["files"].items():
        folder, name = _beside(own, path)
        mode = 0o700 if content.startswith("#!") else 0o600
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        os.close(folder)
    for path, target in kept["links"].items():
        folder, name = _beside(own, path, is_made=True)
        os.symlink(target, name, dir_fd=folder)
        os.close(folder)
    return own


def _beside(own: int, path: str, *, is_made: bool = False) -> tuple[int, str]:
    """Return a descriptor of the folder that a path in a folder names, and the last part of the path.

    `is_made`: folders that are not there are made.
    """
    *names, last = path.split("/")
    fd = os.dup(own)
    for name in names:
        if is_made:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
            except FileExistsError:
                pass
        above, fd = fd, os.open(name, _FOLDER, dir_fd=fd)
        os.close(above)
    return fd, last


def _ruleset(libc: Any, handled: Sequence[int]) -> int:
    """Return a new set of rules, which gives up these rights but for what is added to it."""
    given = (ctypes.c_uint64 * len(handled))(*handled)
    return _ask(libc.syscall, _CREATE, ctypes.addressof(given), ctypes.sizeof(given))


def _allow(libc: Any, ruleset: int, kept: Kept, own: int) -> None:
    """Add a rule for each file and folder that it may use. One of them is open at a time, as there may be more than
    files may be open.

    Raises:
        OSError: something that is shown is gone, or a link has taken its place (ESTALE), or a step failed.
    """
    rule = _Pair()
    told = ctypes.addressof(rule)
    for path, rights in ((None, kept["own_rights"]), *kept["shown"]):
        fd = own if path is None else _shown(path)
        rule[0], rule[1] = rights if S_ISDIR(os.fstat(fd).st_mode) else rights & OF_FILES, fd
        _ask(libc.syscall, _ADD, ruleset, _RULE_PATH, told)
        os.close(fd)
    # What is gone by now of these is left out.
    for path, rights in kept["paths"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule[0], rule[1] = rights, fd
        try:
            _ask(libc.syscall, _ADD, ruleset, _RULE_PATH, told)
        except OSError:  # a file has taken the place of a folder
            rule[0] &= OF_FILES
            _ask(libc.syscall, _ADD, ruleset, _RULE_PATH, told)
        os.close(fd)


def _shown(path: str) -> int:
    """Open what is shown.

    Raises:
        OSError: it is gone, or a link has taken its place.
    """
    try:
        return opened(path)
    except OSError as error:
        raise OSError(ESTALE, os.strerror(ESTALE)) from error


def _libc() -> Any:
    """Return the library of the kernel's calls, with the types of those that are used here."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = [ctypes.c_long] * 5
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    libc.setrlimit.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return libc


def _ask(call: Any, *arguments: int) -> int:
    """Ask the kernel for something that must not fail.

    Raises:
        OSError: it failed.
    """
    result: int = call(*arguments, *[0] * (5 - len(arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _leave_capabilities(libc: Any, capset: int) -> None:
    """Give up what root can do beyond the rights of files, for good: no program that it becomes gets more."""
    if not os.geteuid():
        for number in range(_MOST_CAPABILITIES):
            if libc.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0):
                break
    # With the permitted ones go those that the kernel calls ambient.
    header = ctypes.create_string_buffer(_CAPABILITIES_V3.to_bytes(8, sys.byteorder), 8)
    none = ctypes.create_string_buffer(24)
    _ask(libc.syscall, capset, ctypes.addressof(header), ctypes.addressof(none))
