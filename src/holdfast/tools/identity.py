"""Tells a folder from another one that got its inode: many file systems give that to the next one that is made.

A folder that is held open keeps its inode. For all others, what a new folder cannot have is kept beside it: the time
when it was made, or the generation of its inode, which is in its handle.
"""

from __future__ import annotations

import ctypes
import os
import stat
from functools import cache
from zlib import crc32

from holdfast.tools.aside import folder_of

Identity = tuple[int, ...]
"""Device, inode, and what no other folder with these has: 0 if its file system has nothing of the kind. An earlier
version stored the first two only.
"""
_EMPTY_PATH = 0x1000
"""AT_EMPTY_PATH."""
_BIRTH = 0x800
"""STATX_BTIME."""
_MASK_AT, _SECONDS_AT, _NANOSECONDS_AT = 0, 10, 11
"""Where they are in `struct statx`, in words of eight bytes."""
_LOW = 0xFFFF_FFFF
_MOST = (1 << 63) - 1
_HANDLE_BYTES = 128
_SECOND_NS = 1_000_000_000


class _Handle(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * _HANDLE_BYTES))


def of_fd(fd: int) -> Identity:
    """Return the identity of what is open.

    Raises:
        OSError: it cannot be looked at.
    """
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino, _mark(fd)


def of_folder(path: str) -> Identity | None:
    """Return the identity of a folder; None where no folder lies. Looks also behind folders that a program closed.

    Raises:
        OSError: nobody can tell.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            fd = os.open(path, flags)
        except PermissionError:
            with folder_of(path) as (folder, name):
                fd = os.open(name, flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return of_fd(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def is_proof(identity: Identity) -> bool:
    """Return whether no other folder can have this identity later."""
    return identity[2:] != (0,)


def is_same(one: Identity, other: Identity) -> bool:
    """Return whether two identities, taken at different times, are those of one folder. The number of its device may
    be another one after a restart.
    """
    known = min(len(one), len(other))
    return is_proof(one) and is_proof(other) and one[1:known] == other[1:known]


def _mark(fd: int) -> int:
    """Return what no other folder has that gets the same inode; 0 if nothing tells."""
    libc, words = _libc(), (ctypes.c_uint64 * 32)()
    if libc is None:
        return 0
    if not libc.statx(fd, b"", _EMPTY_PATH, _BIRTH, ctypes.byref(words)) and words[_MASK_AT] & _BIRTH:
        born_ns = int(words[_SECONDS_AT]) * _SECOND_NS + (int(words[_NANOSECONDS_AT]) & _LOW)
        if 0 < born_ns <= _MOST:
            return born_ns
    handle, mount = _Handle(_HANDLE_BYTES), ctypes.c_int()
    if libc.name_to_handle_at(fd, b"", ctypes.byref(handle), ctypes.byref(mount), _EMPTY_PATH):
        return 0
    return crc32(bytes(handle.bytes[: handle.size])) + 1


@cache
def _libc() -> ctypes.CDLL | None:
    """Return the C library; None where it has neither call."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "statx") and hasattr(libc, "name_to_handle_at") else None
