"""Opens a home: folders and files with their rights, the database at the right version, or a clear refusal.

A home that cannot be written, or whose disk is full, can still be read. `reads` and `writes` know the content of the
database. Only SQLite opens the database's files: if this process closed one itself, it would drop the locks of
all its other connections.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import StorageCorrupt, StorageFull, StorageNewer, StorageReadOnly
from holdfast.opening import by
from holdfast.storage import migrations
from holdfast.storage.blobs import sync_folder
from holdfast.storage.errors import forbidden, full, not_ours, storage_errors

DATABASE = "holdfast.db"
BLOBS = "blobs"
MARKER = "holdfast.home"
"""The file beside a database that marks the home as used. A home with it but without a database is not a new one."""

_MARK = b"The database beside this file contains sessions. If it is missing or empty, Holdfast makes no new one.\n"
_LEAST_BYTES = 512
"""The smallest possible database: one page. SQLite takes a shorter file for an empty one, and overwrites it."""
_INDEX_BYTES = 32 << 10
"""The least size that SQLite gives to the index of a log in use."""
_WAL_LIMIT_BYTES = 8 << 20
_READER_KIB = 64
"""How much of the database the connection of a reader keeps in memory."""


def open_database(home: Path, busy_s: float) -> sqlite3.Connection:
    """Return a connection for writing to the home's database. It makes a missing database and updates an old one.

    Raises:
        StorageCorrupt: the file is not a database of Holdfast; it is left as it is.
        StorageNewer: a newer version of Holdfast wrote it.
        StorageReadOnly: the home cannot be written.
        StorageLocked: another process kept it locked for longer than `busy_s`.
        StorageFull: no space is left to make it.
    """
    path = home / DATABASE
    with storage_errors(path):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_file(home)
        _own_file(path)
        with _closed_on_failure(connect(path, busy_s)) as connection:
            _check_and_migrate(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # else a page keeps what `delete` took away
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            _mark(home)
        return connection


def open_to_read(home: Path, busy_s: float) -> sqlite3.Connection:
    """Do what `open_database` does. If the home cannot be written, the connection cannot write either.

    Its schema stays as old as it is then, which is enough for every question but that of a driver.
    """
    path = home / DATABASE
    try:
        if home.exists() and not _has_room(home):
            raise full(path)
        return open_database(home, busy_s)
    except (StorageReadOnly, StorageFull) as refusal:
        with storage_errors(path):
            check_file(home)
            with _closed_on_failure(connect_to_read(path, busy_s)) as connection:
                if not check_version(connection, path):
                    raise refusal
            return connection


def connect_to_read(path: Path, busy_s: float) -> sqlite3.Connection:
    """A bare connection that only reads, also where no file may be made beside the database.

    Who has a database open keeps its log and an index of that beside it. Where one of the two is missing and
    cannot be made, nobody has it open, so that it can be read without locks.
    """
    real = path.resolve()
    log, index = (real.with_name(real.name + ending) for ending in ("-wal", "-shm"))
    is_in_use = log.exists() and index.exists() and index.stat().st_size >= _INDEX_BYTES
    if is_in_use or (os.access(real.parent, os.W_OK) and _has_room(real.parent)):
        return connect(path, busy_s, "mode=ro")
    if not (log.exists() and log.stat().st_size):
        return connect(path, busy_s, "mode=ro&immutable=1")
    connection = connect(path, busy_s, "mode=ro&vfs=unix-none")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # which has SQLite keep the index in memory
    return connection


def connect_reader(path: Path, busy_s: float) -> sqlite3.Connection:
    """Do what `connect_to_read` does, for one question after another.

    It keeps few pages: a journal is read once, from end to end, and fresh memory for a page takes longer to get than
    the page itself, which the system has at hand.
    """
    with _closed_on_failure(connect_to_read(path, busy_s)) as connection:
        connection.execute(f"PRAGMA cache_size = -{_READER_KIB}")
    return connection


def connect(path: Path, busy_s: float, how: str = "mode=rw") -> sqlite3.Connection:
    """A bare connection to an existing database, without Python's own transactions, for any one thread.

    `how` is a query as SQLite's file names take it.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )


