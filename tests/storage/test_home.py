"""Opening homes in every state: new, foreign, newer, read-only, full, locked."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.errors import (
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageNewer,
    StorageReadOnly,
    StorageReplaced,
)
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rows import InboxEntry, Verified
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import BLOBS, DATABASE, MARKER
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import Driving, a_holder, an_id, drive, lease_of, texts


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "home", busy_s=0.05)
    yield store
    await store.aclose()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounting.returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


async def write_until_it_is_full(driving: Driving) -> int:
    """How many commits were acknowledged before the disk was full."""
    for acknowledged in range(1000):
        try:
            await driving.commit(MessageReceived("x" * 20_000))
        except StorageFull:
            return acknowledged
    raise AssertionError("the disk was never full")


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        file.writelines(b"x" * 4096 for _ in range(1000))


@pytest.mark.requirement("L12")
async def test_session_persisted(tmp_path: Path) -> None:
    clock = JumpingClock()
    store = SqliteStore.open(tmp_path, clock=clock)
    driving = await drive(store, key="cli:demo")
    commit = await driving.commit(MessageReceived("remember the plan"))
    blob = await store.blobs.put(b"plan")
    await store.aclose()
    again = SqliteStore.open(tmp_path, clock=clock)
    assert await again.read(driving.session) == list(commit.records)
    assert await again.session(driving.session) == commit.row
    assert await lease_of(again, driving.session) == driving.lease
    assert await again.find("cli:demo") == [driving.session]
    assert await again.blobs.get(blob) == b"plan"
    await again.aclose()


@pytest.mark.requirement("A14")
async def test_folders_and_files_are_for_their_owner_alone(store: SqliteStore, tmp_path: Path) -> None:
    await (await drive(store)).commit(MessageReceived("one"))
    await store.blobs.put(b"content")
    await store.last_seq("x")
    home = tmp_path / "home"
    found = {home, *home.rglob("*")}
    assert {path.name for path in found} >= {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", "blobs"}
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.requirement("C8")
async def test_closing_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    files, threads = len(list(Path("/proc/self/fd").iterdir())), set(threading.enumerate())
    store = SqliteStore.open(tmp_path)
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    await store.read(driving.session)
    await store.aclose()
    left = {thread for thread in threading.enumerate() if thread.name.startswith("holdfast")}
    assert left <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert not list(tmp_path.glob("*-wal"))
    with pytest.raises(StorageError):
        await store.last_seq(driving.session)
    with pytest.raises(StorageError):
        await driving.commit(MessageReceived("two"))


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("content", [b"shopping list\n", b"x" * 5000, b"SQLite format 3\0 but no more"])
async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / DATABASE
    file.write_bytes(content)
    with pytest.raises(StorageCorrupt):
        SqliteStore.open(tmp_path)
    with pytest.raises(StorageCorrupt):
        verify_home(tmp_path)
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


async def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / DATABASE
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(StorageCorrupt, match="not a database of Holdfast"):
        SqliteStore.open(tmp_path)
    assert file.read_bytes() == before


async def test_a_home_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await SqliteStore.open(tmp_path).aclose()
    with sqlite3.connect(tmp_path / DATABASE) as newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    with pytest.raises(StorageNewer) as caught:
        SqliteStore.open(tmp_path)
    assert "Upgrade" in caught.value.hint
    with pytest.raises(StorageNewer):
        verify_home(tmp_path)


def test_a_home_without_a_database_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database"):
        verify_home(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


async def test_a_home_that_was_made_but_never_written_opens(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    with pytest.raises(StorageError, match="contains nothing yet"):
        verify_home(tmp_path)
    await SqliteStore.open(tmp_path).aclose()
    assert verify_home(tmp_path) == Verified()


def contents(home: Path) -> dict[Path, bytes]:
    """Every file of a home."""
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def refuses(home: Path) -> str:
    """Check that nothing opens the home or finds it whole, and that it stays as it is. Return the message."""
    before = contents(home)
    told: list[str] = []
    for look in (SqliteStore.open, SqliteStore.open_to_read, verify_home):
        with pytest.raises(StorageCorrupt) as caught:
            look(home)
        told.append(caught.value.message)
    assert contents(home) == before
    assert len(set(told)) == 1
    return told[0]


@pytest.mark.requirement("L7", "H1")
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "is missing"),
        (b"", "was emptied"),
        (b"x", "is not a database"),
        (b"S" * 511, "is not a database"),
    ],
    ids=["missing", "emptied", "one byte", "half a page"],
)
async def test_a_database_that_is_none_any_more_is_not_taken_for_a_new_one(
    tmp_path: Path, content: bytes | None, what: str
) -> None:
    store = SqliteStore.open(tmp_path)
    await (await drive(store)).commit(MessageReceived("one"))
    await store.aclose()
    (tmp_path / DATABASE).unlink()
    if content is not None:
        (tmp_path / DATABASE).write_bytes(content)
    assert what in refuses(tmp_path)


@pytest.mark.requirement("L7")
async def test_a_database_that_was_emptied_beside_its_blobs_is_not_taken_for_a_new_one(
    tmp_path: Path,
) -> None:
    store = SqliteStore.open(tmp_path)
    await store.blobs.put(b"content")
    await store.aclose()
    (tmp_path / MARKER).unlink()
    (tmp_path / DATABASE).write_bytes(b"")
    assert "was emptied" in refuses(tmp_path)


@pytest.mark.parametrize("content", [b"x", b"\0" * 100, b"\0" * 4096])
def test_a_byte_of_garbage_is_no_empty_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DATABASE).write_bytes(content)
    assert "is not a database" in refuses(tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_no_database(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / DATABASE)
    assert "is not a database" in refuses(tmp_path)


async def test_a_home_that_lost_its_mark_gets_it_again(tmp_path: Path) -> None:
    await SqliteStore.open(tmp_path).aclose()
    (tmp_path / MARKER).unlink()
    await SqliteStore.open(tmp_path).aclose()
    (tmp_path / DATABASE).unlink()
    assert "is missing" in refuses(tmp_path)


# What is beside the database in a home that cannot be written: nothing, after everybody closed it; its log and
# the index of that, after a crash or while others write; one of the two, in a copy that somebody made.
LEFT = {
    "closed": (DATABASE,),
    "crashed": (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"),
    "log": (DATABASE, f"{DATABASE}-wal"),
    "index": (DATABASE, f"{DATABASE}-shm"),
}


@pytest.fixture(params=LEFT)
async def read_only(request: pytest.FixtureRequest, tmp_path: Path, small_disk: Path) -> Path:
    """A read-only home with one record and one blob."""
    await leave(tmp_path / "home", small_disk, LEFT[request.param])
    make_read_only(small_disk)
    return small_disk


async def leave(made: Path, home: Path, names: tuple[str, ...]) -> str:
    """Put those files of a home with one record and one blob into another folder; returns the session."""
    store = SqliteStore.open(made)
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    await store.blobs.put(b"content")
    if f"{DATABASE}-wal" not in names:
        await store.aclose()
    for name in (*names, MARKER):
        (home / name).touch()
        with suppress(FileNotFoundError):
            shutil.copyfile(made / name, home / name)
    shutil.copytree(made / BLOBS, home / BLOBS)
    await store.aclose()
    return driving.session


@pytest.mark.requirement("L7")
async def test_a_read_only_home_is_told_to_who_would_write_and_can_be_verified(read_only: Path) -> None:
    for home in (read_only, read_only / "new"):
        with pytest.raises(StorageReadOnly, match="read-only") as caught:
            SqliteStore.open(home)
        assert "--home" in caught.value.hint
    assert verify_home(read_only) == Verified()


@pytest.mark.requirement("L7")
async def test_a_read_only_home_can_be_read_where_it_lies(read_only: Path) -> None:
    before = sorted(read_only.iterdir())
    store = SqliteStore.open_to_read(read_only)
    session = (await store.find("last"))[0]
    answers = await asyncio.gather(*(store.read(session) for _ in range(4)))
    assert [texts(records) for records in answers] == [["one"]] * 4
    assert [row.session for row in await store.sessions()] == [session]
    assert await store.blobs.get(hashlib.sha256(b"content").hexdigest()) == b"content"
    with pytest.raises(StorageReadOnly):
        await drive(store, 2)
    assert await store.verify() == Verified()
    await store.aclose()
    assert sorted(read_only.iterdir()) == before


@pytest.mark.requirement("L7")
async def test_what_lies_in_a_read_only_home_and_is_none_is_refused_for_reading_too(small_disk: Path) -> None:
    (small_disk / "empty").mkdir()
    (small_disk / "empty" / DATABASE).touch()
    (small_disk / "other").mkdir()
    (small_disk / "other" / DATABASE).write_bytes(b"milk, bread, butter\n" * 300)
    make_read_only(small_disk)
    for name in ("empty", "nowhere"):
        with pytest.raises(StorageReadOnly):
            SqliteStore.open_to_read(small_disk / name)
    with pytest.raises(StorageCorrupt, match="not a database of Holdfast"):
        SqliteStore.open_to_read(small_disk / "other")


@pytest.fixture
def view(store: SqliteStore, tmp_path: Path) -> Iterator[Path]:
    """The store's home once more, read-only."""
    view = tmp_path / "view"
    view.mkdir()
    mounting = ["mount", "--bind", str(store.path.parent), str(view)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a folder a second time")
    subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
    yield view
    subprocess.run(["umount", "--lazy", str(view)], check=True)


@pytest.mark.requirement("L7")
async def test_what_others_write_is_seen_through_a_read_only_view_of_their_home(
    store: SqliteStore, view: Path
) -> None:
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    looking = SqliteStore.open_to_read(view)
    assert texts(await looking.read(driving.session)) == ["one"]
    await driving.commit(MessageReceived("two"))
    assert texts(await looking.read(driving.session)) == ["one", "two"]
    assert await looking.verify() == Verified()
    await looking.aclose()


@pytest.mark.requirement("L7", "C8")
async def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(small_disk: Path) -> None:
    store = SqliteStore.open(small_disk)
    driving = await drive(store)
    acknowledged = await write_until_it_is_full(driving)
    with pytest.raises(StorageFull):
        await store.blobs.put(b"x" * (1 << 20))
    assert 3 < acknowledged < 60
    assert len(await store.read(driving.session)) == acknowledged
    await store.aclose()
    again = SqliteStore.open(small_disk)
    assert len(await again.read(driving.session)) == acknowledged
    assert await again.verify() == Verified()
    await again.aclose()


@pytest.mark.requirement("L7", "H1")
@pytest.mark.parametrize("left", LEFT)
async def test_a_home_on_a_full_disk_can_be_read_where_it_lies(
    tmp_path: Path, small_disk: Path, left: str
) -> None:
    session = await leave(tmp_path / "home", small_disk, LEFT[left])
    fill(small_disk / "ballast")
    before = contents(small_disk)
    store = SqliteStore.open_to_read(small_disk)
    answers = await asyncio.gather(*(store.read(session) for _ in range(4)))
    assert [texts(records) for records in answers] == [["one"]] * 4
    assert [row.session for row in await store.sessions()] == [session]
    assert await store.verify() == Verified()
    with pytest.raises(StorageError):
        await drive(store, 2)
    await store.aclose()
    assert verify_home(small_disk) == Verified()
    after = contents(small_disk)
    assert after.keys() == before.keys()
    assert after[small_disk / DATABASE] == before[small_disk / DATABASE]


@pytest.mark.requirement("L7")
async def test_a_home_in_use_can_be_read_when_its_disk_is_full(small_disk: Path) -> None:
    store = SqliteStore.open(small_disk)
    driving = await drive(store)
    acknowledged = await write_until_it_is_full(driving)
    fill(small_disk / "ballast")
    looking = SqliteStore.open_to_read(small_disk)
    assert len(await looking.read(driving.session)) == acknowledged
    assert await looking.verify() == Verified()
    await looking.aclose()
    await store.aclose()


@pytest.mark.requirement("L7")
async def test_writing_goes_on_when_there_is_space_again(small_disk: Path) -> None:
    store = SqliteStore.open(small_disk)
    driving = await drive(store)
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(StorageFull):
        await driving.commit(MessageReceived("x" * 20_000))
    ballast.unlink()
    await driving.commit(MessageReceived("two"))
    assert texts(await store.read(driving.session)) == ["two"]
    await store.aclose()


async def test_a_database_that_another_process_keeps_locked_is_told(store: SqliteStore) -> None:
    driving = await drive(store)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageLocked):
        await driving.commit(MessageReceived("one"))
    assert await store.last_seq(driving.session) == 0, "reading does not wait for who writes"
    other.close()
    await driving.commit(MessageReceived("one"))
    assert texts(await store.read(driving.session)) == ["one"]


