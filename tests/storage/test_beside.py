"""Damage of rows beside the records: if a reader would believe it or fail on it, it is reported and repairable."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import HoldfastError, NoSuchSession, StorageError
from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import Command, Send, owner
from holdfast.protocol.events import ApprovalResolved, MessageReceived, SessionOpened, ToolCallFinished
from holdfast.protocol.rows import SessionRow, Verified
from holdfast.protocol.tools import CallResult
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.migrations import migrate
from holdfast.storage.salvage import salvage
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import NOW_MS, a_holder, an_entry, an_id, asked, branch, drive

TABLES = ("sessions", "leases", "inbox", "approvals", "blob_uses", "snapshots")
TEXT = "the task of the person"
TERM_MS = 1000 * 60
CLOCK = JumpingClock()
"""A clock that does not move, so that the held lease does not lapse."""


def a_command(session: str, name: str) -> bytes:
    return encode_json(Command(name, session, owner("ann"), Send(TEXT)))


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A session that is held, with all that can lie beside one; a branch of it; one that has only its task."""
    home = tmp_path / "home"
    store = SqliteStore.open(home, clock=CLOCK)
    driving = await drive(store, 1, "cli:one")
    blob = await store.blobs.put(b"the whole output")
    await driving.commit(SessionOpened(driving.session, "cli:one"), asked(driving), asked(driving, 2))
    await driving.commit(MessageReceived("first"), snapshot=b"derived of the records")
    await driving.commit(ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)))
    await store.post(an_entry(driving.session, "read", a_command(driving.session, "read")), 9)
    await driving.commit(ApprovalResolved(f"{driving.session}-2", "deny", "ann"), acknowledged=("read",))
    await store.post(an_entry(driving.session, "c1", a_command(driving.session, "c1")), 9)
    await store.post(an_entry(driving.session, "c2", a_command(driving.session, "c2")), 9)
    child = await branch(driving, 4, 2, MessageReceived("branch"))
    await store.release(child.lease)
    await store.claim(an_id(3), "cli:new", NOW_MS, an_entry(an_id(3), "c3", a_command(an_id(3), "c3")))
    await store.aclose()
    assert verify_home(home) == Verified()
    return home


def change(home: Path, sql: str) -> int:
    """Do to the database what no store would; how many rows it changed."""
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as connection:
        return connection.execute(sql).rowcount


async def answers(home: Path) -> dict[str, object]:
    """What the store says to every question, and to every change that begins with one."""
    try:
        store = SqliteStore.open(home, clock=CLOCK)
    except StorageError as error:
        return {"open": type(error)}
    said: dict[str, object] = {}

    async def ask(name: str, question: Any) -> None:
        try:
            said[name] = await question
        except StorageError as error:
            said[name] = type(error)

    await ask("sessions", _by_id(store))  # a session without records may lie anywhere in the list
    await ask("due", store.due(1 << 60))
    await ask("leased", store.leased())
    await ask("news", store.news())
    for is_open in (True, False):
        await ask(f"approvals {is_open}", store.approvals(is_open=is_open))
    for name in ("cli:one", "cli:new"):
        await ask(name, store.find(name))
    for number in (1, 2, 3):
        session = an_id(number)
        await ask(f"row {number}", store.session(session))
        await ask(f"find {number}", store.find(session))
        await ask(f"inbox {number}", store.inbox(session))
        await ask(f"recover {number}", store.recover(session))
        await ask(f"situation {number}", store.situation(session))
        if isinstance(situation := said[f"situation {number}"], msgspec.Struct):
            said[f"situation {number}"] = _without_time(situation)
        for which in (1, 2):
            await ask(f"approval {number} {which}", store.approval(f"{session}-{which}"))
        try:
            for name in ("read", "c1"):
                posted = await store.post(an_entry(session, name), 9)
                said[f"post {name} {number}"] = posted.outcome
            lease = await store.lease(session, a_holder("b"), TERM_MS)
            said[f"lease {number}"] = (lease.epoch, lease.holder)
        except HoldfastError as error:
            said[f"lease {number}"] = type(error)
    await store.aclose()
    return said


async def _by_id(store: SqliteStore) -> list[SessionRow]:
    return sorted(await store.sessions(), key=lambda row: row.session)


def _without_time(situation: Any) -> object:
    lease = situation.lease
    if lease is not None:
        lease = msgspec.structs.replace(lease, left_ms=int(0 < lease.left_ms <= TERM_MS))
    return msgspec.structs.replace(situation, lease=lease)


