"""Saves what can be read of a damaged database in a new file. It never changes the damaged one.

It saves the records that are as they were written. The places of the others stay empty, like those of erased records,
so that nothing continues a journal with a hole. Rows that derive from records are made again. `fsck` finds damage.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.core.summary import summary
from holdfast.errors import StorageCorrupt, StorageError, UsageError
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.codec import (
    FIRST_LINK,
    LOST,
    StoredRecord,
    UnreadableEvent,
    decode,
    encode_json,
    link_after,
)
from holdfast.protocol.events import Event, Record, SessionForked, SessionOpened, SessionRenamed
from holdfast.protocol.ids import is_command_id, is_session_id, is_session_key, session_id
from holdfast.protocol.rows import Salvaged, SessionRow, Stretch
from holdfast.protocol.spending import Amounts, Line
from holdfast.storage.blobs import read_blob, sync_folder
from holdfast.storage.chain import proven, stretches
from holdfast.storage.derived import approvals_of, is_epoch, new_row, own_records
from holdfast.storage.errors import storage_errors
from holdfast.storage.home import BLOBS
from holdfast.storage.migrations import migrate
from holdfast.storage.reads import read
from holdfast.storage.seals import unsealed
from holdfast.storage.wreck import Row, Wreck, wreck_of
from holdfast.storage.writes import put_lines, put_records

_NOTHING = bytes(32)
"""Takes the place of the digest of an unknown body."""
_MOST_LOST = 1_000_000
"""A gap that is larger is a damaged number, not a gap."""


class Session(msgspec.Struct):
    """What is left of a session's row, and what the repair finds out about the session."""

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
    """The old links of the chain, if the session has a hole: behind it the new links differ."""


def salvage(home: Path, file: Path) -> Salvaged:
    """Save every readable record of a home's database into a new database.

    Raises:
        UsageError: the file exists, or its folder does not.
        StorageError: there is no database, or the file cannot be written.
    """
    if os.path.lexists(file):
        raise UsageError(f"{file} is there already.", hint="Name a file that is not.")
    if not os.path.isdir(file.parent):  # noqa: PTH112 - it may be in a closed folder
        raise UsageError(f"The folder of {file} is not there.", hint="Make it, or name another file.")
    with wreck_of(home, file.parent) as wreck, storage_errors(file):
        return _save_into(file, wreck, home / BLOBS)


def _save_into(file: Path, wreck: Wreck, blobs: Path) -> Salvaged:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as new:
            migrate(new)
            new.execute("BEGIN")
            salvaged = _Salvage(wreck, new, blobs).run()
            new.execute("COMMIT")
            new.execute("PRAGMA journal_mode = WAL")  # last: no part of it is ever in a log beside it
        sync_folder(file.parent)
        return salvaged
    except BaseException:
        file.unlink()
        raise


