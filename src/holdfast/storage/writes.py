"""Every change to the database, as functions on a connection inside an open transaction.

They are handed to `writer.Writer`, which makes the transaction around them; each raises before it leaves
anything half done, or is undone by its savepoint.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import astuple

from holdfast.errors import Fenced, NoSuchSession
from holdfast.protocol.codec import StoredRecord, encode_json
from holdfast.protocol.rows import Commit, Holder, InboxEntry, Lease, Posted, SessionRow
from holdfast.protocol.spending import Line
from holdfast.storage import budgets
from holdfast.storage.blobs import attached_in, check_blobs
from holdfast.storage.derived import is_epoch, new_row
from holdfast.storage.reads import LAST_ARRIVAL, LAST_NUMBER, LAST_POSITION, Term, lease_of, no_lease
from holdfast.storage.seals import seal_of_term, sealed

_ASKED = (
    "INSERT INTO approvals (asked_seq, id, session, decided_seq) VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING"
)
_DECIDED = "UPDATE approvals SET decided_seq = ? WHERE id = ? AND session = ? AND decided_seq = 0"
_FENCE = (
    f"SELECT number, position, {LAST_POSITION} FROM sessions WHERE id = ? AND seq = ? AND EXISTS ("
    "SELECT 1 FROM leases WHERE session = number AND epoch = ? AND holder IS NOT NULL)"
)
"""Finds a session whose newest record is the given one and whose lease is in force in the given epoch. Returns its
position, and the last position of all."""
_OURS = "session = (SELECT number FROM sessions WHERE id = ?) AND epoch = ? AND holder IS NOT NULL"
"""The condition that a session's lease is still in force in that epoch."""


def claim(
    connection: sqlite3.Connection, session: str, key: str, now_ms: int, first: InboxEntry | None, blobs: Path
) -> str:
    """Do what `Store.claim` says."""
    if key:
        found = connection.execute("SELECT id FROM sessions WHERE key = ?", (key,)).fetchone()
        if found is not None:
            return str(found[0])
    number = _make(connection, new_row(session, key, now_ms))
    if not number:
        _living(connection, session)
    elif first is not None:
        _put(connection, number, first, blobs)
    return session


def _make(connection: sqlite3.Connection, row: SessionRow) -> int:
    """Make a session without records and return its number; 0 if its id or its key is taken."""
    made = connection.execute(
        "INSERT INTO sessions (number, id, key, status, title, updated_ms, due_ms, seq, position, at_seq, row)"
        f" VALUES ({LAST_NUMBER} + 1, ?, ?, ?, '', ?, 0, 0, {LAST_POSITION}, 0, ?) ON CONFLICT DO NOTHING",
        (row.session, row.key, row.status, row.updated_ms, encode_json(row)),
    )
    return made.lastrowid or 0 if made.rowcount else 0


def post(
    connection: sqlite3.Connection, entry: InboxEntry, capacity: int, uptime_ms: int, blobs: Path
) -> Posted:
    """Do what `Store.post` says."""
    number = _living(connection, entry.session)
    _, lease = _leased(connection, entry.session, number, uptime_ms)
    return Posted(_posted(connection, number, entry, capacity, blobs), lease)


def _posted(
    connection: sqlite3.Connection, number: int, entry: InboxEntry, capacity: int, blobs: Path
) -> Literal["accepted", "duplicate", "full"]:
    seen = connection.execute(
        "SELECT 1 FROM inbox WHERE session = ? AND command_id = ?", (number, entry.command_id)
    ).fetchone()
    if seen:
        return "duplicate"
    waiting = connection.execute(
        "SELECT count(*) FROM inbox WHERE session = ? AND body IS NOT NULL", (number,)
    ).fetchone()[0]
    if waiting >= capacity:
        return "full"
    _put(connection, number, entry, blobs)
    return "accepted"


def _put(connection: sqlite3.Connection, number: int, entry: InboxEntry, blobs: Path) -> None:
    check_blobs(blobs, attached_in(entry.body))
    arrival = connection.execute(f"SELECT {LAST_ARRIVAL} + 1").fetchone()[0]
    body = sealed(entry.body, "command", entry.session, arrival, entry.command_id, entry.posted_ms)
    connection.execute(
        "INSERT INTO inbox (arrival, command_id, session, posted_ms, body) VALUES (?, ?, ?, ?, ?)",
        (arrival, entry.command_id, number, entry.posted_ms, body),
    )


