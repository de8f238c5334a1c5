"""Reading a whole home and telling all that is wrong with it; nothing is ever mended or touched here.

What a broken chain means is decided in `chain`; this module brings the rows, whatever state they are in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from holdfast.errors import StorageCorrupt, StorageError
from holdfast.protocol.rows import ApprovalRow, Damage, Erased, SessionRow, Verified
from holdfast.storage.blobs import read_blob
from holdfast.storage.chain import examine, row_damage, use_damages
from holdfast.storage.errors import primary_code, storage_errors
from holdfast.storage.home import BLOBS, DATABASE, check_file, check_version, connect_to_read
from holdfast.storage.migrations import MIGRATIONS
from holdfast.storage.reads import lineage, link_at, stored

_BUSY_S = 5.0
_NO_END = 1 << 62
_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
"""SQLite's codes for a damaged file and for a table that is not as it was made."""
_JOURNALS = {"sessions", "records"}
"""Without these tables there is nothing to read."""
_COSTS_TIME = "this costs time and nothing else"


def verify_home(home: Path) -> Verified:
    """All that is wrong with a home, also with one that cannot be written, and what was erased in it.

    Raises:
        StorageCorrupt: its file is no database of Holdfast at all.
        StorageNewer: a newer version wrote it.
        StorageError: there is no database, or it cannot be read.
    """
    path = home / DATABASE
    with storage_errors(path):
        check_file(home)
        if not path.exists():
            raise StorageError(f"there is no database at {path}")
    with storage_errors(path), closing(connect_to_read(path, _BUSY_S)) as connection:
        try:
            version = check_version(connection, path)
            if not version:
                raise StorageError(f"{path} holds nothing yet")
            return _verify(connection, home / BLOBS, version)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) not in _UNREADABLE:
                raise
            return Verified((Damage("file", f"the database cannot be read: {error}"),))


def _verify(connection: sqlite3.Connection, blobs: Path, version: int) -> Verified:
    connection.text_factory = _decoded
    damages = list(_file_damages(connection))
    erased: list[Erased] = []
    connection.execute("BEGIN")  # one moment for all that follows, while others go on writing
    there = _schema(connection)
    tables = {table for kind, _, table in there if kind == "table"}
    lost = sorted(_schema_of(version) - there)
    damages += [_lost(kind, name) for kind, name, table in lost if kind == "table" or table in tables]
    if _JOURNALS - tables:
        return Verified(tuple(damages))
    seen_blobs: dict[str, str] = {}
    for session in [row[0] for row in connection.execute("SELECT id FROM sessions ORDER BY number")]:
        try:
            found = _verify_session(connection, session, blobs, seen_blobs, tables)
            damages += found.damages
            erased += found.erased
        except StorageCorrupt as error:
            damages.append(Damage("row", error.message, session))
        except sqlite3.DatabaseError as error:
            damages.append(Damage("file", f"its records cannot be read: {error}", session))
    for table, look in _BESIDE_JOURNALS.items():
        if table in tables:
            try:
                damages += look(connection)
            except sqlite3.DatabaseError as error:
                damages.append(Damage("file", f"some rows of {table} cannot be read: {error}"))
    return Verified(tuple(damages), tuple(erased))


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")  # a flipped bit in a text shows as a changed record, not as an error


def _file_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    try:
        for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
            if line != "ok":
                yield Damage("file", line)
    except sqlite3.DatabaseError as error:
        yield Damage("file", str(error))


def _schema_of(version: int) -> set[tuple[str, str, str]]:
    """(kind, name, table) of the tables and indexes that a database of that version has."""
    with closing(sqlite3.connect(":memory:")) as sound:
        for step in MIGRATIONS[:version]:
            sound.executescript(step)
        return _schema(sound)


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    own = "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    return set(connection.execute(own))


def _lost(kind: str, name: str) -> Damage:
    if name == "snapshots":
        return Damage("file", f"the table {name} is missing; {_COSTS_TIME}: the next command makes it anew")
    what = (
        ", with all that was in it" if kind == "table" else ": nothing is lost, and no longer kept in order"
    )
    return Damage("file", f"the {kind} {name} is missing{what}")


