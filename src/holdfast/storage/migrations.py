"""The schema of the database: an append-only list of steps in hand-written SQL. A released step never changes.

`reads` and `writes` have the statements for the tables.
"""

from __future__ import annotations

import sqlite3

from holdfast.storage.seals import sealed

APPLICATION_ID = 0x48464A4C
"""Marks a database file as ours ("HFJL")."""

# `position` orders all records of a home; it is the rowid. A table with its own rowid takes a tenth less disk than
# one WITHOUT ROWID with records of 400 bytes, and a quarter less with a mix up to 3 KB, and appends faster: long
# bodies would go to overflow pages.
_FIRST = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    title TEXT NOT NULL,
    updated_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    parent INTEGER,
    at_seq INTEGER NOT NULL,
    row BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_by_key ON sessions (key) WHERE key <> '';
CREATE INDEX sessions_due ON sessions (due_ms) WHERE due_ms > 0;

CREATE TABLE records (
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    awake_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    cause TEXT NOT NULL,
    type TEXT NOT NULL,
    v INTEGER NOT NULL,
    body BLOB NOT NULL,
    link BLOB NOT NULL,
    digest BLOB NOT NULL,
    UNIQUE (session, seq)
) STRICT;

CREATE TABLE blob_uses (
    blob TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (blob, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    session INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    holder BLOB,
    from_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    command_id TEXT NOT NULL,
    posted_ms INTEGER NOT NULL,
    body BLOB,
    UNIQUE (session, command_id)
) STRICT;
CREATE INDEX inbox_waiting ON inbox (session, arrival) WHERE body IS NOT NULL;

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    asked_seq INTEGER NOT NULL,
    decided_seq INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_of_session ON approvals (session);
CREATE INDEX approvals_open ON approvals (session) WHERE decided_seq = 0;
"""

SNAPSHOTS = """
CREATE TABLE snapshots (
    session INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
"""
"""The only table without truth. If it was dropped, it is made again."""

_SEALS = f"""
UPDATE leases SET holder = NULL;
ALTER TABLE leases ADD COLUMN term BLOB NOT NULL DEFAULT x'';
UPDATE inbox SET body = sealed_command(
    body, (SELECT id FROM sessions WHERE number = session), arrival, command_id, posted_ms
) WHERE body IS NOT NULL;
DROP TABLE IF EXISTS snapshots;
{SNAPSHOTS}"""
"""From this version on, `seals` prove the content of these tables. The step seals the commands that wait, and deletes
the rest: making it again costs only time."""

_DELETED = """
CREATE TABLE deleted (
    session INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    arrival INTEGER NOT NULL
) STRICT;
CREATE INDEX deleted_position ON deleted (position);
CREATE INDEX deleted_arrival ON deleted (arrival);
"""
"""The number of each session that was deleted or is being deleted, with the last position and the last arrival that
were taken then. None of them is ever taken again: readers that follow a home rely on that."""

_LEDGER = """
CREATE TABLE ledger (
    line INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    begun_ms INTEGER NOT NULL,
    user TEXT NOT NULL,
    model TEXT NOT NULL,
    purpose TEXT NOT NULL,
    spent INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    held INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_of_session ON ledger (session);
"""
"""The books. They outlive the sessions, so they name them by their ids."""

_BUDGETS = """
CREATE TABLE reservations (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    begun_ms INTEGER NOT NULL,
    user TEXT NOT NULL,
    microusd INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE balances (
    bucket TEXT PRIMARY KEY,
    line INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    held INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
"""What attempts have reserved in budgets, and the sum of each budget up to a line of the ledger."""

_SERVICES = """
CREATE TABLE services (name TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""
"""What is known about services, and how fast they are called. If it is lost, it is found out again. It is one small
table, since salvage reads the tables of a torn file from its first page: their definitions must have room there."""

MIGRATIONS: tuple[str, ...] = (_FIRST, SNAPSHOTS, _SEALS, _DELETED, _LEDGER, _BUDGETS, _SERVICES)
"""Step n, counted from 1, makes version n of the schema from version n - 1."""

NEWEST = len(MIGRATIONS)


def version(connection: sqlite3.Connection) -> int:
    """Return the version of the database's schema; 0 if there is nothing yet."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, newest: int = NEWEST) -> None:
    """Bring the database to that version, each step in its own transaction.

    The caller keeps other processes from doing the same at the same time.
    """
    connection.create_function(
        "sealed_command", 5, lambda body, *about: sealed(body, "command", *about), deterministic=True
    )
    for number in range(version(connection), newest):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {number + 1}; COMMIT;"
        )
