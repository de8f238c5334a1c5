"""Damaged homes: damage is reported exactly, whole records stay readable, and looking changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core.state import State
from holdfast.errors import StorageCorrupt, StorageError
from holdfast.protocol.codec import StoredRecord, chain_link, digest_of
from holdfast.protocol.events import ApprovalResolved, MessageReceived, ToolCallFinished
from holdfast.protocol.rows import Damage, Recovered, SessionRow, Verified
from holdfast.protocol.tools import CallResult
from holdfast.storage.blobs import blob_path
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import an_id, asked, branch, drive


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """Two sessions of eight records, all folded into the one file."""
    store = SqliteStore.open(tmp_path)
    for number in (1, 2):
        driving = await drive(store, number)
        for turn in range(1, 9):
            await driving.commit(MessageReceived(f"session {number} turn {turn} " + "~" * 400))
    await store.aclose()
    return tmp_path


def change(home: Path, sql: str) -> None:
    """Do to the database what no store would."""
    connection = sqlite3.connect(home / DATABASE, isolation_level=None)
    connection.execute(sql)
    connection.close()


def found(home: Path) -> list[tuple[str, str, int]]:
    return [(damage.kind, damage.session, damage.seq) for damage in verify_home(home).damages]


async def readable(home: Path, number: int) -> list[StoredRecord] | None:
    """The session's records; None when the store says that they are damaged."""
    try:
        store = SqliteStore.open(home)
    except StorageError:
        return None
    try:
        return await store.read(an_id(number))
    except StorageError:
        return None
    finally:
        await store.aclose()


@pytest.mark.requirement("L12", "L7")
async def test_corrupted_session_handled(home: Path) -> None:
    file = home / DATABASE
    content = bytearray(file.read_bytes())
    content[content.index(b"session 1 turn 3") + 8] ^= 1
    file.write_bytes(content)
    store = SqliteStore.open(home)
    with pytest.raises(StorageCorrupt, match="record 3 of session") as caught:
        await store.read(an_id(1))
    assert "fsck" in caught.value.hint
    assert len(await store.read(an_id(1), 0, 2)) == 2, "up to there it is readable"
    assert len(await store.read(an_id(2))) == 8, "and so is every other session"
    assert [row.session for row in await store.sessions()] == [an_id(2), an_id(1)]
    await store.aclose()
    assert found(home) == [("changed", an_id(1), 3)]


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
async def test_a_torn_file_is_told_and_what_can_be_read_stays_readable(home: Path, share: float) -> None:
    file = home / DATABASE
    whole = {number: await readable(home, number) for number in (1, 2)}
    os.truncate(file, int(file.stat().st_size * share))
    assert "file" in {damage.kind for damage in verify_home(home).damages}
    for number in (1, 2):
        assert await readable(home, number) in (whole[number], None)


