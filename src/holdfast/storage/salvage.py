"""Saving what can be read of a damaged database into a new file; the damaged one is only read.

Records are taken that are what was written; the others leave their places empty, as erased records do, so that nobody
goes on from a journal with a hole. What derives from records is made anew. What is wrong with a home is `fsck`'s.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.core.summary import summary
from holdfast.errors import StorageError, UsageError
from holdfast.protocol.codec import (
    FIRST_LINK,
    StoredRecord,
    UnreadableEvent,
    decode,
    decode_command,
    encode_json,
    link_after,
)
from holdfast.protocol.events import Event, Record, SessionForked, SessionOpened, blobs_of
from holdfast.protocol.ids import is_command_id, is_session_id, is_session_key, session_id
from holdfast.protocol.rows import Salvaged, SessionRow, Stretch
from holdfast.storage.chain import proven, stretches
from holdfast.storage.derived import approvals_of
from holdfast.storage.errors import not_ours, primary_code, storage_errors
from holdfast.storage.home import DATABASE, check_file, check_version, connect_to_read
from holdfast.storage.migrations import NEWEST, migrate, version
from holdfast.storage.reads import read
from holdfast.storage.writes import put_records

LOST = "Lost"
"""The type of a record in whose place nothing could be read."""
_NOTHING = bytes(32)
"""In the place of the digest of a body that nobody knows."""
_BUSY_S = 5.0
_LEAST_ROW_BYTES = 40
"""Hardly a row is shorter: a bound for how many there can be in a file."""
_LARGEST = (1 << 62) - 1
_MOST_LOST = 1_000_000
"""A gap that is larger is a damaged number, not a gap."""
_RECORD = "seq, at_ms, awake_ms, epoch, cause, type, v, body, link, digest"
_TYPES = (int, int, int, int, str, str, int, bytes, bytes, bytes)


class Session(msgspec.Struct):
    """What is left of a session's row, and what of it is found while it is saved."""

    number: int
    id: str = ""
    key: str = ""
    parent: int | None = None
    at_seq: int = 0
    head_seq: int = 0
    row: bytes = b""
    epoch: int = 0
    """The largest one that was ever in use."""
    hole: int = 0
    """The first of its records that is lost or erased; 0: none is."""
    old_links: dict[int, bytes] = {}
    """Where there is a hole, the links as they were: behind it the new ones are others."""


def salvage(home: Path, file: Path) -> Salvaged:
    """Save every readable record of a home's database into a new database.

    Raises:
        UsageError: the file exists, or its folder does not.
        StorageError: there is no database, or the file cannot be written.
    """
    if file.exists():
        raise UsageError(f"{file} is there already.", hint="Name a file that is not.")
    if not file.parent.is_dir():
        raise UsageError(f"The folder of {file} is not there.", hint="Make it, or name another file.")
    path = home / DATABASE
    with storage_errors(path):
        check_file(home)
        if not path.exists():
            raise StorageError(f"there is no database at {path}")
        old = connect_to_read(path, _BUSY_S)
    with closing(old):
        with storage_errors(path):
            _check_is_ours(old, path)
        with storage_errors(file):
            return _save_into(file, old, path.stat().st_size)


