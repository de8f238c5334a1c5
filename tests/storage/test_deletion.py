"""What others do while a session is deleted, and what a deletion leaves behind."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import Fenced, NoSuchSession, StorageLocked
from holdfast.protocol.events import MessageReceived, ToolCallFinished
from holdfast.protocol.rows import Lease, Verified
from holdfast.protocol.tools import CallResult
from holdfast.runtime.fork import fork
from holdfast.storage import deletion
from holdfast.storage.blobs import YOUNG_MS, blob_path
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.salvage import salvage
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import (
    NOW_MS,
    TERM_MS,
    Driving,
    a_holder,
    an_entry,
    an_id,
    attaching,
    drive,
    refused,
    texts,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "home", clock=JumpingClock(), busy_s=0.05)
    yield store
    await store.aclose()


@contextmanager
def a_reader(store: SqliteStore) -> Iterator[None]:
    """Somebody who reads the home at one moment, for as long as the block lasts."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        yield


async def half_deleted(store: SqliteStore) -> Driving:
    """Begin to delete a session and stop in the middle, because somebody reads the log."""
    one = await drive(store, 1)
    await one.commit(MessageReceived("one"))
    with a_reader(store):
        await refused(StorageLocked, store.delete(one.lease))
    return one


async def delete(store: SqliteStore, lease: Lease) -> None:
    """Delete as the command does: with a lease of its own."""
    await store.delete(await store.lease(lease.session, a_holder("b"), TERM_MS, lease))


async def test_a_deletion_ends_only_when_nobody_reads_what_was_deleted(store: SqliteStore) -> None:
    one = await half_deleted(store)
    assert await store.session(one.session) is not None
    await delete(store, one.lease)
    assert await store.session(one.session) is None
    assert await store.verify() == Verified()


async def test_a_session_that_is_being_deleted_takes_nothing_new(store: SqliteStore) -> None:
    one = await half_deleted(store)
    await refused(NoSuchSession, store.post(an_entry(one.session, "c1"), 10))
    await refused(NoSuchSession, store.claim(one.session, "", NOW_MS, an_entry(one.session, "c2")))
    taken = await store.lease(one.session, a_holder("b"), TERM_MS, one.lease)
    again = Driving(store, taken, 0, bytes(32))
    await refused(Fenced, store.commit(again.make(MessageReceived("two"))))
    assert list(await store.inbox(one.session)) == []
    found = await store.verify()
    assert found.damages == ()
    assert found.notices == (
        f"The deletion of session {one.session} was not completed. `holdfast delete {one.session}` completes it.",
    )


async def test_a_deletion_ends_also_if_somebody_took_the_empty_session(store: SqliteStore) -> None:
    one = await half_deleted(store)
    taken = await store.lease(one.session, a_holder("b"), TERM_MS, one.lease)
    assert taken.holder == a_holder("b")
    await store._writer.do(lambda connection: deletion.remove(connection, one.session))
    assert await store.session(one.session) is None


async def test_the_number_of_a_deleted_session_is_never_given_again(store: SqliteStore) -> None:
    numbers = []
    for number in range(1, 4):
        driving = await drive(store, number)
        await driving.commit(MessageReceived("one"))
        with closing(sqlite3.connect(store.path)) as reader:
            numbers += reader.execute("SELECT number FROM sessions").fetchone()
        await store.delete(driving.lease)
    assert numbers == [1, 2, 3]


async def test_a_repair_tells_no_loss_where_sessions_were_deleted(store: SqliteStore, tmp_path: Path) -> None:
    one, two, three = [await drive(store, number) for number in (1, 2, 3)]
    for each in (one, two, three):
        await each.commit(MessageReceived("one"))
    await store.delete(two.lease)
    await store.delete(three.lease)
    four = await drive(store, 4)
    await four.commit(MessageReceived("four"))
    saved = tmp_path / "saved"
    saved.mkdir()
    assert salvage(store.path.parent, saved / DATABASE).notes == ()
    repaired = SqliteStore.open(saved)
    five = await drive(repaired, 5)
    with closing(sqlite3.connect(repaired.path)) as reader:
        assert reader.execute("SELECT max(number), count(*) FROM sessions").fetchone() == (5, 3)
    assert texts(await repaired.read(one.session)) == ["one"]
    assert five.session == an_id(5)
    await repaired.aclose()


# --- what killed processes left


def old(path: Path) -> Path:
    """Make the file as old as one that nobody can be about to refer to."""
    os.utime(path, (1, 1))
    return path


async def test_a_deletion_sweeps_what_killed_processes_left(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    root = tmp_path / BLOBS
    contents = [b"left", b"young", b"used", b"waits", b"unlisted", b"again"]
    left, young, used, waits, unlisted, again = [await store.blobs.put(each) for each in contents]
    one, two = await drive(store, 1), await drive(store, 2)
    results = [ToolCallFinished("t1.c1", CallResult("ok", "head", blob=blob)) for blob in (used, unlisted)]
    await two.commit(results[0])
    await two.commit(results[1], blobs=())
    await store.post(an_entry(two.session, "c1", attaching(waits)), 10)
    kept = [blob_path(root, each) for each in (young, used, waits, unlisted, again)]
    for blob in (left, used, waits, unlisted, again):
        old(blob_path(root, blob))
    draft = blob_path(root, left).with_name(f".{left}.12.34")
    foreign = draft.with_name("notes.txt")
    for path in (draft, foreign):
        path.write_bytes(b"left")
        old(path)
    other = SqliteStore.open(tmp_path)
    assert await other.blobs.put(b"again") == again
    (notice,) = (await store.verify()).notices
    assert notice.startswith(f"No session refers to 2 of the files in {root} (8 bytes)")
    await store.delete(one.lease)
    assert not draft.exists()
    assert not blob_path(root, left).exists()
    assert all(path.exists() for path in (*kept, foreign))
    assert (await store.verify()).notices == ()
    assert await store.blobs.get(await store.blobs.put(b"left")) == b"left"
    await other.aclose()
    await store.aclose()


async def test_what_was_put_long_ago_is_young_again_when_it_is_put_again(tmp_path: Path) -> None:
    clock = JumpingClock()
    store = SqliteStore.open(tmp_path, clock=clock)
    path = old(blob_path(tmp_path / BLOBS, await store.blobs.put(b"prompt")))
    clock.advance(YOUNG_MS / 2000)
    await store.blobs.put(b"prompt")
    assert path.stat().st_mtime > 1
    await store.aclose()


async def test_a_sweep_spares_what_was_named_or_put_after_it_looked(store: SqliteStore) -> None:
    root = store.path.parent / BLOBS
    one = await drive(store)
    named, put, gone = [await store.blobs.put(each) for each in (b"named", b"put", b"gone")]
    files = [old(blob_path(root, blob)) for blob in (named, put, gone)]
    await one.commit(ToolCallFinished("t1.c1", CallResult("ok", "head", blob=named)))
    os.utime(files[1])
    await store._writer.do(lambda connection: deletion.sweep(connection, files, 2_000))
    assert [path.exists() for path in files] == [True, True, False]


async def test_a_session_whose_branch_began_right_before_is_not_deleted(store: SqliteStore) -> None:
    parent = await drive(store, 1)
    await parent.commit(MessageReceived("one"))
    await fork(store, JumpingClock(), parent.session, 1)
    await refused(Fenced, store.delete(parent.lease))
    assert texts(await store.read(parent.session)) == ["one"]
    assert (await store.verify()).damages == ()