def replace(path: Path) -> None:
    """Put a copy in the place of the database, as an editor or a restored backup would."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


@pytest.mark.requirement("L7", "H1")
@pytest.mark.parametrize(
    "spoil",
    [replace, Path.unlink, lambda path: os.truncate(path, 0)],
    ids=["replaced", "taken away", "emptied"],
)
async def test_a_database_that_is_replaced_while_in_use_is_noticed(
    store: SqliteStore, spoil: Callable[[Path], None]
) -> None:
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    spoil(store.path)
    with pytest.raises(StorageReplaced, match="was replaced"):
        await driving.commit(MessageReceived("two"))
    for question in (store.read(driving.session), store.inbox(driving.session), store.sessions()):
        with pytest.raises(StorageReplaced):
            await question
    with pytest.raises(StorageReplaced):
        await store.lease(driving.session, a_holder("b"), 1)


async def test_a_home_that_is_moved_back_is_the_same_one(store: SqliteStore) -> None:
    driving = await drive(store)
    await driving.commit(MessageReceived("one"))
    away = store.path.with_name("away")
    store.path.rename(away)
    with pytest.raises(StorageReplaced):
        await store.sessions()
    away.rename(store.path)
    assert texts(await store.read(driving.session)) == ["one"]


async def test_a_command_that_waits_in_a_home_of_an_earlier_version_is_read_as_it_was_accepted(
    tmp_path: Path,
) -> None:
    home, entry = tmp_path / "home", InboxEntry("c1", an_id(1), 7, b'{"text":"go"}')
    store = SqliteStore.open(home)
    await store.claim(an_id(1), "", 1, entry)
    await store.aclose()
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as earlier:
        earlier.execute("UPDATE inbox SET body = ?", (entry.body,))
        earlier.execute("ALTER TABLE leases DROP COLUMN term")
        earlier.execute("DROP TABLE deleted")
        for table in ("ledger", "reservations", "balances", "services"):
            earlier.execute(f"DROP TABLE {table}")
        earlier.execute("PRAGMA user_version = 2")
    store = SqliteStore.open(home)
    assert await store.inbox(an_id(1)) == [entry]
    assert await store.verify() == Verified()
    await store.aclose()