@pytest.mark.requirement("L7")
async def test_any_flipped_byte_ends_in_a_storage_error_or_whole_records(home: Path) -> None:
    file = home / DATABASE
    sound = file.read_bytes()
    whole = {number: await readable(home, number) for number in (1, 2)}
    draw = random.Random(7)
    told = 0
    for _ in range(200):
        content = bytearray(sound)
        content[draw.randrange(100, len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
        for number in (1, 2):
            read = await readable(home, number)
            if read != whole[number]:
                assert read is None or read == [], "never wrong records"
                assert verify_home(home).damages
                told += 1
    assert told > 10


@pytest.mark.parametrize(
    ("sql", "damages"),
    [
        ("DELETE FROM records WHERE session = 1 AND seq = 4", [("missing", 4)]),
        ("DELETE FROM records WHERE session = 1 AND seq IN (4, 5)", [("missing", 4)]),
        ("DELETE FROM records WHERE session = 1 AND seq = 1", [("missing", 1)]),
        ("DELETE FROM records WHERE session = 1 AND seq > 6", [("missing", 7)]),
        ("UPDATE records SET at_ms = at_ms + 1 WHERE session = 1 AND seq = 8", [("changed", 8)]),
        ("UPDATE records SET cause = 'me' WHERE session = 1 AND seq = 1", [("changed", 1)]),
        ("UPDATE records SET link = zeroblob(32) WHERE session = 1 AND seq = 5", [("changed", 5)]),
        (
            "UPDATE records SET seq = CASE seq WHEN -3 THEN 6 ELSE 3 END WHERE seq IN (-3, -6)",
            [("reordered", 3), ("reordered", 6)],
        ),
        (
            "UPDATE records SET seq = CASE seq WHEN -3 THEN 4 ELSE 3 END WHERE seq IN (-3, -4)",
            [("reordered", 3), ("reordered", 4)],
        ),
        ("UPDATE sessions SET seq = 7 WHERE number = 1", [("row", 8), ("row", 8)]),
        ("UPDATE sessions SET row = 'x'  WHERE number = 1", [("row", 0)]),
    ],
)
@pytest.mark.requirement("L7")
async def test_each_kind_of_damage_is_named(home: Path, sql: str, damages: list[tuple[str, int]]) -> None:
    if "-3" in sql:  # two at once may not have one seq
        other = "4" if "-4" in sql else "6"
        change(home, f"UPDATE records SET seq = -seq WHERE session = 1 AND seq IN (3, {other})")
    change(home, sql.replace("'x'", "x'00'"))
    assert found(home) == [(kind, an_id(1), seq) for kind, seq in damages]
    assert len(await readable(home, 2) or []) == 8
    if damages[0][0] != "row":
        assert await readable(home, 1) is None


@pytest.mark.parametrize("column", ["key", "title"])
async def test_a_text_that_is_none_any_more_is_told_and_hides_no_session(home: Path, column: str) -> None:
    change(home, f"UPDATE sessions SET {column} = CAST(x'ff61' AS TEXT) WHERE number = 1")
    assert found(home) == [("row", an_id(1), 0)]
    store = SqliteStore.open(home)
    assert an_id(1) in [row.session for row in await store.sessions()]
    await store.aclose()
    change(home, "UPDATE sessions SET row = x'7b' WHERE number = 1")
    store = SqliteStore.open(home)
    (row,) = [row for row in await store.sessions() if row.session == an_id(1)]
    assert getattr(row, column) == "\ufffda"
    await store.aclose()


async def test_a_database_that_lost_the_version_of_its_tables_is_told(home: Path) -> None:
    change(home, "PRAGMA user_version = 0")
    with pytest.raises(StorageCorrupt, match="does not tell the version"):
        SqliteStore.open(home)
    with pytest.raises(StorageCorrupt, match="does not tell the version"):
        verify_home(home)


async def test_a_damaged_row_still_lists_its_session(home: Path) -> None:
    change(home, "UPDATE sessions SET row = x'00' WHERE number = 1")
    store = SqliteStore.open(home)
    assert [row.session for row in await store.sessions()] == [an_id(2), an_id(1)]
    row = await store.session(an_id(1))
    assert isinstance(row, SessionRow)
    assert row.seq == 8
    await store.aclose()


async def test_records_and_approvals_of_no_session_are_told(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    await driving.commit(MessageReceived("one"), asked(driving))
    await store.aclose()
    change(tmp_path, "DELETE FROM sessions")
    told = [(damage.kind, damage.message.split()[1]) for damage in verify_home(tmp_path).damages]
    assert told == [("row", "approvals"), ("row", "leases"), ("row", "records")]


@pytest.fixture
async def waiting(tmp_path: Path) -> Path:
    """Two sessions, in each of which an approval is open and another one decided."""
    store = SqliteStore.open(tmp_path)
    for number in (1, 2):
        driving = await drive(store, number)
        await driving.commit(MessageReceived("one"), asked(driving), asked(driving, 2))
        await driving.commit(ApprovalResolved(f"{driving.session}-2", "deny", "ann"))
    await store.aclose()
    assert verify_home(tmp_path) == Verified()
    return tmp_path


OPEN = f"WHERE id = '{an_id(1)}-1'"


@pytest.mark.requirement("L7", "A4")
@pytest.mark.parametrize(
    "sql",
    [
        f"UPDATE approvals SET asked_seq = 1 {OPEN}",
        f"UPDATE approvals SET asked_seq = 3 {OPEN}",
        f"UPDATE approvals SET asked_seq = 99 {OPEN}",
        f"UPDATE approvals SET session = 2 {OPEN}",
        f"UPDATE approvals SET decided_seq = 4 {OPEN}",
        f"UPDATE approvals SET id = 'x' {OPEN}",
    ],
)
async def test_a_changed_row_of_an_approval_shows_nothing_else_than_was_asked(
    waiting: Path, sql: str
) -> None:
    change(waiting, sql)
    store = SqliteStore.open(waiting)
    questions = [store.approvals(), store.approvals(is_open=False)]
    for rows in await asyncio.gather(*questions, return_exceptions=True):
        if isinstance(rows, BaseException):
            assert isinstance(rows, StorageCorrupt)
            continue
        for row in rows:
            assert (row.id, row.call_id) in [(f"{row.session}-1", "t1.c1"), (f"{row.session}-2", "t1.c2")]
            assert bool(row.decision) == row.id.endswith("-2")
    for row in await asyncio.gather(
        store.approval(f"{an_id(1)}-1"), store.approval("x"), return_exceptions=True
    ):
        assert row is None or isinstance(row, StorageCorrupt)
    await store.aclose()
    damages = verify_home(waiting).damages
    assert {damage.kind for damage in damages} == {"row"}
    assert an_id(1) in {damage.session for damage in damages}


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (f"DELETE FROM approvals {OPEN}", "is not listed as its records tell"),
        ("INSERT INTO approvals VALUES ('x', 1, 1, 0)", "no record asks for it"),
        ("UPDATE approvals SET decided_seq = 0", "is not listed as its records tell"),
        ("UPDATE sessions SET position = 9 WHERE number = 1", "in the order of its last record"),
        ("UPDATE sessions SET due_ms = 9 WHERE number = 1", "is not listed as its row tells"),
        ("UPDATE sessions SET row = CAST(json_set(row, '$.turns', 9) AS BLOB)", "its journal: turns"),
        ("UPDATE sessions SET row = CAST(json_set(row, '$.model', 'm') AS BLOB)", "its journal: model"),
        ("UPDATE sessions SET status = 'failed'", "is not listed as its row tells"),
        ("INSERT INTO blob_uses VALUES ('ff', 1)", "no record refers to it"),
        ("INSERT INTO blob_uses VALUES ('ff', 7)", "which no session has"),
        ("INSERT INTO approvals VALUES ('x', 7, 1, 0)", "which no session has"),
    ],
)
async def test_every_row_that_derives_from_a_journal_is_compared_with_it(
    waiting: Path, sql: str, what: str
) -> None:
    change(waiting, sql)
    damages = verify_home(waiting).damages
    assert damages
    assert {damage.kind for damage in damages} == {"row"}
    assert all(what in damage.message for damage in damages), damages


@pytest.fixture
async def with_snapshot(tmp_path: Path) -> Path:
    """A session of three records, with a snapshot of the second."""
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    await driving.commit(MessageReceived("one"), MessageReceived("two"), snapshot=b"derived")
    await driving.commit(MessageReceived("three"))
    await store.aclose()
    return tmp_path


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    ("sql", "where", "what"),
    [
        ("seq = 4", an_id(1), "is of record 4, and its journal ends at 3"),
        ("seq = 0", an_id(1), "is of record 0"),
        ("body = x''", an_id(1), "is not what was written"),
        ("body = CAST(body || x'00' AS BLOB)", an_id(1), "is not what was written"),
        ("seq = 1", an_id(1), "is not what was written"),
        ("session = 7", "", "under the number 7, which no session has"),
    ],
)
async def test_a_snapshot_that_no_commit_left_is_told_and_costs_nothing_but_time(
    with_snapshot: Path, sql: str, where: str, what: str
) -> None:
    change(with_snapshot, f"UPDATE snapshots SET {sql}")
    assert found(with_snapshot) == [("row", where, 0)]
    told = verify_home(with_snapshot).damages[0].message
    assert what in told
    assert ("time and nothing else" if where else "nothing needs it") in told
    store = SqliteStore.open(with_snapshot)
    recovered = await store.recover(an_id(1))
    assert len(recovered.records) == 3 - recovered.after_seq
    assert len(await store.read(an_id(1))) == 3
    await store.aclose()