def lease(
    connection: sqlite3.Connection, session: str, holder: Holder, term: Term, over: Lease | None
) -> Lease:
    """Do what `Store.lease` says."""
    number = _number(connection, session)
    epoch, current = _leased(connection, session, number, term.from_ms)
    is_dead = over is not None and over.epoch == epoch
    if current is not None and current.left_ms and not is_dead:
        return current
    lease = Lease(session, epoch + 1, holder, term.left_ms(term.from_ms))
    _store_lease(connection, number, lease, term)
    return lease


def _store_lease(connection: sqlite3.Connection, number: int, lease: Lease, term: Term) -> None:
    holder = sealed(encode_json(lease.holder), "lease", lease.session, lease.epoch)
    connection.execute(
        "INSERT OR REPLACE INTO leases (session, epoch, holder, from_ms, until_ms, term)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (number, lease.epoch, holder, *term, seal_of_term(*term)),
    )


def renew(connection: sqlite3.Connection, leases: Sequence[Lease], term: Term) -> list[Lease]:
    """Do what `Store.renew` says, with one statement for each, and one more if not all are found. The term has its
    own seal, the same for all of them."""
    keys = [(lease.session, lease.epoch) for lease in leases]
    found = connection.executemany(
        f"UPDATE leases SET from_ms = {term.from_ms:d}, until_ms = {term.until_ms:d},"
        f" term = x'{seal_of_term(*term).hex()}' WHERE {_OURS}",
        keys,
    )
    if found.rowcount == len(keys):
        return []
    question = f"SELECT 1 FROM leases WHERE {_OURS}"
    return [
        lease
        for lease, key in zip(leases, keys, strict=True)
        if connection.execute(question, key).fetchone() is None
    ]


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    """Do what `Store.release` says."""
    connection.execute(
        "UPDATE leases SET holder = NULL WHERE session = (SELECT number FROM sessions WHERE id = ?)"
        " AND epoch = ?",
        (lease.session, lease.epoch),
    )


def commit(connection: sqlite3.Connection, commit: Commit, blobs: Path) -> bool:
    """Do what `Store.commit` says."""
    for other in commit.others:
        _commit(connection, other, blobs)
    return _commit(connection, commit, blobs)


def _commit(connection: sqlite3.Connection, commit: Commit, blobs: Path) -> bool:
    """Commit to one session: the fence, its row, its records. One statement for fence and row (`RETURNING`)
    would take twice as long as both."""
    if commit.forked_from:
        _branch_off(connection, commit)
    found = connection.execute(_FENCE, (commit.session, commit.expected_seq, commit.epoch)).fetchone()
    if found is None:
        raise Fenced(
            f"session {commit.session} is no longer at record {commit.expected_seq} in epoch {commit.epoch}"
        )
    number, position, last_position = found
    if not commit.expected_seq and _is_deleted(connection, number):  # it has no records any more
        raise Fenced(f"session {commit.session} is being deleted")
    row, count = commit.row, len(commit.records)
    connection.execute(
        "UPDATE sessions SET seq = ?, status = ?, title = ?, updated_ms = ?, due_ms = ?, position = ?, row = ?"
        " WHERE number = ?",
        (
            commit.expected_seq + count,
            row.status,
            row.title,
            row.updated_ms,
            row.due_ms,
            last_position + count if count else position,
            bytearray(encode_json(row)),
            number,
        ),
    )
    if commit.key is not None:
        connection.execute("UPDATE sessions SET key = ? WHERE number = ?", (commit.key, number))
    put_records(connection, number, enumerate(commit.records, last_position + 1))
    _write_beside(connection, number, commit)
    check_blobs(blobs, commit.blobs)
    return commit.releases_lease and _released(connection, number)


def begin(connection: sqlite3.Connection, first: Commit, holder: Holder, term: Term, blobs: Path) -> bool:
    """Do what `Store.begin` says."""
    number = _make(connection, first.row)
    if not number:
        raise Fenced(f"session {first.session} or its name {first.row.key!r} is taken")
    _store_lease(
        connection, number, Lease(first.session, first.epoch, holder, term.left_ms(term.from_ms)), term
    )
    return commit(connection, first, blobs)


