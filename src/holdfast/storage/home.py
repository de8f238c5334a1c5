"""Opening a home: folders and files with their rights, the database at the right version, or a clear refusal.

What is in the database is the business of `reads` and `writes`.
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
from holdfast.storage.errors import storage_errors

DATABASE = "holdfast.db"
BLOBS = "blobs"

_HEADER = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
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


def check_is_database(path: Path, blobs: Path) -> None:
    """Look at the first bytes of a file, without SQLite and without a change.

    Raises:
        StorageCorrupt: it is something else than a database of ours.
    """
    with path.open("rb") as file:
        head = file.read(100)
    if not head and not blobs.exists():
        return  # made, and never written to
    application = head[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    is_ours = application in (bytes(4), migrations.APPLICATION_ID.to_bytes(4, "big"))
    if len(head) < 100 or not head.startswith(_HEADER) or not is_ours:
        raise _not_ours(path)


def _own_file(path: Path, blobs: Path) -> None:
    """Make the file as SQLite would, but for its owner alone: SQLite gives its companions the same rights."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    check_is_database(path, blobs)
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
            raise _not_ours(path)
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


def _not_ours(path: Path) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} is not a database of Holdfast; it was left as it is",
        hint="Move it away, or name another home with --home.",
    )