async def test_who_makes_snapshots_judges_what_was_written(with_snapshot: Path) -> None:
    def is_sound(found: Recovered, state: State, _: bytes) -> bool:
        assert (found.after_seq, found.snapshot) == (state.seq, b"derived")
        return True

    assert verify_home(with_snapshot, is_sound) == Verified()


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("table", ["sessions", "records", "leases", "inbox", "approvals"])
async def test_a_table_that_was_dropped_is_told_by_name_and_never_made_anew(home: Path, table: str) -> None:
    change(home, f"DROP TABLE {table}")
    store = SqliteStore.open(home)
    told: list[StorageError] = []
    for question in (store.sessions(), store.read(an_id(1)), store.situation(an_id(1)), store.approvals()):
        try:
            await question
        except StorageError as error:
            told.append(error)
    await store.aclose()
    assert told
    for error in told:
        assert isinstance(error, StorageCorrupt)
        assert f"is damaged: no such table: {table}" in error.message
        assert "holdfast fsck" in error.hint
    lost = Damage("file", f"the table {table} is missing, with all that was in it")
    assert verify_home(home) == Verified((lost,))


@pytest.mark.requirement("L7")
async def test_an_index_that_was_dropped_is_told(home: Path) -> None:
    change(home, "DROP INDEX sessions_by_key")
    (damage,) = verify_home(home).damages
    assert damage.kind == "file"
    assert "the index sessions_by_key is missing" in damage.message