def put_records(
    connection: sqlite3.Connection, number: int, placed: Iterable[tuple[int, StoredRecord]]
) -> None:
    """Write records under a session's number, each at its position.

    Bytes go as bytearrays: for bytes, `sqlite3` looks each time for somebody who would adapt them.
    """
    connection.executemany(
        "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (place, number, record.seq, record.at_ms, record.awake_ms, record.epoch, record.cause, record.type,
             record.v, bytearray(record.body), bytearray(record.link), bytearray(record.digest))
            for place, record in placed
        ],
    )  # fmt: skip


def put_lines(connection: sqlite3.Connection, lines: Iterable[Line]) -> None:
    """Write lines into the books."""
    connection.executemany(
        "INSERT INTO ledger (session, key, begun_ms, user, model, purpose, spent, estimated, held)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                line.session,
                line.key,
                line.begun_ms,
                line.user,
                line.model,
                line.purpose,
                *astuple(line.amounts),
            )
            for line in lines
        ],
    )


def _branch_off(connection: sqlite3.Connection, commit: Commit) -> None:
    parent, at_seq = _living(connection, commit.forked_from), commit.expected_seq
    linked = connection.execute(
        "UPDATE sessions SET parent = ?, at_seq = ?, seq = ? WHERE id = ? AND seq = 0"
        " AND number > ? AND ? <= (SELECT seq FROM sessions WHERE number = ?)",
        (parent, at_seq, at_seq, commit.session, parent, at_seq, parent),
    )
    if not linked.rowcount:
        raise Fenced(f"session {commit.session} cannot branch off at record {at_seq}")


def _write_beside(connection: sqlite3.Connection, number: int, commit: Commit) -> None:
    """Write what changes beside the records: the inbox, the approvals, the uses of blobs, the snapshot."""
    if commit.acknowledged:
        connection.executemany(
            "INSERT INTO inbox (command_id, session, posted_ms) VALUES (?, ?, ?)"
            " ON CONFLICT (session, command_id) DO UPDATE SET body = NULL",
            [(command_id, number, commit.now_ms) for command_id in commit.acknowledged],
        )
    for mark in commit.approvals:
        connection.execute(_DECIDED if mark.is_decision else _ASKED, (mark.seq, mark.id, number))
    if commit.blobs:
        connection.executemany(
            "INSERT OR IGNORE INTO blob_uses VALUES (?, ?)", [(blob, number) for blob in commit.blobs]
        )
    if commit.lines:
        put_lines(connection, commit.lines)
    if commit.reserves is not None:
        budgets.free(connection, commit.session, commit.reserves)
    if commit.snapshot:
        seq = commit.expected_seq + len(commit.records)
        body = sealed(commit.snapshot, "snapshot", commit.session, seq)
        connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (number, seq, body))


def _released(connection: sqlite3.Connection, number: int) -> bool:
    """Give the lease back, unless a command waits; whether it was given back."""
    released = connection.execute(
        "UPDATE leases SET holder = NULL WHERE session = ? AND NOT EXISTS ("
        "SELECT 1 FROM inbox WHERE session = ? AND body IS NOT NULL)",
        (number, number),
    )
    return released.rowcount > 0


def _leased(
    connection: sqlite3.Connection, session: str, number: int, uptime_ms: int
) -> tuple[int, Lease | None]:
    """The session's last epoch, 0 before the first, and its lease where somebody has it."""
    found = connection.execute(
        "SELECT epoch, holder, term, from_ms, until_ms FROM leases WHERE session = ?", (number,)
    ).fetchone()
    if found is None:
        return 0, None
    epoch, holder, seal, *term = found
    if not is_epoch(epoch, 0):
        raise no_lease(session)
    if holder is None:
        return epoch, None
    return epoch, lease_of(session, epoch, holder, seal, Term(*term), uptime_ms)


def _number(connection: sqlite3.Connection, session: str) -> int:
    found = connection.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
    if found is None:
        raise NoSuchSession(f"no session {session} in this home")
    return int(found[0])


def _living(connection: sqlite3.Connection, session: str) -> int:
    """Return the number of a session that nobody deletes."""
    number = _number(connection, session)
    if _is_deleted(connection, number):
        raise NoSuchSession(f"session {session} is being deleted")
    return number


def _is_deleted(connection: sqlite3.Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM deleted WHERE session = ?", (number,)).fetchone() is not None
