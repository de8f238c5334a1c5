"""Every question to the database, as functions on a reader's connection.

Records never change and a session's `seq` only grows, so that a question of two statements needs no
transaction: it asks for the end first, and reads up to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.errors import StorageCorrupt
from holdfast.protocol.codec import FIRST_LINK, Selected, StoredRecord
from holdfast.protocol.ids import is_session_id, is_session_key, is_session_prefix
from holdfast.protocol.rows import (
    Approval,
    Holder,
    InboxEntry,
    Lease,
    Mark,
    News,
    Recovered,
    SessionRow,
    Situation,
    Sought,
)
from holdfast.protocol.spending import Amounts, Line
from holdfast.storage.approvals import approval_row
from holdfast.storage.chain import checked
from holdfast.storage.seals import holder_in, unsealed
from holdfast.storage.search import SAID_IN, is_in, says

T = TypeVar("T")

_row_decoder = msgspec.json.Decoder(SessionRow)
_holder_decoder = msgspec.json.Decoder(Holder)

_RECORDS = (
    "SELECT seq, at_ms, awake_ms, epoch, cause, type, v, body, link, digest FROM records"
    " WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq"
)
_SOUGHT_LINES = "begun_ms >= :since AND :session IN ('', session)"
_NEWEST = "ORDER BY position DESC, number DESC"
LAST_POSITION = (
    "max((SELECT ifnull(max(position), 0) FROM records), (SELECT ifnull(max(position), 0) FROM deleted))"
)
"""The last position that a record ever had, so that no position is used twice."""
LAST_ARRIVAL = (
    "max((SELECT ifnull(max(arrival), 0) FROM inbox), (SELECT ifnull(max(arrival), 0) FROM deleted))"
)
"""The last arrival that a command ever had."""
LAST_NUMBER = (
    "max((SELECT ifnull(max(number), 0) FROM sessions), (SELECT ifnull(max(session), 0) FROM deleted))"
)
"""The last number that a session ever had."""
_GRANTS = b'"grants":'
_MARKED = (
    "SELECT a.id, s.id, asked_seq, decided_seq FROM approvals AS a JOIN sessions AS s ON s.number = a.session"
)
_ROW = "id, CAST(key AS BLOB), CAST(status AS BLOB), CAST(title AS BLOB), updated_ms, seq, row"
"""The columns that `_session_row` takes. Texts are read as bytes: a damaged one would otherwise stop the list of all
sessions."""


class Term(NamedTuple):
    """When a lease is in force, by the store's clock: from `from_ms` on, before `until_ms`.

    The beginning is kept since that clock begins anew with the machine: a lease of an earlier time, which would
    seem to be in force for days, has not begun.
    """

    from_ms: int
    until_ms: int

    def left_ms(self, now_ms: int) -> int:
        """How much of it is left; 0: all is over."""
        return self.until_ms - now_ms if self.from_ms <= now_ms < self.until_ms else 0


class Segment(NamedTuple):
    """A stretch of a journal that lies under one session's number: (after_seq, upto_seq]."""

    number: int
    after_seq: int
    upto_seq: int


def lineage(connection: sqlite3.Connection, session: str) -> list[Segment]:
    """Return the places of the records of a session, oldest stretch first; empty for an unknown session.

    Raises:
        StorageCorrupt: the link to a parent leads nowhere.
    """
    found = connection.execute(
        "SELECT number, seq, at_seq, parent FROM sessions WHERE id = ?", (session,)
    ).fetchone()
    if found is None:
        return []
    number, upto_seq, at_seq, parent = found
    if not (isinstance(upto_seq, int) and isinstance(at_seq, int)):
        raise _no_row(session)
    segments = [Segment(number, at_seq, upto_seq)]
    while parent is not None:
        found = connection.execute(
            "SELECT number, at_seq, parent FROM sessions WHERE number = ? AND number < ?", (parent, number)
        ).fetchone()
        if found is None:
            raise StorageCorrupt(f"the session that {session} branched off from is missing")
        upto_seq = min(upto_seq, at_seq)
        number, at_seq, parent = found
        segments.append(Segment(number, at_seq, upto_seq))
    if at_seq:
        raise StorageCorrupt(f"the session that {session} branched off from is missing")
    return segments[::-1]


def read(
    connection: sqlite3.Connection, session: str, after_seq: int, upto_seq: int | None
) -> list[StoredRecord]:
    """Do what `Store.read` says."""
    segments = lineage(connection, session)
    end_seq = segments[-1].upto_seq if segments else 0
    if upto_seq is not None:
        end_seq = min(end_seq, upto_seq)
    if end_seq <= after_seq:
        return []
    records: list[StoredRecord] = []
    for segment in segments:
        bounds = (max(after_seq, segment.after_seq), min(end_seq, segment.upto_seq))
        if bounds[0] < bounds[1]:
            records += stored(connection, session, segment.number, *bounds)
    link = link_at(connection, segments, after_seq)
    if link is None:
        raise StorageCorrupt(f"record {after_seq} of session {session} is missing")
    return checked(session, records, after_seq, link, end_seq)


