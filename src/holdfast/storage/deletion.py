"""Removes a session for good: no byte of it stays in the database, in its log, or beside it.

SQLite overwrites what is deleted with zeros (`PRAGMA secure_delete`, set by `home`), but its log still contains older
pages. So a deletion has three steps: empty the session, empty the log, remove the row. A deletion that is killed
between them leaves an empty session, and the same command completes it. From the first step on, the session's number
is in `deleted`: nobody can add anything to the session, and no other session ever gets the number.

A process that was killed between a blob and the commit that names it leaves the blob. Every deletion also sweeps
these, once they are old enough that nobody can be about to name them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from holdfast.errors import Fenced, StorageLocked
from holdfast.protocol.codec import encode_json
from holdfast.protocol.rows import Lease
from holdfast.storage import budgets, services
from holdfast.storage.blobs import ATTACHED, attached_in, is_older, old_files, remove_blobs, remove_files
from holdfast.storage.derived import new_row
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import BLOBS, connect
from holdfast.storage.images import drop_images
from holdfast.storage.reads import LAST_ARRIVAL, LAST_POSITION

_IN_FORCE = (
    "SELECT number, updated_ms FROM sessions JOIN leases ON session = number"
    " WHERE id = ? AND epoch = ? AND holder IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM sessions AS branch WHERE branch.parent = sessions.number)"
)
_OWN = ("records", "snapshots", "approvals", "inbox", "blob_uses")
"""The tables with rows of one session, beside its lease."""
_HASH = re.compile(rb"\b[0-9a-f]{64}\b")


def empty(connection: sqlite3.Connection, lease: Lease, home: Path) -> None:
    """Take away everything but the id and the lease. Files go before the transaction ends: if it is killed, the
    session still refers to them, and is deleted again.
    """
    number, updated_ms = _in_force(connection, lease)
    last = connection.execute(f"SELECT {LAST_POSITION}, {LAST_ARRIVAL}").fetchone()
    connection.execute("INSERT OR REPLACE INTO deleted VALUES (?, ?, ?)", (number, *last))
    remove_blobs(home / BLOBS, _unshared(connection, number))
    drop_images(home, lease.session)
    for table in _OWN:
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))
    budgets.give_up(connection, lease.session)
    services.forget(connection, lease.session)
    connection.execute(
        "UPDATE sessions SET key = '', status = 'new', title = '', due_ms = 0, seq = 0, parent = NULL, at_seq = 0,"
        " row = ? WHERE number = ?",
        (encode_json(new_row(lease.session, "", updated_ms)), number),
    )


def forget_log(path: Path, busy_s: float) -> None:
    """Move everything in the log to the database, and cut the log to nothing.

    Raises:
        StorageLocked: another process reads what lies in the log, for longer than anybody should.
    """
    with storage_errors(path), closing(connect(path, busy_s)) as connection:
        is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StorageLocked(
            "another process reads the database, so its log still contains what was deleted",
            hint="Delete the session again when that process has ended.",
        )


def remove(connection: sqlite3.Connection, session: str) -> None:
    """Remove what is left of an emptied session. That needs no lease: a new holder of it could add nothing."""
    emptied = "SELECT number FROM sessions JOIN deleted ON session = number WHERE id = ?"
    for row in connection.execute(emptied, (session,)).fetchall():
        connection.execute("DELETE FROM leases WHERE session = ?", row)
        connection.execute("DELETE FROM sessions WHERE number = ?", row)


def unneeded(connection: sqlite3.Connection, root: Path, before_ms: int) -> list[Path]:
    """Return the files of blobs that were put before that time and that nothing names, and the drafts of killed
    writers. The records themselves are read: a damaged list of uses takes no blob away.
    """
    files = list(old_files(root, before_ms))
    if not files:
        return []
    names = {path.name for path in files}
    needed = _used(connection)
    for (body,) in connection.execute("SELECT body FROM records"):
        needed |= names.intersection(name.decode() for name in _HASH.findall(body))
    return [path for path in files if path.name not in needed]


def sweep(connection: sqlite3.Connection, files: Sequence[Path], before_ms: int) -> None:
    """Remove those of the files that still nothing names and nobody put again. No commit comes between."""
    needed = _used(connection)
    remove_files(path for path in files if path.name not in needed and is_older(path, before_ms))


def _used(connection: sqlite3.Connection) -> set[str]:
    """Return the blobs that a session is listed to use, or a command that waits names."""
    used = {row[0] for row in connection.execute("SELECT blob FROM blob_uses")}
    return used.union(*(attached_in(body) for _, body in _waiting(connection)))


def _waiting(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    """Return the commands with attachments that wait, each behind the number of its session."""
    sql = "SELECT session, body FROM inbox WHERE body IS NOT NULL AND instr(body, ?)"
    return connection.execute(sql, (ATTACHED,)).fetchall()


def _in_force(connection: sqlite3.Connection, lease: Lease) -> tuple[int, int]:
    """The session's number and its last time, while the lease is in force and no branch needs its records."""
    found = connection.execute(_IN_FORCE, (lease.session, lease.epoch)).fetchone()
    if found is None:
        raise Fenced(f"session {lease.session} was taken or branched off meanwhile; it was not deleted")
    number, updated_ms = found
    return number, updated_ms


def _unshared(connection: sqlite3.Connection, number: int) -> list[str]:
    """Return the blobs that no other session uses, in its records or in a command that waits."""
    own = {row[0] for row in connection.execute("SELECT blob FROM blob_uses WHERE session = ?", (number,))}
    others: set[str] = set()
    for session, body in _waiting(connection):
        (own if session == number else others).update(attached_in(body))
    used = "SELECT 1 FROM blob_uses WHERE blob = ? AND session <> ?"
    return [blob for blob in sorted(own - others) if not connection.execute(used, (blob, number)).fetchone()]
