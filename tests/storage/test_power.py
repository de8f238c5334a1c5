"""Whatever was acknowledged is there after a power cut at any moment; and what is there is whole."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rows import Verified
from holdfast.storage.blobs import read_blob
from holdfast.storage.fsck import verify_home
from holdfast.storage.home import BLOBS, DATABASE
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import drive
from tests.storage.power import Cut, Keep, cuts, everything, nothing, recorded, run_recorded, some

pytestmark = [
    pytest.mark.requirement("L7", "H1"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler for the shim"),
]

HOME = "data/home"
PROGRAM = f"""
import asyncio, json
from pathlib import Path
from holdfast.protocol.events import MessageReceived, ToolCallFinished
from holdfast.protocol.tools import CallResult
from holdfast.protocol.codec import encode_json
from holdfast.protocol.commands import Command, Pause, owner
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.conformance_store import an_entry, drive

def told(**what): kept(json.dumps(what))

async def main(number, output):
    store = SqliteStore.open(Path(sys.argv[1], "{HOME}"))
    driving = await drive(store, number, f"cli:{{number}}")
    told(session=driving.session, seq=0)
    for turn in range(1, 4):
        blob = await store.blobs.put(b"output %d of turn %d" % (output, turn) * 99)
        told(blob=blob)
        call = ToolCallFinished(f"t{{turn}}.c1", CallResult("ok", "head", blob=blob))
        await driving.commit(MessageReceived("~" * 3000), call)
        told(session=driving.session, seq=2 * turn)
    body = encode_json(Command("c1", driving.session, owner("ann"), Pause()))
    await store.post(an_entry(driving.session, "c1", body), 9)
    told(session=driving.session, command="c1")
    await store.aclose()
    told(closed=number)
"""
LIVES = "asyncio.run(main(1, 1)); asyncio.run(main(2, 2))"


def check(cut: Cut, keep: Keep, folder: Path) -> None:
    """Make the disk as it may be, and open the home that is on it."""
    shutil.rmtree(folder, ignore_errors=True)
    cut.disk.root.make(folder, keep)
    home = folder / HOME
    told = [json.loads(word) for word in cut.disk.marks]
    where = f"before call {cut.calls}: {cut.before.what} {cut.before.path}"
    home.mkdir(parents=True, exist_ok=True)
    SqliteStore.open(home)._writer._connection.close()  # a process that dies: nothing is folded in
    assert verify_home(home) == Verified(), where
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        seqs = dict(connection.execute("SELECT id, seq FROM sessions"))
        commands = set(
            connection.execute("SELECT id, command_id FROM inbox JOIN sessions ON number = session")
        )
    for what in told:
        if "blob" in what:
            read_blob(home / BLOBS, what["blob"])
        elif "command" in what:
            assert (what["session"], what["command"]) in commands, where
        elif "session" in what:
            assert seqs.get(what["session"], -1) >= what["seq"], where


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kept", ["nothing", "some", pytest.param("everything", marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(
    tmp_path: Path, kept: str, every: int
) -> None:
    (tmp_path / "disk").mkdir()
    assert run_recorded(PROGRAM + LIVES, tmp_path / "disk", tmp_path / "book") == 0
    calls = recorded(tmp_path / "book")
    for number, cut in enumerate(cuts(calls)):
        if number % every:
            continue
        if cut.before.what == "write" and (kept == "nothing" or cut.calls % 3):
            continue  # where nothing is kept, the disk is as it was at the last sync
        keep = {"nothing": nothing, "everything": everything, "some": some(cut.calls)}[kept]
        check(cut, keep, tmp_path / "after")


@pytest.mark.long
def test_what_a_process_began_that_was_killed_is_synced_by_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    run_recorded(PROGRAM + "asyncio.run(main(1, 1))", tmp_path / "whole", tmp_path / "book")
    changes = [
        at
        for at, call in enumerate(recorded(tmp_path / "book"), 1)
        if call.what in ("create", "mkdir", "rename")
    ]
    for at in changes:
        disk, book = tmp_path / f"disk{at}", tmp_path / f"book{at}"
        disk.mkdir()
        assert run_recorded(PROGRAM + "asyncio.run(main(1, 1))", disk, book, ends_at=at + 1) == 9
        first = len(recorded(book))
        run_recorded(PROGRAM + "asyncio.run(main(2, 1))", disk, book)
        for cut in cuts(recorded(book), first):
            if cut.before.what == "mark":
                check(cut, nothing, tmp_path / "after")


@pytest.mark.parametrize("step", [4093, pytest.param(1021, marks=pytest.mark.long)])
async def test_a_log_that_is_cut_at_any_byte_holds_a_prefix_of_what_was_written(
    tmp_path: Path, step: int
) -> None:
    store = SqliteStore.open(tmp_path / "home")
    driving = await drive(store)
    for turn in range(6):
        await driving.commit(MessageReceived(f"turn {turn} " + "~" * 1500))
    written = await store.read(driving.session)
    database, log = ((tmp_path / "home" / name).read_bytes() for name in (DATABASE, f"{DATABASE}-wal"))
    await store.aclose()
    home, before = tmp_path / "after", 0
    for size in (*range(0, len(log), step), len(log)):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        (home / DATABASE).write_bytes(database)
        (home / f"{DATABASE}-wal").write_bytes(log[:size])
        again = SqliteStore.open(home)
        found = await again.read(driving.session)
        await again.aclose()
        assert found == written[: len(found)]
        assert len(found) >= before, "a longer log holds no less"
        assert verify_home(home) == Verified()
        before = len(found)
    assert before == len(written)


def test_the_digest_of_what_is_kept_is_that_of_what_was_written(tmp_path: Path) -> None:
    """The disk that is made anew is the real one, where everything is kept: else nothing is shown here."""
    (tmp_path / "disk").mkdir()
    run_recorded(PROGRAM + LIVES, tmp_path / "disk", tmp_path / "book")
    *_, end = cuts(recorded(tmp_path / "book"))
    end.disk.root.make(tmp_path / "after", everything)
    assert digests(tmp_path / "after") == digests(tmp_path / "disk")


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
