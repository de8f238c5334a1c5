"""The one place where errors of SQLite and of the file system become the taxonomy of `holdfast.errors`.

Nothing above this room sees a `sqlite3.Error`. What is done about an error is not decided here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    StorageUnreadable,
    UsageError,
)

_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}
_TOO_MANY_ERRNOS = {errno.EMFILE, errno.ENFILE}
_FILES = 4
"""A connection has so many open: the database, its log, the index of that, and for a moment their folder."""
_CHECK_DISK = (
    "Check the disk, its quota and the limit on the size of files. `holdfast fsck` lists all damage."
)
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
            return UsageError(f"a value that no database can store: {error}")
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
                hint="Find out which one with `fuser`, and end it.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return forbidden(where)
        case sqlite3.SQLITE_CANTOPEN:
            return _not_opened(where)
        case sqlite3.SQLITE_NOTADB:
            return not_ours(where)
        case sqlite3.SQLITE_CORRUPT:  # SQLite says the same of a page that the disk cannot read
            return _corrupt(where, error, " or its disk fails to read it")
        case sqlite3.SQLITE_CONSTRAINT:
            return _corrupt(where, error)
        case sqlite3.SQLITE_IOERR if _is_full(where):
            return full(where)
        case sqlite3.SQLITE_IOERR:
            return StorageError(f"{where} cannot be read or written: {error}", hint=_CHECK_DISK)
    if str(error).startswith(_LOST) or "decode to UTF-8" in str(error):
        return _corrupt(where, error)
    return StorageError(f"{where} cannot be used: {error}")


def _from_os(error: OSError, where: Path) -> StorageError:
    if error.errno in _FULL_ERRNOS:
        return full(where)
    place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else where
    if error.errno in _FORBIDDEN_ERRNOS:
        return forbidden(place)
    if error.errno in _TOO_MANY_ERRNOS:
        return _too_many(where)
    hint = _CHECK_DISK if error.errno == errno.EIO else ""
    return StorageError(f"{place} cannot be used: {error.strerror or error}", hint=hint)


def _not_opened(where: Path) -> StorageError:
    """SQLite has one word for whatever keeps it from opening a file: what it was is looked for."""
    if not _can_open(_FILES):
        return _too_many(where)
    found = forbidden(where)
    if isinstance(found, StorageUnreadable) or not _may(_there(where.parent), os.W_OK):
        return found
    log, index = f"{where.name}-wal", f"{where.name}-shm"
    return StorageError(f"{where}, or {log} or {index} beside it, cannot be opened")


def _too_many(where: Path) -> StorageError:
    return StorageError(
        f"{where} cannot be opened: too many files are open",
        hint="End what keeps them open, or raise the limit (`ulimit -n`).",
    )


def _can_open(count: int) -> bool:
    """Whether so many more files could be opened now."""
    with ExitStack() as stack:
        try:
            for _ in range(count):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return error.errno not in _TOO_MANY_ERRNOS
    return True


def _may(path: Path, what: int) -> bool:
    return os.access(path, what, effective_ids=os.access in os.supports_effective_ids)


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
    """Return the error for a file that another one replaced: no other process finds it by its name."""
    return StorageReplaced(
        f"{where} was replaced, emptied or taken away while it was in use; nothing more is written to it",
        hint="`holdfast fsck` tells whether what lies there now is whole.",
    )


def forbidden(where: Path) -> StorageUnreadable | StorageReadOnly:
    """The refusal of what the system does not allow: to read the file, or, where that is allowed, to write it."""
    why = ""
    for folder in reversed(where.parents):
        if not os.path.lexists(folder):
            break
        if not _may(folder, os.X_OK):
            why = f"the folder {folder} may not be entered"
            break
    if not why and os.path.lexists(where) and not _may(where, os.R_OK):
        why = "its permissions forbid it"
    if why:
        return StorageUnreadable(
            f"{where} cannot be read: {why}",
            hint="Check its owner and permissions, or name another home with --home.",
        )
    why = "its disk is read-only" if _is_read_only(where) else "its permissions forbid it"
    return StorageReadOnly(
        f"{where} cannot be written: {why}",
        hint="Check its owner and permissions, or name another home with --home."
        " Commands that only look, such as `holdfast sessions`, need no more than to read it.",
    )


def _is_read_only(where: Path) -> bool:
    """Whether the disk of the file, or of the folder in which it would be made, takes no writing."""
    return bool(os.statvfs(_there(where)).f_flag & os.ST_RDONLY)


def _there(path: Path) -> Path:
    """The path, or the folder above it that is there and may be looked at."""
    return next(each for each in (path, *path.absolute().parents) if _may(each, os.F_OK))


def _is_full(where: Path) -> bool:
    # SQLite reports a failed write of the write-ahead index as an I/O error, whatever the reason.
    try:
        return os.statvfs(where.parent).f_bavail == 0
    except OSError:
        return False


def full(where: Path) -> StorageFull:
    """The refusal to write where there is no room."""
    return StorageFull(
        f"no space left to write {where}; everything acknowledged so far is safe",
        hint="Free some space.",
    )


def _corrupt(where: Path, error: Exception, or_what: str = "") -> StorageCorrupt:
    return StorageCorrupt(f"{where} is damaged{or_what}: {error}", hint="`holdfast fsck` lists all damage.")
