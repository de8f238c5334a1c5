"""Reading a whole home and telling all that is wrong with it; nothing is ever mended or touched here.

What a broken chain means is decided in `chain`; this module brings the rows, whatever state they are in.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import StorageCorrupt, StorageError
from holdfast.protocol.rows import ApprovalRow, Damage, SessionRow
from holdfast.storage.blobs import read_blob
from holdfast.storage.chain import examine, row_damage
from holdfast.storage.errors import primary_code, storage_errors
from holdfast.storage.home import BLOBS, DATABASE, check_version, connect
from holdfast.storage.reads import lineage, link_at, stored

_BUSY_S = 5.0
_NO_END = 1 << 62


def verify_home(home: Path) -> list[Damage]:
    """All that is wrong with a home, also with one that cannot be written; empty when all is well.

    Raises:
        StorageCorrupt: its file is no database of Holdfast at all.
        StorageNewer: a newer version wrote it.
        StorageError: there is no database, or it cannot be read.
    """
    path = home / DATABASE
    if not path.exists():
        raise StorageError(f"there is no database at {path}")
    with storage_errors(path), _readable(path) as connection:
        try:
            return _verify(connection, home / BLOBS) if check_version(connection, path) else []
        except sqlite3.DatabaseError as error:
            if primary_code(error) != sqlite3.SQLITE_CORRUPT:
                raise
            return [Damage("file", f"the database cannot be read: {error}")]


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading; to a copy where SQLite may not make the index of its log beside the file."""
    with closing(connect(path, _BUSY_S, mode="ro")) as connection:
        if _may_be_read(connection):
            yield connection
            return
    with tempfile.TemporaryDirectory(prefix="holdfast-fsck-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        with closing(connect(copy, _BUSY_S)) as connection:
            yield connection


def _may_be_read(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        return primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return True


def _verify(connection: sqlite3.Connection, blobs: Path) -> list[Damage]:
    connection.text_factory = _decoded
    damages = list(_file_damages(connection))
    connection.execute("BEGIN")  # one moment for all that follows, while others go on writing
    seen_blobs: dict[str, str] = {}
    for session in [row[0] for row in connection.execute("SELECT id FROM sessions ORDER BY number")]:
        try:
            damages += _session_damages(connection, session, blobs, seen_blobs)
        except StorageCorrupt as error:
            damages.append(Damage("row", error.message, session))
        except sqlite3.DatabaseError as error:
            damages.append(Damage("file", f"its records cannot be read: {error}", session))
    return damages + list(_other_rows(connection))


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")  # a flipped bit in a text shows as a changed record, not as an error


def _file_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    try:
        for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
            if line != "ok":
                yield Damage("file", line)
    except sqlite3.DatabaseError as error:
        yield Damage("file", str(error))


def _session_damages(
    connection: sqlite3.Connection, session: str, blobs: Path, seen_blobs: dict[str, str]
) -> Iterator[Damage]:
    own = lineage(connection, session)
    number, at_seq, head_seq = own[-1]
    records = stored(connection, session, number, at_seq, _NO_END)
    examined = examine(session, records, at_seq, link_at(connection, own, at_seq), head_seq)
    yield from examined.damages
    yield from _row_damages(connection, session, head_seq)
    for seq, sha256 in examined.blobs:
        if sha256 not in seen_blobs:
            try:
                read_blob(blobs, sha256)
                seen_blobs[sha256] = ""
            except StorageCorrupt as error:
                seen_blobs[sha256] = error.message
        if seen_blobs[sha256]:
            yield Damage("blob", seen_blobs[sha256], session, seq)


def _row_damages(connection: sqlite3.Connection, session: str, head_seq: int) -> list[Damage]:
    encoded = connection.execute("SELECT row FROM sessions WHERE id = ?", (session,)).fetchone()[0]
    try:
        return row_damage(msgspec.json.decode(encoded, type=SessionRow), head_seq)
    except msgspec.DecodeError as error:
        return [Damage("row", f"its row cannot be read: {error}", session)]


def _other_rows(connection: sqlite3.Connection) -> Iterator[Damage]:
    try:
        lost = connection.execute(
            "SELECT session, count(*) FROM records WHERE session NOT IN (SELECT number FROM sessions)"
            " GROUP BY session"
        ).fetchall()
        approvals = connection.execute("SELECT id, row FROM approvals").fetchall()
    except sqlite3.DatabaseError as error:
        yield Damage("file", f"some rows cannot be read: {error}")
        return
    for number, count in lost:
        yield Damage("row", f"{count} records lie under the number {number}, which is no session's")
    for approval_id, row in approvals:
        try:
            msgspec.json.decode(row, type=ApprovalRow)
        except msgspec.DecodeError as error:
            yield Damage("row", f"the approval {approval_id} cannot be read: {error}")