async def test_a_dropped_table_does_not_hide_other_damage(home: Path) -> None:
    change(home, "DROP TABLE approvals")
    change(home, "UPDATE records SET epoch = 9 WHERE session = 1 AND seq = 2")
    change(home, "INSERT INTO snapshots VALUES (2, 99, x'00')")
    assert found(home) == [("file", "", 0), ("changed", an_id(1), 2), ("row", an_id(2), 0)]


async def test_a_table_of_other_columns_is_told(home: Path) -> None:
    change(home, "ALTER TABLE sessions RENAME COLUMN number TO no")
    store = SqliteStore.open(home)
    with pytest.raises(StorageCorrupt, match="no such column: number") as caught:
        await store.sessions()
    assert "fsck" in caught.value.hint
    await store.aclose()
    assert found(home) == [("file", "", 0)]


async def test_the_table_of_snapshots_is_only_a_short_cut_and_made_anew(with_snapshot: Path) -> None:
    change(with_snapshot, "DROP TABLE snapshots")
    damage = verify_home(with_snapshot).damages
    assert [(each.kind, "costs time and nothing else" in each.message) for each in damage] == [("file", True)]
    store = SqliteStore.open(with_snapshot)
    recovered = await store.recover(an_id(1))
    assert (recovered.after_seq, len(recovered.records)) == (0, 3)
    driving = await drive(store, 2)
    await driving.commit(MessageReceived("one"), snapshot=b"derived")
    assert (await store.recover(an_id(2))).snapshot == b"derived"
    await store.aclose()
    assert verify_home(with_snapshot) == Verified()