def stored(
    connection: sqlite3.Connection, session: str, number: int, after_seq: int, upto_seq: int
) -> list[StoredRecord]:
    """The records under a session's number with after_seq < seq <= upto_seq, unchecked."""
    rows = connection.execute(_RECORDS, (number, after_seq, upto_seq))
    return [StoredRecord(session, *row) for row in rows]


def select(
    connection: sqlite3.Connection,
    session: str,
    types: Sequence[str],
    upto_seq: int,
    read: Callable[[Iterator[Selected]], T],
    from_seq: int,
    also: Sequence[int],
) -> T:
    """Do what `Store.select` says."""
    with closing(_selected(connection, session, types, upto_seq, from_seq, also)) as records:
        return read(records)


def _selected(
    connection: sqlite3.Connection,
    session: str,
    types: Sequence[str],
    upto_seq: int,
    from_seq: int,
    also: Sequence[int],
) -> Generator[Selected, None, None]:
    places = ", ".join("?" * len(types))
    segments = list(lineage(connection, session))
    for seq in sorted(each for each in set(also) if each < from_seq):
        for segment in segments:
            if segment.after_seq < seq <= segment.upto_seq:
                yield from connection.execute(
                    "SELECT seq, type, v, body FROM records WHERE session = ? AND seq = ?",
                    (segment.number, seq),
                )
    for segment in segments:
        yield from connection.execute(
            "SELECT seq, type, v, body FROM records WHERE session = ? AND seq > ? AND seq <= ?"
            f" AND type IN ({places}) ORDER BY seq",
            (segment.number, max(segment.after_seq, from_seq - 1), min(upto_seq, segment.upto_seq), *types),
        )


def recover(connection: sqlite3.Connection, session: str) -> Recovered:
    """Do what `Store.recover` says."""
    found = connection.execute(
        "SELECT seq, body FROM snapshots WHERE session = (SELECT number FROM sessions WHERE id = ?)",
        (session,),
    ).fetchone()
    seq, kept = found or (0, b"")
    snapshot = unsealed(kept, "snapshot", session, seq)
    if snapshot is None or not 0 < seq <= last_seq(connection, session):  # a damaged snapshot does not count
        seq, snapshot = 0, b""
    records = read(connection, session, seq, None)
    return Recovered(seq, snapshot, tuple(records), tuple(inbox(connection, session)))


def link_at(connection: sqlite3.Connection, segments: list[Segment], seq: int) -> bytes | None:
    """The link of the record with that seq, wherever in the lineage it lies; None when it is missing."""
    if seq == 0:
        return FIRST_LINK
    for segment in segments:
        if segment.after_seq < seq <= segment.upto_seq:
            found = connection.execute(
                "SELECT link FROM records WHERE session = ? AND seq = ?", (segment.number, seq)
            ).fetchone()
            return found[0] if found is not None else None
    return None


def last_seq(connection: sqlite3.Connection, session: str) -> int:
    """Do what `Store.last_seq` says."""
    found = connection.execute("SELECT seq FROM sessions WHERE id = ?", (session,)).fetchone()
    if found is not None and not isinstance(found[0], int):
        raise _no_row(session)
    return int(found[0]) if found is not None else 0


def _no_row(session: str) -> StorageCorrupt:
    """The refusal of a row in which a flipped bit made another type of a value."""
    return StorageCorrupt(
        f"the row of session {session} is damaged", hint="`holdfast fsck` lists all damage."
    )


def news(connection: sqlite3.Connection, since: Mark | None) -> News:
    """Do what `Store.news` says."""
    found = connection.execute(
        f"SELECT {LAST_POSITION}, {LAST_ARRIVAL}, (SELECT count(*) FROM inbox WHERE body IS NOT NULL)"
    ).fetchone()
    mark = Mark(*found)
    if since is None or since == mark:
        return News(mark)
    bounds = (since.records, mark.records), (since.commands, mark.commands)
    return News(
        mark,
        _sessions_of(
            connection, "SELECT session FROM records WHERE position > ? AND position <= ?", bounds[0]
        ),
        _sessions_of(connection, "SELECT session FROM inbox WHERE arrival > ? AND arrival <= ?", bounds[1]),
        mark.waiting - since.waiting < mark.commands - since.commands,
    )


