"""Opening a home: folders and files with their rights, the database at the right version, or a clear refusal.

What is in the database is the business of `reads` and `writes`. No file of the database is ever opened but by
SQLite: closing it would drop the locks of every other connection of this process.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StorageCorrupt, StorageNewer, StorageReadOnly
from holdfast.storage import migrations
from holdfast.storage.errors import not_ours, storage_errors

DATABASE = "holdfast.db"
BLOBS = "blobs"

_WAL_LIMIT_BYTES = 8 << 20


def open_database(home: Path, busy_s: float) -> sqlite3.Connection:
    """A connection for writing to the home's database, made when it is missing, at the newest version.

    Raises:
        StorageCorrupt: the file is no database of ours; it is left as it is.
        StorageNewer: a newer version of Holdfast wrote it.
        StorageReadOnly: the home cannot be written.
        StorageLocked: another process kept it locked for longer than `busy_s`.
        StorageFull: no space is left to make it.
    """
    path = home / DATABASE
    with storage_errors(path):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _own_file(path, home / BLOBS)
        connection = connect(path, busy_s)
        try:
            _check_and_migrate(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection


def connect(path: Path, busy_s: float, mode: str = "rw") -> sqlite3.Connection:
    """A bare connection to an existing database, without Python's own transactions, for any one thread."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )


def _own_file(path: Path, blobs: Path) -> None:
    """Make the file as SQLite would, but for its owner alone: SQLite gives its companions the same rights."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if path.stat().st_size == 0 and blobs.exists():
        raise StorageCorrupt(f"{path} was emptied: there are blobs beside it, so it held sessions")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StorageReadOnly(
            f"{path} cannot be written", hint="Check its owner and rights, or name another home with --home."
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _check_and_migrate(connection: sqlite3.Connection, path: Path) -> None:
    if check_version(connection, path) == migrations.NEWEST:
        return
    with _only_process(path.parent):
        connection.execute("PRAGMA journal_mode = WAL")
        migrations.migrate(connection)


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the database's schema.

    Raises:
        StorageCorrupt: it is the database of another program.
        StorageNewer: its version is newer than this code.
    """
    found = migrations.version(connection)
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if application != migrations.APPLICATION_ID:
        is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if application or found or not is_empty:
            raise not_ours(path)
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