def test_many_processes_may_make_the_table_of_snapshots_anew_at_once(with_snapshot: Path) -> None:
    code = "import sys, pathlib, holdfast.storage.sqlite as s; s.SqliteStore.open(pathlib.Path(sys.argv[1]))"
    for _ in range(1):
        change(with_snapshot, "DROP TABLE snapshots")
        command = [sys.executable, "-W", "ignore", "-c", code, str(with_snapshot)]
        openers = [subprocess.Popen(command) for _ in range(3)]
        assert [opener.wait(timeout=120) for opener in openers] == [0, 0, 0]
        assert verify_home(with_snapshot) == Verified()


async def test_a_record_of_an_unknown_type_is_told_and_does_not_hide_the_others(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    link = chain_link(driving.link, 2, 5, 0, 1, "command test", "MoonLanded", 1, digest_of(b"{}"))
    newer = StoredRecord(driving.session, 2, 5, 0, 1, "command test", "MoonLanded", 1, b"{}", link)
    commit = msgspec.structs.replace(driving.make(MessageReceived("two")), records=(newer,))
    await store.commit(commit)
    assert [record.type for record in await store.read(driving.session)] == ["MessageReceived", "MoonLanded"]
    damages = (await store.verify()).damages
    assert [(damage.kind, damage.seq) for damage in damages] == [("unreadable", 2)]
    assert "upgrade" in damages[0].message
    await store.aclose()


async def test_a_branch_of_a_damaged_parent_is_told_apart_from_its_own_records(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    parent = await drive(store, 1)
    await parent.commit(*(MessageReceived(str(number)) for number in range(4)))
    child = await branch(parent, 3, 2, MessageReceived("own"))
    await store.aclose()
    change(tmp_path, "UPDATE records SET epoch = 9 WHERE session = 1 AND seq = 2")
    assert found(tmp_path) == [("changed", parent.session, 2)]
    change(tmp_path, "DELETE FROM sessions WHERE number = 1")
    assert ("row", child.session, 0) in found(tmp_path)


@pytest.mark.requirement("L7")
async def test_missing_and_changed_blobs_are_found_where_they_are_needed(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    missing, changed = await store.blobs.put(b"one"), await store.blobs.put(b"two")
    for number, blob in enumerate((missing, changed, changed), 1):
        await driving.commit(ToolCallFinished(f"t1.c{number}", CallResult("ok", "head", blob=blob)))
    await store.aclose()
    blob_path(tmp_path / BLOBS, missing).unlink()
    blob_path(tmp_path / BLOBS, changed).write_bytes(b"owt")
    assert list(verify_home(tmp_path).damages) == [
        Damage("blob", f"the blob {missing} is missing", driving.session, 1),
        Damage("blob", f"the blob {changed} was changed", driving.session, 2),
        Damage("blob", f"the blob {changed} was changed", driving.session, 3),
    ]
    store = SqliteStore.open(tmp_path)
    with pytest.raises(StorageCorrupt, match="was changed"):
        await store.blobs.get(changed)
    await store.aclose()


async def test_a_blob_is_written_once(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    path = blob_path(tmp_path / BLOBS, await store.blobs.put(b"one"))
    before = path.stat()
    await store.blobs.put(b"one")
    await store.aclose()
    again = SqliteStore.open(tmp_path)
    await again.blobs.put(b"one")
    await again.aclose()
    assert path.stat().st_ino == before.st_ino
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path == tmp_path / "blobs" / path.name[:2] / path.name[2:4] / path.name


async def test_verifying_changes_nothing(home: Path) -> None:
    change(home, "UPDATE records SET epoch = 9 WHERE seq = 2")
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in home.rglob("*") if path.is_file()}
    assert len(verify_home(home).damages) == 2
    after = {path: hashlib.sha256(path.read_bytes()).digest() for path in home.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before


async def test_a_home_can_be_verified_while_others_write(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    for turn in range(20):
        await driving.commit(MessageReceived(str(turn)))
        assert await store.verify() == Verified()
    await store.aclose()