def _check_is_ours(old: sqlite3.Connection, path: Path) -> None:
    old.text_factory = _decoded
    old.execute(
        "PRAGMA writable_schema = ON"
    )  # which has SQLite read a torn file, and tables of a damaged schema
    if version(old) > NEWEST:
        check_version(old, path)
    tables = {row[0] for row in old.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables & {"records", "sessions"}:
        raise not_ours(path)


def _save_into(file: Path, old: sqlite3.Connection, size_bytes: int) -> Salvaged:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as new:
            new.execute("PRAGMA journal_mode = WAL")
            migrate(new)
            new.execute("BEGIN")
            salvaged = _Salvage(old, new, size_bytes).run()
            new.execute("COMMIT")
        return salvaged
    except BaseException:
        file.unlink()
        raise


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")


class _Salvage:
    """One walk over a damaged database."""

    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection, size_bytes: int) -> None:
        self._old = old
        self._new = new
        self._most_rows = size_bytes // _LEAST_ROW_BYTES
        self._sessions: dict[int, Session] = {}
        self._names: set[str] = set()
        """The ids and keys that are taken."""
        self._lost: list[Stretch] = []
        self._notes: list[str] = []
        self._records = 0

    def run(self) -> Salvaged:
        places: dict[int, list[int]] = defaultdict(list)
        for position, number in self._rows("records", "position", "session"):
            if isinstance(number, int) and number > 0:
                places[number].append(position)
        found = {each.number: each for each in self._found_sessions()}
        last = max((place for each in places.values() for place in each), default=0)
        for number in sorted(places.keys() | found.keys()):
            session = found.get(number) or Session(number)
            last = self._save(session, places[number], last)
        self._save_inbox()
        return Salvaged(len(self._sessions), self._records, tuple(self._lost), tuple(self._notes))

    # --- reading ----------------------------------------------------------------------------------

    def _rows(self, table: str, number: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """All rows that can be read, each behind its number: around what cannot be, by ever smaller steps."""
        sql = f"SELECT {number}, {columns} FROM {table} WHERE {number} BETWEEN ? AND ? ORDER BY {number}"
        spans = [(1, _LARGEST)]
        while spans:
            first, last = spans.pop()
            try:
                yield from self._old.execute(sql, (first, last)).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_ERROR:
                    self._notes.append(f"the table {table} cannot be read: {error}")
                    return
                last = min(last, self._most_rows)
                if first < last:
                    middle = (first + last) // 2
                    spans += [(middle + 1, last), (first, middle)]

    def _found_sessions(self) -> Iterator[Session]:
        epochs = dict(self._rows("leases", "session", "epoch"))
        columns = "id, key, parent, at_seq, seq, row"
        for number, name, key, parent, at_seq, head_seq, row in self._rows("sessions", "number", columns):
            session = Session(number, row=row if isinstance(row, bytes) else b"")
            session.id = name if isinstance(name, str) and is_session_id(name) else ""
            session.key = key if isinstance(key, str) and is_session_key(key) else ""
            session.head_seq = head_seq if isinstance(head_seq, int) else 0
            session.epoch = epochs[number] if isinstance(epochs.get(number), int) else 0
            if isinstance(parent, int) and isinstance(at_seq, int) and 0 < parent < number and at_seq > 0:
                session.parent, session.at_seq = parent, at_seq
            yield session

    def _stored(self, places: Sequence[int]) -> Iterator[tuple[int, StoredRecord]]:
        """The records at these positions that can be read, in the order of their seq, one for each."""
        read: dict[int, tuple[int, StoredRecord]] = {}
        for place in places:
            with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                row = self._old.execute(
                    f"SELECT {_RECORD} FROM records WHERE position = ?", (place,)
                ).fetchone()
                if row is not None and tuple(map(type, row)) == _TYPES and row[0] > 0:
                    read.setdefault(row[0], (place, StoredRecord("", *row)))
        return iter([read[seq] for seq in sorted(read)])

    # --- a session --------------------------------------------------------------------------------

    def _save(self, session: Session, places: Sequence[int], last_position: int) -> int:
        """Write what is left of a session; the last position that is taken then."""
        at = {record.seq: (place, record) for place, record in self._stored(places)}
        parent = self._parent(session, at[min(at)][1] if at else None)
        after_seq = session.at_seq
        shared = read(self._new, parent.id, 0, after_seq) if parent is not None else []
        link = shared[-1].link if shared else FIRST_LINK
        old_link: bytes | None = link
        if parent is not None and 0 < parent.hole <= after_seq:
            session.hole, old_link = parent.hole, parent.old_links.get(after_seq)
        own = [record for _, record in at.values() if record.seq > after_seq]
        kept = proven(own, after_seq, old_link)
        kept = {seq: record for seq, record in kept.items() if not _is_damaged(record)}
        self._name(session, kept.get(after_seq + 1))
        session.head_seq = self._end(session, kept)
        lost: list[int] = []
        saved = shared
        place = at_ms = 0
        for seq in range(after_seq + 1, session.head_seq + 1):
            record = kept.get(seq)
            if record is None:
                lost.append(seq)
                record = StoredRecord("", seq, at_ms, 0, session.epoch, "attach", LOST, 0, b"", b"", _NOTHING)
            if seq in at:
                place = at[seq][0]
            else:
                last_position += 1
                place = last_position
            at_ms, session.epoch = record.at_ms, max(session.epoch, record.epoch)
            link = link_after(link, seq, record)
            saved.append(msgspec.structs.replace(record, link=link))
            put_records(self._new, session.number, [(place, saved[-1])])
        self._records += session.head_seq - after_seq - len(lost)
        self._lost += stretches(session.id, lost)
        self._derive(session, saved, place)
        if session.hole:
            session.old_links = {seq: record.link for seq, record in kept.items()}
        self._sessions[session.number] = session
        return last_position

    def _parent(self, session: Session, first: StoredRecord | None) -> Session | None:
        """The session that it branched off from, as its row says, else its first own record."""
        parent = self._sessions.get(session.parent) if session.parent is not None else None
        event = _event(first)
        if parent is None and first is not None and isinstance(event, SessionForked):
            parent = next((each for each in self._sessions.values() if each.id == event.parent), None)
            session.at_seq = first.seq - 1
        if parent is None or parent.head_seq < session.at_seq:
            session.parent, session.at_seq = None, 0
            return None
        session.parent = parent.number
        return parent

    def _end(self, session: Session, kept: dict[int, StoredRecord]) -> int:
        """The last seq that the session had, as far as anybody can tell; what lies behind a gap that cannot be is
        left out."""
        end = session.at_seq
        for seq in sorted(kept):
            if seq - end > _MOST_LOST:
                self._notes.append(f"session {session.id}: a record numbered {seq} belongs nowhere")
                del kept[seq]
            else:
                end = seq
        with suppress(msgspec.DecodeError):
            if msgspec.json.decode(session.row, type=SessionRow).seq == session.head_seq:
                return max(end, min(session.head_seq, end + _MOST_LOST))
        self._notes.append(
            f"session {session.id}: where it ended is not certain; it is saved up to record {end}"
        )
        return end

    def _name(self, session: Session, first: StoredRecord | None) -> None:
        """Its id and key: those in the first own record, which the chain proves, before those in the row."""
        event = _event(first)
        named = event.session if isinstance(event, SessionOpened | SessionForked) else ""
        made = session_id(first.at_ms if first is not None else 0, session.number.to_bytes(10, "big"))
        free = [name for name in (named, session.id, made) if is_session_id(name) and name not in self._names]
        if free[0] != session.id:
            self._notes.append(f"session {free[0]}: its row was lost or changed, and is made anew")
        if not session.id and isinstance(event, SessionOpened) and is_session_key(event.key):
            session.key = event.key
        session.id, session.key = free[0], session.key if session.key not in self._names else ""
        self._names |= {session.id, session.key} - {""}

    def _derive(self, session: Session, saved: Sequence[StoredRecord], position: int) -> None:
        """Make its rows from its records, the shared ones before its own."""
        records: list[Record] = []
        for stored in saved:
            try:
                records.append(decode(stored))
            except UnreadableEvent:
                session.hole = session.hole or stored.seq
        row = _row(session, records)
        self._new.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (session.number, session.id, session.key, row.status, row.title, row.updated_ms, row.due_ms,
             session.head_seq, position, session.parent, session.at_seq, encode_json(row)),
        )  # fmt: skip
        if session.epoch:
            self._new.execute("INSERT INTO leases VALUES (?, ?, NULL, 0, 0)", (session.number, session.epoch))
        own = [record for record in records if record.seq > session.at_seq]
        blobs = {blob for record in own for blob in blobs_of(record.event)}
        self._new.executemany(
            "INSERT INTO blob_uses VALUES (?, ?)", [(blob, session.number) for blob in sorted(blobs)]
        )
        self._new.executemany(
            "INSERT OR IGNORE INTO approvals VALUES (?, ?, ?, ?)",
            [(name, session.number, *seqs, 0)[:4] for name, seqs in approvals_of(own).items()],
        )

    # --- the inbox --------------------------------------------------------------------------------

    def _save_inbox(self) -> None:
        columns = "session, command_id, posted_ms, body"
        for arrival, number, name, posted_ms, body in self._rows("inbox", "arrival", columns):
            session = self._sessions.get(number) if isinstance(number, int) else None
            if session is None or not isinstance(name, str) or not is_command_id(name):
                self._notes.append("a command lay in the inbox of no session, and is lost")
            elif body is not None and not _is_command(body):
                self._notes.append(f"session {session.id}: the command {name!r} cannot be read, and is lost")
            elif isinstance(posted_ms, int):
                self._new.execute(
                    "INSERT OR IGNORE INTO inbox VALUES (?, ?, ?, ?, ?)",
                    (arrival, number, name, posted_ms, body),
                )


def _event(record: StoredRecord | None) -> Event | None:
    """What the record says; None where there is none, or it cannot be read."""
    try:
        return decode(record).event if record is not None else None
    except UnreadableEvent:
        return None


def _row(session: Session, records: list[Record]) -> SessionRow:
    """Of a whole journal, what it comes to; else what the old row said, or what is left comes to."""
    state = State(session=session.id, key=session.key)
    if not session.hole and session.head_seq:
        return summary(fold(records, state))
    try:
        row = msgspec.json.decode(session.row, type=SessionRow)
    except msgspec.DecodeError:
        row = summary(fold(records, state))
    return msgspec.structs.replace(row, session=session.id, key=session.key, seq=session.head_seq)


def _is_damaged(record: StoredRecord) -> bool:
    """Whether no version can read it: of a record behind a hole the only proof."""
    try:
        decode(record)
    except UnreadableEvent as error:
        return error.why == "damaged"
    return False


def _is_command(body: object) -> bool:
    if not isinstance(body, bytes):
        return False
    try:
        decode_command(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
