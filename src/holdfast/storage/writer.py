"""The one thread that writes: takes all that is waiting, makes one transaction of it, and answers everybody.

One fsync pays for all operations of a group. Each stands in its own savepoint, so that one which is refused or
fails does not undo its neighbours. The queue is bounded: when the disk is slow, senders wait. What operations do is
in `writes`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from holdfast.errors import StorageError
from holdfast.storage.errors import FAULTS, primary_code, replaced, storage_error
from holdfast.storage.home import place_of

_TRIES = 10
"""So often a group asks for the database that another process keeps locked."""

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


class _Job(msgspec.Struct, frozen=True):
    operation: Operation[Any]
    future: asyncio.Future[Any]


class _Answer(msgspec.Struct, frozen=True):
    future: asyncio.Future[Any]
    value: Any
    error: Exception | None = None


class Writer:
    """Owns the connection it is given; used from any event loop, `aclose` ends thread and connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, busy_s: float, capacity: int) -> None:
        """`busy_s` is how long a group waits for another process that writes."""
        connection.execute(f"PRAGMA busy_timeout = {round(busy_s * 1000 / _TRIES)}")
        self._connection = connection
        self._path = path
        self._place = place_of(path)
        self._capacity = capacity
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        """None is the end: nothing comes after it."""
        self._lock = threading.Lock()
        """Of what follows, and of putting a job: so that none comes after the end, nor above the capacity."""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """Senders that found the queue full."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)

    @property
    def waiting(self) -> int:
        """How many operations are queued; never more than the capacity."""
        return self._jobs.qsize()

    async def do(self, operation: Operation[T]) -> T:
        """The operation's result, once it is on disk. Cancelling the call does not undo the operation.

        Raises:
            HoldfastError: what the operation refused with, or what went wrong; nothing of it was written.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        while not self._enqueued(_Job(operation, future)):
            await self._room()
        return await future

    def _enqueued(self, job: _Job) -> bool:
        with self._lock:
            if self._is_closed:
                raise StorageError(f"{self._path} is closed")
            if self._jobs.qsize() >= self._capacity:
                return False
            self._jobs.put(job)
            if self._thread.ident is None:
                self._thread.start()
            return True

    async def _room(self) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._jobs.qsize() < self._capacity:
                return
            self._waiting.append(room)
        await room

    async def aclose(self) -> None:
        """Write what is waiting, then end; the last one to close a database folds its log into it."""
        with self._lock:
            self._is_closed = True
            self._jobs.put(None)
        if self._thread.ident is None:
            self._connection.close()
        else:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        jobs: list[_Job] = []
        try:
            is_open = True
            while is_open:
                jobs, is_open = self._next()
                if self._waiting:
                    self._admit()
                if jobs:
                    _tell(self._carry_out(jobs))
                    jobs = []
        finally:  # nobody waits for a thread that is gone
            with self._lock:
                self._is_closed = True
                self._jobs.put(None)
                lost = [job.future for job in jobs + self._next()[0]] + list(self._waiting)
            _tell([_Answer(future, None, StorageError("the writer ended by an error")) for future in lost])
            self._connection.close()

    def _next(self) -> tuple[list[_Job], bool]:
        """Wait for a job and take all that there are; whether more may come."""
        jobs: list[_Job] = []
        while not jobs or not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                return jobs, False
            jobs.append(job)
        return jobs, True

    def _admit(self) -> None:
        """There is room again."""
        with self._lock:
            admitted = [_Answer(room, None) for room in self._waiting]
            self._waiting.clear()
        _tell(admitted)

    def _carry_out(self, jobs: list[_Job]) -> list[_Answer]:
        """One transaction of all jobs: their answers, or for all the failure that kept it from being made."""
        connection = self._connection
        carry_out = self._beside_others if len(jobs) > 1 else self._alone
        try:
            self._begin()
            answers = [carry_out(job) for job in jobs]
            connection.execute("COMMIT")
            if (
                place_of(self._path) != self._place
            ):  # what was written is in a file that nobody finds any more
                raise replaced(self._path)
            return answers
        except Exception as error:  # the thread's edge: who asked is told, and the next group is carried out
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # SQLite has rolled back already, as it does when the disk is full
            return [self._refused(job, error) for job in jobs]

    def _begin(self) -> None:
        """Keep other processes from writing. One that keeps us from it is waited for, since its end costs nothing,
        and ours every session of this process; whose lease is taken meanwhile finds itself fenced."""
        for _ in range(_TRIES - 1):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
        self._connection.execute("BEGIN IMMEDIATE")

    def _alone(self, job: _Job) -> _Answer:
        """The transaction itself is what a refusal undoes: a savepoint would cost a fifth of a commit more."""
        return _Answer(job.future, job.operation(self._connection))

    def _beside_others(self, job: _Job) -> _Answer:
        connection = self._connection
        connection.execute("SAVEPOINT one")
        try:
            answer = _Answer(job.future, job.operation(connection))
        except Exception as error:
            if not connection.in_transaction:
                raise  # the whole transaction is gone, and with it the neighbours
            connection.execute("ROLLBACK TO one")
            answer = self._refused(job, error)
        connection.execute("RELEASE one")
        return answer

    def _refused(self, job: _Job, error: Exception) -> _Answer:
        """A bug is raised as it is, by whoever brought it."""
        refusal = storage_error(error, self._path) if isinstance(error, FAULTS) else error
        return _Answer(job.future, None, refusal)


def _tell(answers: list[_Answer]) -> None:
    """Hand the answers over, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.future.get_loop(), []).append(answer)
    for loop, its_answers in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, its_answers)
        except RuntimeError:
            pass  # the loop is closed, so nobody waits there


def _settle(answers: list[_Answer]) -> None:
    for answer in answers:
        if answer.future.done():
            continue  # whoever asked was cancelled meanwhile
        if answer.error is None:
            answer.future.set_result(answer.value)
        else:
            answer.future.set_exception(answer.error)