def _verify_session(
    connection: sqlite3.Connection,
    session: str,
    blobs: Path,
    seen_blobs: dict[str, str],
    tables: set[str],
) -> Verified:
    own = lineage(connection, session)
    number, at_seq, head_seq = own[-1]
    records = stored(connection, session, number, at_seq, _NO_END)
    examined = examine(session, records, at_seq, link_at(connection, own, at_seq), head_seq)
    damages = [*examined.damages, *_row_damages(connection, session, head_seq)]
    if "blob_uses" in tables:
        uses = connection.execute("SELECT blob FROM blob_uses WHERE session = ?", (number,))
        damages += use_damages(session, examined, {row[0] for row in uses})
    for seq, sha256 in examined.blobs:
        if sha256 not in seen_blobs:
            try:
                read_blob(blobs, sha256)
                seen_blobs[sha256] = ""
            except StorageCorrupt as error:
                seen_blobs[sha256] = error.message
        if seen_blobs[sha256]:
            damages.append(Damage("blob", seen_blobs[sha256], session, seq))
    return Verified(tuple(damages), examined.erased)


def _row_damages(connection: sqlite3.Connection, session: str, head_seq: int) -> list[Damage]:
    encoded, position, last, *columns = connection.execute(
        "SELECT row, position, (SELECT position FROM records AS r WHERE session = number AND r.seq = sessions.seq),"
        " key, status, title, updated_ms, due_ms FROM sessions WHERE id = ?",
        (session,),
    ).fetchone()
    try:
        row = msgspec.json.decode(encoded, type=SessionRow)
    except msgspec.DecodeError as error:
        return [Damage("row", f"its row cannot be read: {error}", session)]
    damages = row_damage(row, head_seq)
    if columns != [row.key, row.status, row.title, row.updated_ms, row.due_ms]:
        damages.append(Damage("row", "it is not listed as its row tells", session))
    if not damages and last is not None and position != last:
        damages.append(Damage("row", "it is not listed in the order of its last record", session))
    return damages


def _lost_records(connection: sqlite3.Connection) -> Iterator[Damage]:
    for number, count in connection.execute(
        "SELECT session, count(*) FROM records WHERE session NOT IN (SELECT number FROM sessions)"
        " GROUP BY session"
    ):
        yield Damage("row", f"{count} records lie under the number {number}, which is no session's")


def _use_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    for number, count in connection.execute(
        "SELECT session, count(*) FROM blob_uses WHERE session NOT IN (SELECT number FROM sessions)"
        " GROUP BY session"
    ):
        yield Damage("row", f"{count} blobs are used under the number {number}, which is no session's")


def _approval_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    for approval_id, row in connection.execute("SELECT id, row FROM approvals"):
        try:
            msgspec.json.decode(row, type=ApprovalRow)
        except msgspec.DecodeError as error:
            yield Damage("row", f"the approval {approval_id} cannot be read: {error}")


def _snapshot_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    """Snapshots that no commit left like this. What is in one, and whether it holds, only its maker can tell."""
    for number, seq, is_empty, session, head_seq in connection.execute(
        "SELECT s.session, s.seq, s.body = x'', id, sessions.seq FROM snapshots AS s LEFT JOIN sessions"
        " ON number = s.session WHERE number IS NULL OR s.body = x'' OR s.seq NOT BETWEEN 1 AND sessions.seq"
    ):
        if session is None:
            yield Damage(
                "row", f"a snapshot lies under the number {number}, which is no session's; nothing needs it"
            )
            continue
        what = "is empty" if is_empty else f"is of record {seq}, and its journal ends at {head_seq}"
        yield Damage("row", f"its snapshot {what}; {_COSTS_TIME}: its whole journal is read instead", session)


_BESIDE_JOURNALS = {
    "records": _lost_records,
    "blob_uses": _use_damages,
    "approvals": _approval_damages,
    "snapshots": _snapshot_damages,
}
"""What is looked at in each table when the journals have been read."""
