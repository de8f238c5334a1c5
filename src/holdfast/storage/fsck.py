"""Reads a whole home and reports all damage. It never repairs or changes anything.

`chain` decides what a broken chain means. This module reads the rows, in whatever state they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.errors import StorageCorrupt, StorageError
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.codec import UnreadableEvent, decode
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import Clock
from holdfast.protocol.rows import Damage, Recovered, SessionRow, Stretch, Verified
from holdfast.storage.blobs import YOUNG_MS, read_blob
from holdfast.storage.chain import Examined, examine
from holdfast.storage.deletion import unneeded
from holdfast.storage.derived import Derived, compare, is_epoch
from holdfast.storage.errors import primary_code, storage_errors
from holdfast.storage.home import BLOBS, DATABASE, check_file, check_version, connect_to_read
from holdfast.storage.images import FILES, KEY, file_mark, images_in, key_of
from holdfast.storage.log import is_log_lost, read_log
from holdfast.storage.migrations import migrate
from holdfast.storage.reads import Segment, lineage, link_at, read, stored
from holdfast.storage.seals import holder_in, unsealed

_BUSY_S = 5.0
_NO_END = 1 << 62
_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
"""SQLite's codes for a damaged file and for a table that is not as it was made."""
_JOURNALS = {"sessions", "records"}
"""Without these tables there is nothing to read."""
_COSTS_TIME = "this costs time and nothing else"
_READ_WHOLE = "its whole journal is read instead"


CheckSnapshot = Callable[[Recovered, State, bytes], bool]
"""Takes the records, the state that they fold to, and the link of the last one. Returns whether the snapshot fits.
Only the code that makes snapshots can read one."""


def verify_home(home: Path, is_sound: CheckSnapshot | None = None, clock: Clock = SYSTEM_CLOCK) -> Verified:
    """Return all damage of a home, and what was erased in it. The home need not be writable.

    Raises:
        StorageCorrupt: its file is not a database of Holdfast.
        StorageNewer: a newer version wrote it.
        StorageError: there is no database, or it cannot be read.
    """
    path = home / DATABASE
    with storage_errors(path):
        check_file(home)
        if not path.exists():
            raise StorageError(f"there is no database at {path}")
        lost = list(_log_damages(path))
    with storage_errors(path), closing(connect_to_read(path, _BUSY_S)) as connection:
        try:
            version = check_version(connection, path)
            if not version:
                raise StorageError(f"{path} contains nothing yet")
            found = _verify(connection, home, version, is_sound)
            notices = tuple(_notices(connection, home / BLOBS, clock.now_ms() - YOUNG_MS))
            return msgspec.structs.replace(found, damages=(*lost, *found.damages), notices=notices)
        except StorageCorrupt:
            if not lost:
                raise
            return Verified(tuple(lost))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) not in _UNREADABLE:
                raise
            return Verified((*lost, Damage("file", f"the database cannot be read: {error}")))


def _notices(connection: sqlite3.Connection, blobs: Path, before_ms: int) -> Iterator[str]:
    """What a process that was killed left, and a deletion takes away. Where it cannot be read, nobody can tell."""
    with suppress(sqlite3.DatabaseError, StorageError):
        for (session,) in connection.execute(
            "SELECT id FROM sessions JOIN deleted ON session = number ORDER BY number"
        ):
            yield f"The deletion of session {session} was not completed. `holdfast delete {session}` completes it."
        files = unneeded(connection, blobs, before_ms)
        if files:
            size = sum(path.stat().st_size for path in files)
            what = f"No session refers to {len(files)} of the files in {blobs} ({counted(size, 'byte')})"
            yield f"{what}: killed processes left them. The next `holdfast delete` removes them."


def _log_damages(path: Path) -> Iterator[Damage]:
    if is_log_lost(path):
        what = "the log beside it is missing, and with it what was committed last"
        yield Damage("file", f"{what}: nobody can tell how much that was")
    log, again = read_log(path), read_log(path)  # twice: others may write while it is read
    if log is not None and again is not None and log.salts == again.salts:
        commits = min(log.lost_commits, again.lost_commits)
        if commits:
            what = f"the log beside it is damaged: {commits} commits in it are not read"
            yield Damage("file", f"{what}, and the next command that writes takes them away for good")