class _Salvage:
    """One walk over a damaged database."""

    def __init__(self, wreck: Wreck, new: sqlite3.Connection, blobs: Path) -> None:
        self._wreck = wreck
        self._new = new
        self._blobs = blobs
        self._sessions: dict[int, Session] = {}
        self._names: set[str] = set()
        """The ids and keys that are taken."""
        self._lost: list[Stretch] = []
        self._notes: list[str] = []
        self._records = 0

    def run(self) -> Salvaged:
        places = self._wreck.places()
        found = {each.number: each for each in self._found_sessions()}
        commands = self._wreck.rows("inbox", "arrival", "session, command_id, posted_ms, body")
        names = self._wreck.inbox_names()
        last = max((place for each in places.values() for place in each), default=0)
        for number in sorted(places.keys() | found.keys()):
            session = found.get(number) or Session(number)
            last = self._save(session, places.get(number, ()), last)
        if not self._sessions and self._wreck.is_guessed:
            raise StorageCorrupt(f"nothing in {self._wreck.path} can be read; it was left as it is")
        deleted = [row for row in self._wreck.deleted() if row[0] not in self._sessions]
        named = {row[1] for row in commands} | {number for number, _ in names.values()}
        self._tell_lost_sessions(named, {row[0] for row in deleted})
        self._save_inbox(commands, names)
        self._new.executemany("INSERT INTO deleted VALUES (?, ?, ?)", deleted)
        self._save_ledger()
        notes = (*self._wreck.notes, *self._notes, *self._lost_blobs())
        return Salvaged(len(self._sessions), self._records, tuple(self._lost), notes)

    def _save_ledger(self) -> None:
        """Save the lines of the books that can be read."""
        columns = "session, key, begun_ms, user, model, purpose, spent, estimated, held"
        for _, *row in self._wreck.rows("ledger", "line", columns):
            session, key, begun_ms, user, model, purpose, *amounts = row
            is_text = all(isinstance(each, str) for each in (session, key, user, model, purpose))
            if is_text and all(isinstance(each, int) for each in (begun_ms, *amounts)):
                line = Line(session, key, begun_ms, user, model, purpose, Amounts(*amounts))
                put_lines(self._new, [line])
            else:
                self._notes.append("a line of the books: more was spent than `holdfast budget` says")

    def _found_sessions(self) -> Iterator[Session]:
        epochs: dict[int, object] = dict(self._wreck.rows("leases", "session", "epoch"))
        columns = "id, key, parent, at_seq, seq, row"
        for number, name, key, parent, at_seq, head_seq, row in self._wreck.rows(
            "sessions", "number", columns
        ):
            session = Session(number, row=row if isinstance(row, bytes) else b"")
            session.id = name if isinstance(name, str) and is_session_id(name) else ""
            session.key = key if isinstance(key, str) and is_session_key(key) else ""
            session.head_seq = head_seq if isinstance(head_seq, int) else 0
            epoch = epochs.get(number)
            session.epoch = epoch if is_epoch(epoch, 0) else 0
            if isinstance(parent, int) and isinstance(at_seq, int) and 0 < parent < number and at_seq > 0:
                session.parent, session.at_seq = parent, at_seq
            yield session

    def _tell_lost_sessions(self, named: set[object], deleted: set[int]) -> None:
        """Note the sessions of which only a number is left: something names it, or it is missing in the count. One
        that was deleted is not lost.
        """
        gone = self._sessions.keys() | deleted
        known = sorted({number for number in named if isinstance(number, int)} | gone)
        for before, number in pairwise([0, *known]):
            first = before + 1 if number - before < _MOST_LOST else number
            last = number - 1 if number in gone else number
            if first <= last:
                self._notes.append(
                    f"the sessions with the numbers {first} to {last}, with all that was in them"
                )

    # --- a session --------------------------------------------------------------------------------

    def _save(self, session: Session, places: Sequence[int], last_position: int) -> int:
        """Write what is left of a session. Return the last position that is used then."""
        at = self._wreck.records(places)
        parent = self._parent(session, at[min(at)][1] if at else None)
        after_seq = session.at_seq
        shared = read(self._new, parent.id, 0, after_seq) if parent is not None else []
        link = shared[-1].link if shared else FIRST_LINK
        old_link: bytes | None = link
        if parent is not None and 0 < parent.hole <= after_seq:
            session.hole, old_link = parent.hole, parent.old_links.get(after_seq)
        own = [record for _, record in at.values() if record.seq > after_seq]
        kept = proven(own, after_seq, old_link)
        unproven = {seq for seq in kept if seq - 1 > after_seq and seq - 1 not in at}
        kept = {seq: record for seq, record in kept.items() if _is_readable(record, seq in unproven)}
        self._name(session, kept)
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
        self._notes += [
            f"session {session.id}: record {seq} is saved, and nothing is left to prove it"
            for seq in sorted(unproven & kept.keys())
        ]
        self._derive(session, saved, place)
        if session.hole:
            session.old_links = {seq: record.link for seq, record in kept.items()}
        self._sessions[session.number] = session
        return last_position

    def _parent(self, session: Session, first: StoredRecord | None) -> Session | None:
        """The session that it branched off from, as its first own record says, else its row."""
        parent = self._sessions.get(session.parent) if session.parent is not None else None
        event = _event(first)
        if first is not None and isinstance(event, SessionForked):
            named = next((each for each in self._sessions.values() if each.id == event.parent), None)
            parent, session.at_seq = named or parent, first.seq - 1
        if parent is None or parent.head_seq < session.at_seq:
            session.parent, session.at_seq = None, 0
            return None
        session.parent = parent.number
        return parent

    def _end(self, session: Session, kept: dict[int, StoredRecord]) -> int:
        """The last seq that the session had, as far as anybody can tell; what lies behind a gap that cannot be is
        left out."""
        end_seq = 0
        with suppress(msgspec.DecodeError):
            if msgspec.json.decode(session.row, type=SessionRow).seq == session.head_seq:
                end_seq = session.head_seq
        end = session.at_seq
        for seq in sorted(kept):
            if seq - end > (_MOST_LOST if not end_seq else max(end_seq - end, 1)):
                self._notes.append(f"session {session.id}: a record numbered {seq} belongs nowhere")
                del kept[seq]
            else:
                end = seq
        if end_seq:
            return max(end, min(end_seq, end + _MOST_LOST))
        self._notes.append(
            f"session {session.id}: where it ended is not certain; it is saved up to record {end}"
        )
        return end

    def _name(self, session: Session, kept: dict[int, StoredRecord]) -> None:
        """Choose the id and key of a session: those in its records, which the chain proves, else those in the row.
        The first record has them; in an imported branch, the last record that branched off.
        """
        forks = [record for record in kept.values() if record.type == SessionForked.__name__]
        first = max(forks, key=lambda record: record.seq, default=kept.get(session.at_seq + 1))
        event = _event(first)
        named = event.session if isinstance(event, SessionOpened | SessionForked) else ""
        made = session_id(first.at_ms if first is not None else 0, session.number.to_bytes(10, "big"))
        free = [name for name in (named, session.id, made) if is_session_id(name) and name not in self._names]
        if free[0] != session.id:
            self._notes.append(f"session {free[0]}: its row was lost or changed, and is made anew")
        if isinstance(event, SessionOpened):
            session.key = event.key if is_session_key(event.key) else ""
        renamed = [record for record in kept.values() if record.type == SessionRenamed.__name__]
        last = _event(max(renamed, key=lambda record: record.seq, default=None))
        if isinstance(last, SessionRenamed):
            session.key = last.key if is_session_key(last.key) else ""
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
            self._new.execute(
                "INSERT INTO leases (session, epoch, from_ms, until_ms) VALUES (?, ?, 0, 0)",
                (session.number, session.epoch),
            )
        own = [record for record in records if record.seq > session.at_seq]
        blobs = {blob for record in own for blob in blobs_of(record.event)}
        self._new.executemany(
            "INSERT INTO blob_uses VALUES (?, ?)", [(blob, session.number) for blob in sorted(blobs)]
        )
        self._new.executemany(
            "INSERT OR IGNORE INTO approvals VALUES (?, ?, ?, ?)",
            [(name, session.number, *seqs, 0)[:4] for name, seqs in approvals_of(own_records(own)).items()],
        )

    # --- beside the journals ----------------------------------------------------------------------

    def _save_inbox(self, commands: Sequence[Row], names: dict[int, tuple[int, str]]) -> None:
        for arrival, number, name, posted_ms, body in commands:
            session = self._sessions.get(number) if isinstance(number, int) else None
            is_named = isinstance(name, str) and is_command_id(name)
            whose = (
                f"session {session.id}: the command {name!r}"
                if session is not None
                else f"the command {name!r}"
            )
            if session is None or not is_named or not isinstance(posted_ms, int):
                self._notes.append(f"{whose}: it belongs nowhere")
            elif body is not None and not unsealed(body, "command", session.id, arrival, name, posted_ms):
                self._notes.append(f"{whose}: it is not what was accepted, and was left out")
            elif not self._new.execute(
                "INSERT OR IGNORE INTO inbox VALUES (?, ?, ?, ?, ?)", (arrival, number, name, posted_ms, body)
            ).rowcount:
                self._notes.append(f"{whose}: there is another one of that name")
        read = {arrival: (number, name) for arrival, number, name, *_ in commands}
        for arrival, (number, name) in sorted(names.items()):
            if read.get(arrival) != (number, name) and number in self._sessions:
                self._notes.append(
                    f"session {self._sessions[number].id}: the command {name!r} cannot be read"
                )

    def _lost_blobs(self) -> Iterator[str]:
        for sha256, name in self._new.execute(
            "SELECT blob, group_concat(id, ', ') FROM blob_uses JOIN sessions ON number = session GROUP BY blob"
        ):
            try:
                read_blob(self._blobs, sha256)
            except StorageError as error:
                yield f"{error.message} (session {name})"


def _event(record: StoredRecord | None) -> Event | None:
    """Return the event of the record; None if the record is missing or cannot be read."""
    try:
        return decode(record).event if record is not None else None
    except UnreadableEvent:
        return None


def _row(session: Session, records: list[Record]) -> SessionRow:
    """Return the row of a session: the summary of its journal if that is complete, else the old row, else the summary
    of what is left."""
    state = State(session=session.id, key=session.key)
    if not session.hole and session.head_seq:
        return summary(fold(records, state))
    try:
        row = msgspec.json.decode(session.row, type=SessionRow)
    except msgspec.DecodeError:
        row = summary(fold(records, state))
    if not session.head_seq:
        return new_row(session.id, session.key, row.updated_ms)
    return msgspec.structs.replace(row, session=session.id, key=session.key, seq=session.head_seq)


def _is_readable(record: StoredRecord, is_unproven: bool) -> bool:
    """Return whether some version can read the record, if the chain proves it; else whether this version can."""
    try:
        decode(record)
    except UnreadableEvent as error:
        return error.why == "erased" or (error.why == "newer" and not is_unproven)
    return True