def _sessions_of(connection: sqlite3.Connection, numbers: str, bounds: tuple[int, int]) -> tuple[str, ...]:
    rows = connection.execute(f"SELECT id FROM sessions WHERE number IN ({numbers})", bounds)
    return tuple(row[0] for row in rows)


def inbox(connection: sqlite3.Connection, session: str) -> list[InboxEntry]:
    """Do what `Store.inbox` says."""
    entries: list[InboxEntry] = []
    for arrival, name, posted_ms, kept in connection.execute(
        "SELECT arrival, command_id, posted_ms, body FROM inbox"
        " WHERE session = (SELECT number FROM sessions WHERE id = ?) AND body IS NOT NULL ORDER BY arrival",
        (session,),
    ):
        body = unsealed(kept, "command", session, arrival, name, posted_ms)
        if body is None:
            raise StorageCorrupt(
                f"a command that waits for session {session} is not what was accepted",
                hint="`holdfast fsck` lists all damage.",
            )
        entries.append(InboxEntry(name, session, posted_ms, body))
    return entries


def situation(connection: sqlite3.Connection, session: str, uptime_ms: int) -> Situation | None:
    """Do what `Store.situation` says."""
    found = connection.execute(
        f"SELECT {_ROW}, epoch, holder, term, from_ms, until_ms,"
        " (SELECT count(*) FROM inbox WHERE session = number AND body IS NOT NULL)"
        " FROM sessions LEFT JOIN leases ON session = number WHERE id = ?",
        (session,),
    ).fetchone()
    if found is None:
        return None
    *row, epoch, holder, seal, from_ms, until_ms, waiting = found
    if holder is None:
        return Situation(_session_row(*row), None, waiting)
    lease = lease_of(session, epoch, holder, seal, Term(from_ms, until_ms), uptime_ms)
    return Situation(_session_row(*row), lease, waiting)


def leased(connection: sqlite3.Connection, uptime_ms: int) -> set[str]:
    """Do what `Store.leased` says."""
    rows = connection.execute(
        "SELECT id FROM leases JOIN sessions ON number = session"
        " WHERE holder IS NOT NULL AND from_ms <= ? AND until_ms > ?",
        (uptime_ms, uptime_ms),
    )
    return {row[0] for row in rows}


def lease_of(session: str, epoch: int, holder: bytes, seal: bytes, term: Term, uptime_ms: int) -> Lease:
    """The lease in a row of `leases` that has a holder.

    Raises:
        StorageCorrupt: it is not the one that was taken.
    """
    told = holder_in(holder, seal, session, epoch, term)
    if told is None:
        raise no_lease(session)
    return Lease(session, epoch, _holder_decoder.decode(told), term.left_ms(uptime_ms))


def no_lease(session: str) -> StorageCorrupt:
    """The refusal of a lease that is not what was taken."""
    return StorageCorrupt(
        f"the lease of session {session} is damaged", hint="`holdfast fsck` lists all damage."
    )


def session(connection: sqlite3.Connection, session: str) -> SessionRow | None:
    """Do what `Store.session` says."""
    found = connection.execute(f"SELECT {_ROW} FROM sessions WHERE id = ?", (session,)).fetchone()
    return _session_row(*found) if found is not None else None


def _session_row(
    session: str, key: bytes, status: bytes, title: bytes, updated_ms: int, seq: int, row: bytes
) -> SessionRow:
    try:
        return _row_decoder.decode(row)
    except (msgspec.DecodeError, TypeError):  # damaged: the columns still find the session and its journal
        texts = {"key": key, "status": status, "title": title}
        numbers = {"updated_ms": updated_ms, "seq": seq}
        read = {
            name: text.decode(errors="replace") for name, text in texts.items() if isinstance(text, bytes)
        }
        counted = {name: number for name, number in numbers.items() if isinstance(number, int)}
        return msgspec.convert({"session": session, **read, **counted}, SessionRow)


def find(connection: sqlite3.Connection, name: str) -> list[str]:
    """Do what `Store.find` says."""
    if name == "last":
        rows = connection.execute(f"SELECT id FROM sessions {_NEWEST} LIMIT 1")
    elif is_session_key(name):
        rows = connection.execute("SELECT id FROM sessions WHERE key = ?", (name,))
    elif is_session_id(name) or is_session_prefix(name):
        first = name.upper()
        rows = connection.execute(
            "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id", (first, first + "\x7f")
        )
    else:
        return []
    return [row[0] for row in rows]