class _Look:
    """One look at a home, with everything that is read only once."""

    def __init__(
        self, connection: sqlite3.Connection, blobs: Path, tables: set[str], is_sound: CheckSnapshot | None
    ) -> None:
        self.connection = connection
        self.tables = tables
        self.is_sound = is_sound
        self._blobs = blobs
        self._seen: dict[str, str] = {}

    def blob(self, sha256: str) -> str:
        """Return what is wrong with a blob; empty if it is whole."""
        if sha256 not in self._seen:
            try:
                read_blob(self._blobs, sha256)
                self._seen[sha256] = ""
            except StorageError as error:  # one that cannot be read hides no other damage
                self._seen[sha256] = error.message
        return self._seen[sha256]

    def rows(self, table: str, columns: str, number: int) -> list[Any]:
        """Return a session's rows in a table beside its journal. If the table is missing, return none: that damage is
        reported already."""
        if table not in self.tables:
            return []
        sql = f"SELECT {columns} FROM {table} WHERE session = ?"
        return self.connection.execute(sql, (number,)).fetchall()

    def snapshot(self, session: str, number: int) -> tuple[int, bytes]:
        """The snapshot of a session as it was written, and of which record it is; 0 for none."""
        for seq, kept in self.rows("snapshots", "seq, body", number):
            if (body := unsealed(kept, "snapshot", session, seq)) is not None:
                return seq, body
        return 0, b""


def _verify(
    connection: sqlite3.Connection, home: Path, version: int, is_sound: CheckSnapshot | None
) -> Verified:
    connection.text_factory = _decoded
    damages = list(_file_damages(connection))
    erased: list[Stretch] = []
    gone: list[Stretch] = []
    connection.execute("BEGIN")  # one moment for all that follows, while others go on writing
    there = _schema(connection)
    tables = {table for kind, _, table in there if kind == "table"}
    lost = sorted(_schema_of(version) - there)
    damages += [_lost(kind, name) for kind, name, table in lost if kind == "table" or table in tables]
    if _JOURNALS - tables:
        return Verified(tuple(damages))
    look = _Look(connection, home / BLOBS, tables, is_sound)
    for session in [row[0] for row in connection.execute("SELECT id FROM sessions ORDER BY number")]:
        try:
            found = _verify_session(look, session)
            damages += found.damages
            erased += found.erased
            gone += found.lost
        except StorageCorrupt as error:
            damages.append(Damage("row", error.message, session))
        except sqlite3.DatabaseError as error:
            damages.append(Damage("file", f"its records cannot be read: {error}", session))
    for table in sorted(tables & {*_ROWS, "snapshots"}):
        try:
            damages += _lost_rows(connection, table) if table in _ROWS else _snapshot_damages(connection)
        except sqlite3.DatabaseError as error:
            damages.append(Damage("file", f"some rows of {table} cannot be read: {error}"))
    damages += _image_damages(connection, home)
    return Verified(tuple(damages), tuple(erased), tuple(gone))


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
        migrate(sound, version)
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


def _verify_session(look: _Look, session: str) -> Verified:
    connection = look.connection
    own = lineage(connection, session)
    if not own:
        raise StorageCorrupt("its id is invalid")
    number, at_seq, head_seq = own[-1]
    records = stored(connection, session, number, at_seq, _NO_END)
    examined = examine(session, records, at_seq, link_at(connection, own, at_seq), head_seq)
    damages = list(examined.damages)
    row = _row(connection, session, damages)
    kept = Derived(row, _uses(look, number), _marks(look, number))
    damages += _inbox_damages(look, session, number)
    damages += _lease_damages(
        look, session, number, max((each.epoch for each in examined.records), default=0)
    )
    state = None
    if examined.is_whole:
        state = _state(look, session, row, own, examined, damages)
    damages += compare(session, head_seq, examined, state, kept)
    for record in examined.records:
        for sha256 in blobs_of(record.event):
            told = look.blob(sha256)
            if told:
                damages.append(Damage("blob", told, session, record.seq))
    return Verified(tuple(damages), examined.erased, examined.lost)


def _row(connection: sqlite3.Connection, session: str, damages: list[Damage]) -> SessionRow | None:
    """The session's row as it can be read, and whether the columns beside it say the same."""
    encoded, position, last, *columns = connection.execute(
        "SELECT row, position, (SELECT position FROM records AS r WHERE session = number AND r.seq = sessions.seq),"
        " key, status, title, updated_ms, due_ms FROM sessions WHERE id = ?",
        (session,),
    ).fetchone()
    try:
        row = msgspec.json.decode(encoded, type=SessionRow)
    except (msgspec.DecodeError, TypeError) as error:
        damages.append(Damage("row", f"its row cannot be read: {error}", session))
        return None
    if columns != [row.key, row.status, row.title, row.updated_ms, row.due_ms]:
        damages.append(Damage("row", "it is not listed as its row tells", session))
    elif not damages and last is not None and position != last:
        damages.append(Damage("row", "it is not listed in the order of its last record", session))
    return row