def copied(home: Path, name: str) -> Path:
    copy = home.parent / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(home, copy)
    return copy


def repaired(home: Path) -> Path:
    """A home with the database that a repair saves of this one."""
    file = home.parent / "saved.db"
    file.unlink(missing_ok=True)
    salvage(home, file)
    again = home.parent / "again"
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir()
    shutil.copyfile(file, again / DATABASE)
    shutil.copytree(home / BLOBS, again / BLOBS)
    return again


async def check_usable(home: Path) -> None:
    """Nothing is damaged, and every question has an answer: a session that could not be saved is unknown."""
    assert verify_home(home).damages == ()
    for name, answer in (await answers(home)).items():
        assert not isinstance(answer, type) or answer is NoSuchSession, (name, answer)


def columns() -> Iterator[tuple[str, str, str]]:
    """Every column of every table beside the records, with its type."""
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection)
        for table in TABLES:
            for row in connection.execute(f"PRAGMA table_info({table})"):
                yield table, row[1], row[2]


VALUES = {
    "INTEGER": ["{} + 1", "{} - 1", "-1", "9223372036854775807"],
    "TEXT": ["{} || 'x'", "'done'", "CAST(x'ff61' AS TEXT)"],
    "BLOB": ["x''", "CAST(replace(CAST({} AS TEXT), 'a', 'e') AS BLOB)", "CAST({} || x'20' AS BLOB)"],
}
CASES = [(table, column, VALUES[kind]) for table, column, kind in columns()]
UNUSED = {
    "inbox": "body IS NULL",  # commands that nobody will read again; an index has their names too
    "leases.epoch": "holder IS NULL",  # any later epoch is as good as the next one
}
"""The rows whose content no reader believes."""


def in_both_orders() -> Iterator[Any]:
    """Each column, in the first row and in the last one. Every day one of the two and half of the values, in turn."""
    for number, (table, column, values) in enumerate(CASES):
        order = ("ASC", "DESC")[number % 2]
        yield pytest.param(table, column, values[number // 2 % 2 :: 2], order)
        for order in ("ASC", "DESC"):
            yield pytest.param(table, column, values, order, marks=pytest.mark.long)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(("table", "column", "values", "order"), [*in_both_orders()])
async def test_a_changed_column_that_would_be_believed_or_failed_on_is_told_and_repaired(
    home: Path, table: str, column: str, values: list[str], order: str
) -> None:
    sound = await answers(copied(home, "sound"))
    number = "rowid" if table != "blob_uses" else "session"
    unused = UNUSED.get(table) or UNUSED.get(f"{table}.{column}", "0")
    row = f"(SELECT {number} FROM {table} WHERE NOT ({unused}) ORDER BY {number} {order} LIMIT 1)"
    for value in (value.format(column) for value in values):
        damaged = copied(home, "damaged")
        sql = f"UPDATE {table} SET {column} = {value} WHERE {number} = {row} AND {column} IS NOT {value}"
        try:
            if not change(damaged, sql):
                continue
        except sqlite3.IntegrityError:  # SQLite takes no such value
            continue
        damages = verify_home(damaged).damages
        said = await answers(copied(damaged, "asked"))
        changed = {name: (sound.get(name), said[name]) for name in said if said[name] != sound.get(name)}
        assert damages or not changed, (value, changed)
        for answer in said.values():
            assert not isinstance(answer, type) or issubclass(answer, HoldfastError), answer
        await check_usable(repaired(damaged))


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("flips", [6, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("table", TABLES)
async def test_whatever_bit_is_flipped_beside_the_records_is_told_where_it_matters(
    home: Path, table: str, flips: int
) -> None:
    sound = await answers(copied(home, "sound"))
    content = (home / DATABASE).read_bytes()
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    first = (found[0] - 1) * 4096
    places = [at for at in range(first, first + 4096) if content[at]]
    draw = random.Random(table)
    for at in draw.sample(places, min(flips, len(places))):
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        damaged = copied(home, "damaged")
        (damaged / DATABASE).write_bytes(flipped)
        try:
            is_told = bool(verify_home(damaged).damages)
        except StorageError:
            is_told = True
        said = await answers(copied(damaged, "asked"))
        changed = {name: (sound.get(name), said[name]) for name in said if said[name] != sound.get(name)}
        assert is_told or not changed, (at, changed)
