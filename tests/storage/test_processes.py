"""Several processes on one home, and killed ones: nothing acknowledged is lost, no seq has two writers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rows import Verified
from holdfast.storage.fsck import verify_home
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import an_id, drive

CHILD = Path(__file__).with_name("writing_child.py")
Child = subprocess.Popen[str]


@contextmanager
def child(home: Path, session: int, commits: int, epoch: int = 0) -> Iterator[Child]:
    arguments = [str(home), str(session), str(commits), str(epoch)]
    process = subprocess.Popen(
        [sys.executable, str(CHILD), *arguments], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def go(process: Child) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def acknowledged(process: Child) -> list[int]:
    assert process.stdout is not None
    return [int(line) for line in process.stdout if line.endswith("\n")]


async def whole_journal(home: Path, session: int) -> int:
    store = SqliteStore.open(home)
    try:
        records = await store.read(an_id(session))
        assert await store.verify() == Verified()
        return len(records)
    finally:
        await store.aclose()


@pytest.mark.requirement("C8", "H1", "A12")
@pytest.mark.parametrize("rounds", [3, pytest.param(12, marks=pytest.mark.long)])
async def test_after_kill_9_every_acknowledged_commit_is_there_and_the_home_is_clean(
    tmp_path: Path, rounds: int
) -> None:
    written = 0
    for round_ in range(rounds):
        with child(tmp_path, 1, 100_000) as process:
            go(process)
            assert process.stdout is not None
            seen = [int(process.stdout.readline()) for _ in range(3 + 17 * round_)]
            process.kill()
            seen += acknowledged(process)
        assert seen[0] > written
        written = await whole_journal(tmp_path, 1)
        assert written >= seen[-1]
        assert written - seen[-1] in (0, 2), "at most the commit whose answer was cut off is there besides"
        assert verify_home(tmp_path) == Verified()


@pytest.mark.requirement("C11")
async def test_two_processes_write_different_sessions_of_one_home(tmp_path: Path) -> None:
    with child(tmp_path, 1, 60) as one, child(tmp_path, 2, 60) as two:
        go(one)
        go(two)
        assert acknowledged(one) == acknowledged(two) == list(range(2, 122, 2))
    assert await whole_journal(tmp_path, 1) == await whole_journal(tmp_path, 2) == 120


@pytest.mark.requirement("C11")
async def test_of_two_processes_with_one_lease_exactly_one_gets_each_seq(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    epoch = (await drive(store)).lease.epoch
    await store.aclose()
    with child(tmp_path, 1, 60, epoch) as one, child(tmp_path, 1, 60, epoch) as two:
        go(one)
        go(two)
        seqs = acknowledged(one) + acknowledged(two)
    assert sorted(seqs) == list(range(2, 2 * len(seqs) + 1, 2))
    assert await whole_journal(tmp_path, 1) == 2 * len(seqs)


@pytest.mark.requirement("C11")
async def test_looking_at_a_home_that_is_in_use_does_not_drop_its_locks(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    driving = await drive(store, 2)
    await driving.commit(MessageReceived("one"))
    assert await store.verify() == Verified()
    await SqliteStore.open(tmp_path).aclose()
    with child(tmp_path, 1, 5) as other:
        go(other)
        assert acknowledged(other)[-1] == 10
        assert other.wait(10) == 0
    assert (tmp_path / "holdfast.db-wal").exists(), "the other did not think that it was the last one"
    await driving.commit(MessageReceived("two"))
    await store.aclose()
    assert await whole_journal(tmp_path, 2) == 2
    assert await whole_journal(tmp_path, 1) == 10


def test_many_processes_may_make_one_home_at_once(tmp_path: Path) -> None:
    code = "import sys, pathlib, holdfast.storage.sqlite as s; s.SqliteStore.open(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    openers = [subprocess.Popen(command) for _ in range(4)]
    assert [opener.wait(timeout=120) for opener in openers] == [0, 0, 0, 0]
    assert verify_home(tmp_path) == Verified()