def sessions(connection: sqlite3.Connection, sought: Sought, limit: int) -> list[SessionRow]:
    """Do what `Store.sessions` says."""
    status, before, grep = sought.status, sought.before, sought.grep
    rows = connection.execute(
        f"SELECT {_ROW} FROM sessions WHERE (? = '' OR status = ?) AND updated_ms >= ?"
        f" AND (? = '' OR (position, number) < (SELECT position, number FROM sessions WHERE id = ?)) {_NEWEST}",
        (status, status, sought.since_ms, before, before),
    )
    found: list[SessionRow] = []
    for values in rows:
        row = _session_row(*values)
        if sought.workspace and row.workspace != sought.workspace:
            continue
        if not grep or is_in(grep, row.title) or _mentions(connection, row.session, grep):
            found.append(row)
            if len(found) == limit:
                break
    return found


def branches(connection: sqlite3.Connection, session: str) -> list[str]:
    """Do what `Store.branches` says."""
    rows = connection.execute(
        "SELECT id FROM sessions WHERE parent = (SELECT number FROM sessions WHERE id = ?) ORDER BY number",
        (session,),
    )
    return [row[0] for row in rows]


def due(connection: sqlite3.Connection, upto_ms: int, limit: int) -> list[SessionRow]:
    """Do what `Store.due` says."""
    rows = connection.execute(
        f"SELECT {_ROW} FROM sessions WHERE due_ms > 0 AND due_ms <= ? ORDER BY due_ms, number LIMIT ?",
        (upto_ms, limit),
    )
    return [_session_row(*values) for values in rows]


def granting(connection: sqlite3.Connection) -> list[SessionRow]:
    """Do what `Store.granting` says."""
    # Only a row with grants has this text: inside a value its quotes would be escaped.
    rows = connection.execute(f"SELECT {_ROW} FROM sessions WHERE instr(row, ?) ORDER BY number", (_GRANTS,))
    return [row for values in rows if (row := _session_row(*values)).grants]


def _mentions(connection: sqlite3.Connection, session: str, text: str) -> bool:
    return any(says(type_, v, body, text) for type_, v, body in _said(connection, session))


def _said(connection: sqlite3.Connection, session: str) -> Iterator[tuple[str, int, bytes]]:
    places = ", ".join("?" * len(SAID_IN))
    for segment in lineage(connection, session):
        yield from connection.execute(
            "SELECT type, v, body FROM records WHERE session = ? AND seq > ? AND seq <= ?"
            f" AND type IN ({places})",
            (*segment, *SAID_IN),
        )


def approvals(connection: sqlite3.Connection, session: str, is_open: bool) -> list[Approval]:
    """Do what `Store.approvals` says."""
    found = connection.execute(
        f"{_MARKED} LEFT JOIN records AS r ON r.session = a.session AND r.seq = asked_seq"
        f" WHERE decided_seq {'=' if is_open else '<>'} 0 AND (? = '' OR s.id = ?) ORDER BY r.position",
        (session, session),
    )
    rows = (_approval(connection, *marked) for marked in found.fetchall())
    return [row for row in rows if row is not None]


def approval(connection: sqlite3.Connection, approval_id: str) -> Approval | None:
    """Do what `Store.approval` says."""
    marked = connection.execute(f"{_MARKED} WHERE a.id = ?", (approval_id,)).fetchone()
    return _approval(connection, *marked) if marked is not None else None


def _approval(
    connection: sqlite3.Connection, name: str, session: str, asked_seq: int, decided_seq: int
) -> Approval | None:
    records: list[StoredRecord] = []
    for seq in (asked_seq, decided_seq) if decided_seq else (asked_seq,):
        records += read(connection, session, seq - 1, seq)
    return approval_row(name, records)


def spent(connection: sqlite3.Connection, since_ms: int, session: str) -> Amounts:
    """Do what `Ledger.spent` says."""
    sums = "coalesce(sum(spent), 0), coalesce(sum(estimated), 0), coalesce(sum(held), 0)"
    found = connection.execute(
        f"SELECT {sums} FROM ledger WHERE {_SOUGHT_LINES}", _sought_lines(since_ms, session)
    )
    return Amounts(*found.fetchone())


def lines(connection: sqlite3.Connection, since_ms: int, session: str) -> list[Line]:
    """Do what `Ledger.lines` says."""
    columns = "session, key, begun_ms, user, model, purpose, spent, estimated, held"
    found = connection.execute(
        f"SELECT {columns} FROM ledger WHERE {_SOUGHT_LINES} ORDER BY line", _sought_lines(since_ms, session)
    )
    return [
        Line(name, key, begun_ms, user, model, purpose, Amounts(*amounts))
        for name, key, begun_ms, user, model, purpose, *amounts in found
    ]


def _sought_lines(since_ms: int, session: str) -> dict[str, object]:
    return {"since": since_ms, "session": session}