def _state(
    look: _Look,
    session: str,
    row: SessionRow | None,
    own: list[Segment],
    examined: Examined,
    damages: list[Damage],
) -> State | None:
    """The fold of all records of a whole session; on the way there, whether its snapshot is what was folded."""
    try:
        shared = [decode(each) for each in read(look.connection, session, 0, own[-1].after_seq)]
    except (StorageCorrupt, UnreadableEvent):  # the parent's, and told there
        return None
    records = [*shared, *examined.records]
    seq, body = look.snapshot(session, own[-1].number)
    state = fold(records[:seq], State(session=session, key=row.key if row is not None else ""))
    if 0 < seq <= len(records) and look.is_sound is not None:
        link = link_at(look.connection, own, seq) or b""
        if not look.is_sound(Recovered(seq, body, (), ()), state, link):
            what = f"its snapshot of record {seq} is not what the records before it come to"
            damages.append(Damage("row", what, session, seq))
    return fold(records[seq:], state)


def _uses(look: _Look, number: int) -> frozenset[str] | None:
    if "blob_uses" not in look.tables:
        return None
    return frozenset(row[0] for row in look.rows("blob_uses", "blob", number))


def _marks(look: _Look, number: int) -> dict[str, tuple[int, ...]] | None:
    if "approvals" not in look.tables:
        return None
    rows = look.rows("approvals", "id, asked_seq, decided_seq", number)
    return {name: (asked, decided) if decided else (asked,) for name, asked, decided in rows}


def _inbox_damages(look: _Look, session: str, number: int) -> Iterator[Damage]:
    """Yield waiting commands that have changed since they were accepted. Their session needs a repair to go on."""
    columns = "arrival, command_id, posted_ms, body"
    for arrival, name, posted_ms, kept in look.rows("inbox", columns, number):
        if kept is not None and unsealed(kept, "command", session, arrival, name, posted_ms) is None:
            what = f"the command {name!r} that waits for it is not what was accepted"
            yield Damage("row", f"{what}; a repair leaves it out", session)


def _lease_damages(look: _Look, session: str, number: int, last_epoch: int) -> Iterator[Damage]:
    """Yield a lease that no process took like this, or that would lead to an epoch being used again."""
    leases = look.rows("leases", "epoch, holder, term, from_ms, until_ms", number)
    if not leases and last_epoch and "leases" in look.tables:
        yield Damage(
            "row", f"its lease is missing, and its records were written in epoch {last_epoch}", session
        )
    for epoch, holder, seal, *term in leases:
        if not is_epoch(epoch, last_epoch):
            yield Damage("row", f"its lease says epoch {epoch!r}, its records {last_epoch}", session)
        elif holder is not None and holder_in(holder, seal, session, epoch, term) is None:
            yield Damage("row", "its lease is not the one that was taken", session)


def _image_damages(connection: sqlite3.Connection, home: Path) -> Iterator[Damage]:
    """Yield kept contents of edited files that have changed since. Only an undo is lost with them."""
    sessions = {row[0] for row in connection.execute("SELECT id FROM sessions")}
    key = key_of(home)
    if not key and any(images_in(home / FILES)):
        yield Damage("file", f"{home / FILES / KEY} is gone or was changed; no edit until now can be undone")
    for path in images_in(home / FILES):
        session, name = path.parent.name, path.name
        if session not in sessions:
            yield Damage("file", f"{path} was kept for a session that is not there; nothing needs it")
        elif key and not name.startswith(".") and file_mark(path, key) not in ("", name):
            yield Damage(
                "file", f"{path} was changed; an edit of session {session} cannot be undone", session
            )


def _lost_rows(connection: sqlite3.Connection, table: str) -> Iterator[Damage]:
    for number, count in connection.execute(
        f"SELECT session, count(*) FROM {table} WHERE session NOT IN (SELECT number FROM sessions)"
        " GROUP BY session"
    ):
        yield Damage("row", f"{count} {_ROWS[table]} under the number {number}, which no session has")


def _snapshot_damages(connection: sqlite3.Connection) -> Iterator[Damage]:
    """Yield snapshots that no commit left like this. Only the code that makes snapshots can check their content."""
    for number, seq, kept, session, head_seq, is_there in connection.execute(
        "SELECT s.session, s.seq, s.body, id, sessions.seq, s.seq BETWEEN 1 AND sessions.seq"
        " FROM snapshots AS s LEFT JOIN sessions ON number = s.session"
    ):
        if session is None:
            yield Damage(
                "row", f"a snapshot lies under the number {number}, which no session has; nothing needs it"
            )
        elif not is_there:
            what = f"its snapshot is of record {seq}, and its journal ends at {head_seq}"
            yield Damage("row", f"{what}; {_COSTS_TIME}: {_READ_WHOLE}", session)
        elif unsealed(kept, "snapshot", session, seq) is None:
            what = "its snapshot is not what was written"
            yield Damage("row", f"{what}; {_COSTS_TIME}: {_READ_WHOLE}", session)


_ROWS = {
    "records": "records lie",
    "blob_uses": "blobs are listed as used",
    "approvals": "approvals are listed",
    "inbox": "commands lie",
    "leases": "leases lie",
}
"""What the rows of each table are called, for tables whose rows belong to sessions."""