@contextmanager
def _closed_on_failure(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def place_of(path: Path | str) -> tuple[int, int, bool] | None:
    """Return which file has the name now, by device and inode, and whether it contains anything. None if there is no
    file. Every commit asks."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - half of what pathlib takes
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size >= _LEAST_BYTES


def was_used(home: Path) -> bool:
    """Whether the folder ever had a database of sessions, or has one now."""
    return any((home / name).exists() for name in (DATABASE, MARKER, BLOBS))


def check_file(home: Path) -> None:
    """Refuse a file that is not a database, or lost its content. SQLite would write a new database over it.

    Raises:
        StorageCorrupt: says what lies there.
    """
    path = home / DATABASE
    try:
        facts = path.stat()
    except FileNotFoundError:
        facts = None
    if facts is not None and (not stat.S_ISREG(facts.st_mode) or 0 < facts.st_size < _LEAST_BYTES):
        raise not_ours(path)
    if (facts is None or not facts.st_size) and _was_made(home):
        raise _gone(path, "is missing" if facts is None else "was emptied")


def _was_made(home: Path) -> bool:
    """Whether the home had a database with its tables."""
    return any((home / name).exists() for name in (MARKER, BLOBS))


def _gone(path: Path, what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} {what}, and this home had sessions; nothing was changed",
        hint="Bring it back from a copy. To begin anew, name another home with --home.",
    )


def _has_room(folder: Path) -> bool:
    """Whether the index of a log could be made there."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize >= 2 * _INDEX_BYTES


def _mark(home: Path) -> None:
    """Mark the home, so that no process takes it for a new one."""
    path = home / MARKER
    if path.exists():
        return
    for folder in (home, *home.absolute().parents):  # the process that made them may have died before this
        with suppress(PermissionError):
            sync_folder(folder)
    with open(path, "wb", opener=by(os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) as file:
        file.write(_MARK)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(home)


def _own_file(path: Path) -> None:
    """Make the file as SQLite would, but for its owner alone: SQLite gives its companions the same rights."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise forbidden(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _check_and_migrate(connection: sqlite3.Connection, path: Path) -> None:
    if check_version(connection, path) == migrations.NEWEST and _has_snapshots(connection):
        return
    with _only_process(path.parent):
        connection.execute("PRAGMA journal_mode = WAL")
        migrations.migrate(connection)
        if not _has_snapshots(connection):
            connection.executescript(migrations.SNAPSHOTS)


def _has_snapshots(connection: sqlite3.Connection) -> bool:
    """Whether the table of `migrations.SNAPSHOTS` is there."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'snapshots'")
    return found.fetchone() is not None


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the database's schema.

    Raises:
        StorageCorrupt: it is the database of another program, or contains nothing where sessions were.
        StorageNewer: its version is newer than this code.
    """
    was_made = _was_made(
        path.parent
    )  # asked first: another process may be making the tables, and then the marker
    connection.execute("BEGIN")  # read all at one moment: another process may be making the tables
    found = migrations.version(connection)
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    connection.execute("COMMIT")
    if application != migrations.APPLICATION_ID and (application or found or not is_empty):
        raise not_ours(path)
    if is_empty and was_made:  # its tables were in a log that is gone
        raise _gone(path, "lost all its content")
    if application and not found:
        raise StorageCorrupt(f"{path} is damaged: it does not tell the version of its tables")
    if found > migrations.NEWEST:
        raise StorageNewer(
            f"{path} was written by a newer version of Holdfast (schema {found}, this one knows up to"
            f" {migrations.NEWEST})",
            hint="Upgrade Holdfast to open it.",
        )
    return found


@contextmanager
def _only_process(home: Path) -> Iterator[None]:
    # SQLite does not wait for others when it changes to WAL: the first openers would refuse each other.
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
