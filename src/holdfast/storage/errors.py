"""The one place where errors of SQLite and of the file system become the taxonomy of `holdfast.errors`.

Nothing above this room sees a `sqlite3.Error`. What is done about an error is not decided here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import (
    HoldfastError,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageReadOnly,
    StorageReplaced,
    UsageError,
)

_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}
_LOST = ("no such table", "no such column")
"""SQLite's words, for which it has no code, about a table that was dropped or is another one."""


FAULTS = (
    sqlite3.Error,
    OSError,
    msgspec.DecodeError,
    UnicodeDecodeError,  # a damaged name, also inside an error that SQLite tells
    UnicodeEncodeError,
    OverflowError,
)
"""What may go wrong while the database or a file is used; anything else is a bug."""


@contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Raises what goes wrong inside the block as an error of the taxonomy about `where`."""
    try:
        yield
    except FAULTS as error:
        raise storage_error(error, where) from error


def storage_error(error: Exception, where: Path) -> HoldfastError:
    """The error of the taxonomy that one of the `FAULTS` means."""
    match error:
        case UnicodeEncodeError() | OverflowError():
            return UsageError(f"a value that no database can hold: {error}")
        case sqlite3.Error():
            return _from_sqlite(error, where)
        case OSError():
            return _from_os(error, where)
    return _corrupt(where, error)


def _from_sqlite(error: sqlite3.Error, where: Path) -> StorageError:
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            return full(where)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageLocked(
                f"another process keeps {where} locked",
                hint="Find out which one with `fuser`, end it, and try again.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return read_only(where)
        case sqlite3.SQLITE_CANTOPEN if not os.access(where.parent, os.W_OK):
            return read_only(where)
        case sqlite3.SQLITE_NOTADB:
            return not_ours(where)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_CONSTRAINT:
            return _corrupt(where, error)
        case sqlite3.SQLITE_IOERR if _is_full(where):
            return full(where)
    if str(error).startswith(_LOST) or "decode to UTF-8" in str(error):
        return _corrupt(where, error)
    return StorageError(f"{where} cannot be used: {error}")


def _from_os(error: OSError, where: Path) -> StorageError:
    if error.errno in _FULL_ERRNOS:
        return full(where)
    if error.errno in _READ_ONLY_ERRNOS:
        return read_only(where)
    return StorageError(f"{error.filename or where} cannot be used: {error.strerror or error}")


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; Python's own complaints count as SQLITE_ERROR."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def not_ours(where: Path) -> StorageCorrupt:
    """The refusal of a file that is something else than a database of Holdfast."""
    return StorageCorrupt(
        f"{where} is not a database of Holdfast; it was left as it is",
        hint="Move it away, or name another home with --home.",
    )


def replaced(where: Path) -> StorageReplaced:
    """The refusal to go on with a file that nobody else sees any more."""
    return StorageReplaced(
        f"{where} was replaced or taken away while it was in use; nothing more is written to it",
        hint="`holdfast fsck` tells whether what lies there now is whole.",
    )


def read_only(where: Path) -> StorageReadOnly:
    """The refusal to write where that is not allowed."""
    return StorageReadOnly(
        f"{where} cannot be written: the home is read-only, or another user's",
        hint="Check its owner and rights, or name another home with --home."
        " Commands that only look, such as `holdfast sessions`, need no more than to read it.",
    )


def _is_full(where: Path) -> bool:
    # A failed write of the write-ahead index is told as an I/O error, whatever the reason.
    try:
        return os.statvfs(where.parent).f_bavail == 0
    except OSError:
        return False


def full(where: Path) -> StorageFull:
    """The refusal to write where there is no room."""
    return StorageFull(
        f"no space left to write {where}; everything acknowledged so far is safe",
        hint="Free some space, then go on with `holdfast resume`.",
    )


def _corrupt(where: Path, error: Exception) -> StorageCorrupt:
    return StorageCorrupt(f"{where} is damaged: {error}", hint="`holdfast fsck` tells what is wrong.")
