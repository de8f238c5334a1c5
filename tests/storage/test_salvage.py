"""Saving a damaged home: the new file has every intact record, and every other one is reported."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import StorageCorrupt, StorageError, StorageFull, UsageError
from holdfast.protocol.codec import LOST, StoredRecord, encode_json
from holdfast.protocol.commands import Command, Pause, owner
from holdfast.protocol.events import (
    ApprovalResolved,
    MessageReceived,
    SessionOpened,
    ToolCallFinished,
)
from holdfast.protocol.rows import Salvaged, Stretch, Verified
from holdfast.protocol.tools import CallResult
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.salvage import salvage
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import a_holder, an_entry, an_id, asked, branch, drive

Journals = dict[str, list[StoredRecord]]
LAST = {an_id(1): 12, an_id(2): 12, an_id(3): 10}
"""The end of each journal."""


def a_command(session: str) -> bytes:
    return encode_json(Command("c1", session, owner("ann"), Pause()))


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """Two sessions, and a branch of the first one, with approvals, a blob and a waiting command."""
    home = tmp_path / "home"
    store = SqliteStore.open(home)
    for number in (1, 2):
        driving = await drive(store, number, f"cli:{number}")
        blob = await store.blobs.put(b"the whole output")
        await driving.commit(
            SessionOpened(driving.session, f"cli:{number}"), asked(driving), asked(driving, 2)
        )
        for turn in range(4, 11):
            await driving.commit(MessageReceived(f"session {number} turn {turn} " + "~" * 300))
        await driving.commit(ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)))
        await driving.commit(ApprovalResolved(f"{driving.session}-2", "approve", "ann"))
        await store.post(an_entry(driving.session, "c1", a_command(driving.session)), 9)
        if number == 1:
            first = driving
    await branch(first, 7, 3, MessageReceived("branch " + "~" * 300), MessageReceived("end"))
    await store.aclose()
    return home


async def journals(home: Path) -> Journals:
    """All records of all sessions."""
    store = SqliteStore.open(home)
    found = {row.session: await store.read(row.session) for row in await store.sessions(limit=99)}
    await store.aclose()
    return found


def restored(home: Path, file: Path) -> Path:
    """A home with the saved database, and the blobs of the damaged one."""
    again = file.parent / "again"
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir()
    shutil.copyfile(file, again / DATABASE)
    if (home / BLOBS).exists():
        shutil.copytree(home / BLOBS, again / BLOBS)
    return again


def change(home: Path, sql: str) -> None:
    connection = sqlite3.connect(home / DATABASE, isolation_level=None)
    connection.executescript(sql)
    connection.close()


def lies_at(session: str, seq: int) -> tuple[str, int]:
    """Whose record it is: the third session shares the first seven of the first one."""
    return (an_id(1) if session == an_id(3) and seq <= 7 else session, seq)


def told(saved: Salvaged) -> set[tuple[str, int]]:
    """The records that the repair reports as lost."""
    return {
        (stretch.session, seq)
        for stretch in saved.lost
        for seq in range(stretch.first_seq, stretch.last_seq + 1)
    }


async def check(home: Path, file: Path, whole: Journals, saved: Salvaged) -> None:
    """The new database is whole, and holds exactly the records that are not reported as lost, unchanged."""
    again = restored(home, file)
    verified, lost = verify_home(again), told(saved)
    # Nothing is left to prove the records behind a hole. Only these may be unreadable, or name a missing blob.
    assert {each.kind for each in verified.damages} <= {"blob", "unreadable"}
    assert all(lies_at(each.session, each.seq - 1) in lost for each in verified.damages), verified.damages
    found = await journals(again)
    assert len(found) == saved.sessions
    assert {(stretch.session, seq) for stretch in verified.lost for seq in
            range(stretch.first_seq, stretch.last_seq + 1)} == lost  # fmt: skip
    for session, records in whole.items():
        for record in records:
            here = next((each for each in found.get(session, []) if each.seq == record.seq), None)
            if lies_at(session, record.seq - 1) in lost and lies_at(session, record.seq) not in lost:
                continue  # nothing is left that could prove it
            if (session, record.seq) in lost or (here is not None and here.type == LOST):
                assert here is not None
                assert (here.body, here.type) == (b"", LOST)
            elif here is None:
                assert saved.notes, "a whole session is gone without a word"
            else:
                envelope = {"link": b"", "session": session}
                assert msgspec.structs.replace(here, **envelope) == msgspec.structs.replace(
                    record, **envelope
                )


async def test_a_whole_home_is_saved_record_by_record(home: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    file = tmp_path / "saved.db"
    saved = salvage(home, file)
    assert saved == Salvaged(3, 12 + 12 + 3)
    assert {path: path.read_bytes() for path in before} == before
    again = restored(home, file)
    assert verify_home(again) == Verified()
    assert await journals(again) == await journals(home)
    old, new = SqliteStore.open(home), SqliteStore.open(again)
    assert await new.sessions() == await old.sessions()
    assert await new.approvals() == await old.approvals()
    assert await new.approvals(is_open=False) == await old.approvals(is_open=False)
    assert await new.inbox(an_id(1)) == await old.inbox(an_id(1)) != []
    assert await new.find("cli:2") == [an_id(2)]
    assert (await new.lease(an_id(1), a_holder("b"), 1)).epoch == 2, "an epoch is never used again"
    assert (await new.post(an_entry(an_id(1), "c1"), 9)).outcome == "duplicate"
    await old.aclose()
    await new.aclose()


SWAPPED = (
    "UPDATE records SET seq = -seq WHERE session = 1 AND seq IN (5, 8);"
    "UPDATE records SET seq = CASE seq WHEN -5 THEN 8 ELSE 5 END WHERE seq < 0"
)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    ("sql", "lost"),
    [
        ("UPDATE records SET body = x'7b7d' WHERE session = 2 AND seq = 6", [(2, 6, 6)]),
        ("UPDATE records SET at_ms = at_ms + 1 WHERE session = 2 AND seq = 12", [(2, 12, 12)]),
        ("DELETE FROM records WHERE session = 2 AND seq IN (5, 6, 9)", [(2, 5, 6), (2, 9, 9)]),
        ("DELETE FROM records WHERE session = 2 AND seq > 10", [(2, 11, 12)]),
        ("DELETE FROM records WHERE session = 2", [(2, 1, 12)]),
        ("DELETE FROM records WHERE session = 1 AND seq = 4", [(1, 4, 4)]),
        ("UPDATE records SET link = zeroblob(32) WHERE session = 2 AND seq = 5", []),
        (SWAPPED, []),
        ("UPDATE sessions SET row = x'00', seq = 3, position = 1, status = 'done' WHERE number = 2", []),
        ("DELETE FROM approvals; DELETE FROM blob_uses; DELETE FROM leases", []),
        ("DROP TABLE approvals; DROP TABLE snapshots; DROP TABLE blob_uses; DROP INDEX sessions_by_key", []),
        ("PRAGMA user_version = 0", []),
        ("UPDATE sessions SET parent = 2 WHERE number = 3", []),
        ("UPDATE sessions SET at_seq = 71 WHERE number = 3", []),
        ("UPDATE sessions SET row = CAST(json_set(row, '$.turns', 9) AS BLOB)", []),
    ],
)
async def test_each_kind_of_damage_costs_what_it_must_and_no_more(
    home: Path, tmp_path: Path, sql: str, lost: list[tuple[int, int, int]]
) -> None:
    whole = await journals(home)
    change(home, sql)
    before = hashlib.sha256((home / DATABASE).read_bytes()).digest()
    saved = salvage(home, tmp_path / "saved.db")
    own = [stretch for stretch in saved.lost if stretch.session != an_id(3) or stretch.first_seq > 7]
    assert own == [Stretch(an_id(number), first, last) for number, first, last in lost]
    await check(home, tmp_path / "saved.db", whole, saved)
    assert hashlib.sha256((home / DATABASE).read_bytes()).digest() == before


async def test_sessions_whose_rows_are_lost_are_named_by_their_records(home: Path, tmp_path: Path) -> None:
    whole = await journals(home)
    change(home, "DROP TABLE sessions")
    saved = salvage(home, tmp_path / "saved.db")
    assert {name for note in saved.notes for name in LAST if name in note} == LAST.keys()
    found = await journals(restored(home, tmp_path / "saved.db"))
    assert found == whole, "where it branched off, its first record says too"
    assert saved.lost == ()
    await check(home, tmp_path / "saved.db", whole, saved)


async def test_records_that_are_gone_with_their_table_are_told(home: Path, tmp_path: Path) -> None:
    change(home, "DROP TABLE records")
    saved = salvage(home, tmp_path / "saved.db")
    shared = {an_id(3): 7}
    assert told(saved) == {
        (name, seq) for name, last in LAST.items() for seq in range(shared.get(name, 0) + 1, last + 1)
    }
    assert any("table records" in note for note in saved.notes)


async def test_a_lost_first_page_costs_nothing(home: Path, tmp_path: Path) -> None:
    whole, sound = await journals(home), (home / DATABASE).read_bytes()
    (home / DATABASE).write_bytes(bytes(4096) + sound[4096:])
    saved = salvage(home, tmp_path / "saved.db")
    assert (saved.sessions, saved.records, saved.lost) == (3, 27, ())
    assert ["list of tables" in note for note in saved.notes] == [True]
    assert await journals(restored(home, tmp_path / "saved.db")) == whole
    assert {path.name for path in tmp_path.iterdir()} == {"home", "saved.db", "again"}, "the copy is gone"


@pytest.fixture
async def long_home(tmp_path: Path) -> Path:
    """A session of many records, of which some have bodies that are longer than a page."""
    home = tmp_path / "long"
    store = SqliteStore.open(home)
    driving = await drive(store)
    await driving.commit(SessionOpened(driving.session))
    for turn in range(60):
        await driving.commit(MessageReceived(f"turn {turn} " + "~" * (20_000 if turn % 9 == 0 else 700)))
    await store.aclose()
    return home


@pytest.mark.requirement("L7")
async def test_records_are_found_page_by_page_where_the_way_to_them_is_lost(
    long_home: Path, tmp_path: Path
) -> None:
    whole = await journals(long_home)
    root = root_page(long_home, "records")
    with (long_home / DATABASE).open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    saved = salvage(long_home, tmp_path / "saved.db")
    assert (saved.records, saved.lost) == (61, ())
    assert "page by page, 61 more records found" in saved.notes
    assert await journals(restored(long_home, tmp_path / "saved.db")) == whole


async def test_lost_commands_are_named(home: Path, tmp_path: Path) -> None:
    root = root_page(home, "inbox")
    with (home / DATABASE).open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    saved = salvage(home, tmp_path / "saved.db")
    assert [note for note in saved.notes if "'c1'" in note] == [
        f"session {an_id(number)}: the command 'c1' cannot be read" for number in (1, 2)
    ]
    assert any("table inbox" in note for note in saved.notes)


async def test_rows_that_a_torn_page_hides_are_counted(home: Path, tmp_path: Path) -> None:
    with (home / DATABASE).open("r+b") as file:
        file.truncate((root_page(home, "inbox") - 1) * 4096 + 100)
    saved = salvage(home, tmp_path / "saved.db")
    assert "the table inbox: 2 of its 2 rows cannot be read" in saved.notes


async def test_sessions_of_which_only_a_number_is_left_are_told(home: Path, tmp_path: Path) -> None:
    change(home, "DELETE FROM sessions WHERE number = 2; DELETE FROM records WHERE session = 2")
    saved = salvage(home, tmp_path / "saved.db")
    assert [note for note in saved.notes if note.startswith("the sessions")] == [
        "the sessions with the numbers 2 to 2, with all that was in them"
    ]
    assert "the command 'c1': it belongs nowhere" in saved.notes


async def test_lost_blobs_are_named_with_their_sessions(home: Path, tmp_path: Path) -> None:
    blob = hashlib.sha256(b"the whole output").hexdigest()
    shutil.rmtree(home / BLOBS)
    saved = salvage(home, tmp_path / "saved.db")
    assert saved.notes == (f"the blob {blob} is missing (session {an_id(1)}, {an_id(2)})",)


async def test_a_record_that_nothing_proves_is_saved_and_told(home: Path, tmp_path: Path) -> None:
    change(home, "DELETE FROM records WHERE session = 2 AND seq = 6")
    saved = salvage(home, tmp_path / "saved.db")
    assert saved.notes == (f"session {an_id(2)}: record 7 is saved, and nothing is left to prove it",)


async def test_of_two_records_with_one_number_the_true_one_is_saved(home: Path, tmp_path: Path) -> None:
    whole = await journals(home)
    change(
        home,
        "CREATE TABLE loose AS SELECT * FROM records; DROP TABLE records;"
        "ALTER TABLE loose RENAME TO records;"
        "UPDATE records SET seq = 9 WHERE session = 2 AND seq = 5",
    )
    saved = salvage(home, tmp_path / "saved.db")
    assert told(saved) <= {(an_id(2), 5)}
    again = await journals(restored(home, tmp_path / "saved.db"))
    assert again[an_id(2)][8].body == whole[an_id(2)][8].body


def root_page(home: Path, table: str) -> int:
    with sqlite3.connect(home / DATABASE) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    connection.close()
    return int(found[0])


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 9))])
async def test_whatever_byte_is_flipped_nothing_false_is_saved_and_nothing_lost_untold(
    home: Path, tmp_path: Path, seed: int
) -> None:
    whole, sound = await journals(home), (home / DATABASE).read_bytes()
    draw, file, hurt = random.Random(seed), tmp_path / "saved.db", 0
    for _ in range(25):
        content = bytearray(sound)
        for _ in range(draw.choice((1, 1, 4, 20))):
            content[draw.randrange(100, len(content))] ^= 1 << draw.randrange(8)
        (home / DATABASE).write_bytes(content)
        try:
            saved = salvage(home, file)
        except StorageError:
            assert not file.exists(), "what cannot be read at all leaves nothing behind"
            continue
        hurt += bool(saved.lost)
        await check(home, file, whole, saved)
        file.unlink()
    assert hurt


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
async def test_whatever_page_is_zeroed_nothing_false_is_saved_and_nothing_lost_untold(
    home: Path, tmp_path: Path, every: int
) -> None:
    whole, sound = await journals(home), (home / DATABASE).read_bytes()
    file, hurt = tmp_path / "saved.db", 0
    for at in range(0, len(sound), every * 4096):
        (home / DATABASE).write_bytes(sound[:at] + bytes(4096) + sound[at + 4096 :])
        saved = salvage(home, file)
        hurt += bool(saved.lost or saved.notes)
        await check(home, file, whole, saved)
        file.unlink()
    assert hurt > 5 // every


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.long)])
async def test_wherever_a_file_is_torn_off_nothing_false_is_saved_and_nothing_lost_untold(
    home: Path, tmp_path: Path, count: int
) -> None:
    whole, sound = await journals(home), (home / DATABASE).read_bytes()
    draw, file = random.Random(0), tmp_path / "saved.db"
    for _ in range(count):
        (home / DATABASE).write_bytes(sound[: draw.randrange(8192, len(sound))])
        saved = salvage(home, file)
        assert saved.lost or saved.notes
        await check(home, file, whole, saved)
        file.unlink()


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
async def test_what_is_left_of_a_torn_file_is_saved(home: Path, tmp_path: Path, share: float) -> None:
    whole = await journals(home)
    os.truncate(home / DATABASE, int((home / DATABASE).stat().st_size * share))
    try:
        saved = salvage(home, tmp_path / "saved.db")
    except StorageError:
        assert share < 0.5
        return
    assert saved.lost
    await check(home, tmp_path / "saved.db", whole, saved)


async def test_a_file_that_is_there_is_never_written_to(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved.db"
    file.write_text("precious")
    for target in (file, home / DATABASE, tmp_path / "no" / "folder.db"):
        with pytest.raises(UsageError):
            salvage(home, target)
    assert file.read_text() == "precious"


@pytest.mark.parametrize("content", [b"", b"x", b"milk, bread, butter\n" * 300])
def test_of_a_file_that_is_no_database_nothing_is_saved(tmp_path: Path, content: bytes) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / DATABASE).write_bytes(content)
    with pytest.raises(StorageError):
        salvage(home, tmp_path / "saved.db")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_the_database_of_another_program_is_not_saved(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with sqlite3.connect(home / DATABASE) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    with pytest.raises(StorageCorrupt, match="not a database of Holdfast"):
        salvage(home, tmp_path / "saved.db")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for next to nothing."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_a_disk_that_is_full_is_told_and_leaves_no_half_database(home: Path, small_disk: Path) -> None:
    with pytest.raises(StorageFull, match=str(small_disk)):
        salvage(home, small_disk / "saved.db")
    assert list(small_disk.iterdir()) == []
