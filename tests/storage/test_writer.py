"""The writer groups what waits, keeps neighbours apart, and lets senders wait when its queue is full."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.errors import Fenced, StorageCorrupt, StorageError, StorageLocked, UsageError
from holdfast.storage.writer import Writer


class Bench:
    """A writer on a table of numbers, with a gate that holds its thread."""

    def __init__(self, path: Path, busy_s: float = 1.0) -> None:
        self.path = path
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        self.statements: list[str] = []
        connection.set_trace_callback(self.statements.append)
        self.writer = Writer(connection, path, busy_s, capacity=3)
        self.gate = threading.Event()

    def hold(self, connection: sqlite3.Connection) -> str:
        assert self.gate.wait(5)
        return "held"

    def insert(self, number: int) -> Callable[[sqlite3.Connection], int]:
        def operation(connection: sqlite3.Connection) -> int:
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
            if number < 0:
                raise Fenced
            return number

        return operation

    def numbers(self) -> list[int]:
        reader = sqlite3.connect(self.path)
        try:
            return [row[0] for row in reader.execute("SELECT number FROM numbers ORDER BY number")]
        finally:
            reader.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "numbers.db")
    yield bench
    bench.gate.set()
    await bench.writer.aclose()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110 - the other side is a thread
            await asyncio.sleep(0)


async def test_what_waits_is_written_with_one_commit(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.writer.do(bench.hold))
        await until(lambda: bench.statements != [])
        tasks = [group.create_task(bench.writer.do(bench.insert(number))) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        bench.gate.set()
    assert [task.result() for task in tasks] == [1, 2, 3]
    assert bench.statements.count("COMMIT") == 2


async def test_a_refused_operation_does_not_undo_its_neighbours(bench: Bench) -> None:
    results: list[object] = []

    async def attempt(number: int) -> None:
        try:
            results.append(await bench.writer.do(bench.insert(number)))
        except (Fenced, StorageError) as error:
            results.append(type(error))

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.writer.do(bench.hold))
        await until(lambda: bench.statements != [])
        for number in (1, -2, 1):
            group.create_task(attempt(number))
        await asyncio.sleep(0)
        bench.gate.set()
    assert results == [1, Fenced, StorageCorrupt]
    assert bench.numbers() == [1]


@pytest.mark.requirement("C8")
async def test_a_slow_disk_slows_senders(bench: Bench) -> None:
    done: list[int] = []

    async def send(number: int) -> None:
        done.append(await bench.writer.do(bench.insert(number)))

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.writer.do(bench.hold))
        await until(lambda: bench.statements != [])
        for number in range(10):
            group.create_task(send(number))
        await asyncio.sleep(0)
        assert bench.writer.waiting == 3
        assert done == []
        bench.gate.set()
    assert sorted(done) == list(range(10))
    assert bench.numbers() == list(range(10))


async def test_a_cancelled_sender_leaves_a_whole_operation(bench: Bench) -> None:
    holding = asyncio.create_task(bench.writer.do(bench.hold))
    await until(lambda: bench.statements != [])
    sending = asyncio.create_task(bench.writer.do(bench.insert(1)))
    await asyncio.sleep(0)
    sending.cancel()
    bench.gate.set()
    await holding
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await bench.writer.do(bench.insert(2)) == 2
    assert bench.numbers() == [1, 2]


async def test_a_cancelled_close_does_not_keep_the_next_one_from_its_end(bench: Bench) -> None:
    holding = asyncio.create_task(bench.writer.do(bench.hold))
    await until(lambda: bench.statements != [])
    closing = asyncio.create_task(bench.writer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    bench.gate.set()
    await bench.writer.aclose()
    assert await holding == "held"
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-writer"]


async def test_closing_takes_no_thread_of_its_own(bench: Bench) -> None:
    assert await bench.writer.do(bench.insert(1)) == 1
    before = set(threading.enumerate())
    await bench.writer.aclose()
    assert set(threading.enumerate()) < before


async def test_closing_writes_what_is_waiting(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.writer.do(bench.hold))
        await until(lambda: bench.statements != [])
        group.create_task(bench.writer.do(bench.insert(1)))
        await asyncio.sleep(0)
        group.create_task(bench.writer.aclose())
        await asyncio.sleep(0)
        bench.gate.set()
    assert bench.numbers() == [1]
    with pytest.raises(StorageError):
        await bench.writer.do(bench.insert(2))


def spoil(value: object) -> Callable[[sqlite3.Connection], None]:
    """Writes a number, and then fails over the value."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (9)")
        if value is None:
            raise ZeroDivisionError
        connection.execute("SELECT ?", (value,))

    return operation


SPOILT = [
    ("tg:\ud800", UsageError),
    (1 << 70, UsageError),
    (object(), StorageError),
    (None, ZeroDivisionError),
]


@pytest.mark.parametrize(("value", "kind"), SPOILT, ids=["surrogate", "number", "object", "bug"])
async def test_an_operation_that_fails_alone_is_refused_and_the_next_is_carried_out(
    bench: Bench, value: object, kind: type[Exception]
) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(kind):
            await bench.writer.do(spoil(value))
        assert await bench.writer.do(bench.insert(1)) == 1
    assert bench.numbers() == [1]


@pytest.mark.parametrize(("value", "kind"), SPOILT, ids=["surrogate", "number", "object", "bug"])
async def test_an_operation_that_fails_among_others_is_refused_alone(
    bench: Bench, value: object, kind: type[Exception]
) -> None:
    async def refused(sent: Awaitable[object]) -> None:
        with pytest.raises(kind):
            await sent

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(bench.writer.do(bench.hold))
        await until(lambda: bench.statements != [])
        group.create_task(bench.writer.do(bench.insert(1)))
        group.create_task(refused(bench.writer.do(spoil(value))))
        group.create_task(bench.writer.do(bench.insert(2)))
        await asyncio.sleep(0)
        bench.gate.set()
    assert bench.numbers() == [1, 2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_the_end_of_the_writers_thread_lets_nobody_wait_for_ever(bench: Bench) -> None:
    def leave(connection: sqlite3.Connection) -> None:
        raise SystemExit

    async with asyncio.timeout(60):
        with pytest.raises(StorageError):
            await bench.writer.do(leave)
        with pytest.raises(StorageError):
            await bench.writer.do(bench.insert(1))


def test_one_writer_serves_several_event_loops(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "numbers.db")

    def in_a_loop_of_its_own(number: int) -> None:
        assert asyncio.run(bench.writer.do(bench.insert(number))) == number

    threads = [threading.Thread(target=in_a_loop_of_its_own, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    asyncio.run(bench.writer.aclose())
    assert bench.numbers() == [0, 1, 2, 3]


@pytest.mark.requirement("C11")
async def test_a_group_that_finds_the_database_locked_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "numbers.db", busy_s=2.0)
    other = sqlite3.connect(bench.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(bench.writer.do(bench.insert(number))) for number in (1, 2)]
        await until(lambda: bench.statements.count("BEGIN IMMEDIATE") > 2)
        other.execute("COMMIT")
    assert [task.result() for task in tasks] == [1, 2]
    assert bench.numbers() == [1, 2]
    other.close()
    await bench.writer.aclose()


async def test_a_lock_that_outlasts_all_patience_is_told_and_the_next_group_is_carried_out(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "numbers.db", busy_s=0.1)
    other = sqlite3.connect(bench.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageLocked):
        await bench.writer.do(bench.insert(1))
    other.close()
    assert await bench.writer.do(bench.insert(2)) == 2
    assert bench.numbers() == [2]
    await bench.writer.aclose()
