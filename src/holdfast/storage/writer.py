"""The one thread that writes: it takes all jobs that wait, runs them in one transaction, and returns the results.

One fsync pays for all operations of a group. Each has its own savepoint, so that one that is refused or fails does
not undo its neighbours. The queue is bounded: if the disk is slow, senders wait. `writes` has the operations.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from holdfast.errors import StorageError
from holdfast.storage.errors import FAULTS, primary_code, replaced, storage_error
from holdfast.storage.home import place_of

_TRIES = 10
"""How often a group retries while another process locks the database."""

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]


class _Job(msgspec.Struct, frozen=True):
    operation: Operation[Any]
    future: asyncio.Future[Any]
    is_synced: bool = True


class _Result(msgspec.Struct, frozen=True):
    future: asyncio.Future[Any]
    value: Any
    error: Exception | None = None


class Writer:
    """Owns the given connection. Any event loop may use it, and `aclose` ends thread and connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, busy_s: float, capacity: int) -> None:
        """`busy_s` is how long a group waits for another process that writes."""
        connection.execute(f"PRAGMA busy_timeout = {round(busy_s * 1000 / _TRIES)}")
        self._connection = connection
        self._path = path
        self._file = str(path)
        self._place = place_of(self._file)
        self._capacity = capacity
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        """None is the end: nothing comes after it."""
        self._lock = threading.Lock()
        """Guards the following fields and the queue: nothing comes after the end or above the capacity."""
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """Senders that found the queue full."""
        self._is_closed = False
        self._ended: Future[None] = Future()
        """Done when the thread has closed the connection."""
        self._ended.set_running_or_notify_cancel()
        self._thread: threading.Thread | None = None
        """Started with the first operation."""

    @property
    def waiting(self) -> int:
        """The number of queued operations, never more than the capacity."""
        return self._jobs.qsize()

    async def do(self, operation: Operation[T], *, is_synced: bool = True) -> T:
        """Return the operation's result when it is on disk. Cancelling the call does not undo the operation.

        Without `is_synced`, other processes see the result, and it is on disk with the next operation that is: it may
        be lost if the power fails before.

        Raises:
            HoldfastError: the operation refused, or failed; nothing of it was written.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        while not self._enqueued(_Job(operation, future, is_synced)):
            await self._room()
        return await future

    def _enqueued(self, job: _Job) -> bool:
        with self._lock:
            if self._is_closed:
                raise StorageError(f"{self._path} is closed")
            if self._jobs.qsize() >= self._capacity:
                return False
            self._jobs.put(job)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
                thread.start()
                self._thread = thread
            return True

    async def _room(self) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._jobs.qsize() < self._capacity:
                return
            self._waiting.append(room)
        await room

    async def aclose(self) -> None:
        """Write what waits, then end. The last process to close a database merges its log into it."""
        with self._lock:
            self._is_closed = True
            self._jobs.put(None)
        if self._thread is None:
            self._connection.close()
        else:
            await asyncio.wrap_future(self._ended)
            self._thread.join()

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
            _tell([_Result(future, None, StorageError("the writer ended with an error")) for future in lost])
            try:
                self._connection.close()
            finally:
                self._ended.set_result(None)

    def _next(self) -> tuple[list[_Job], bool]:
        """Wait for a job and take all that there are. Return whether more may come."""
        jobs: list[_Job] = []
        while not jobs or not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                return jobs, False
            jobs.append(job)
        return jobs, True

    def _admit(self) -> None:
        """Wake a sender: there is room again."""
        with self._lock:
            admitted = [_Result(room, None) for room in self._waiting]
            self._waiting.clear()
        _tell(admitted)

    def _carry_out(self, jobs: list[_Job]) -> list[_Result]:
        """Run all jobs in one transaction. Return their results, or the failure of the transaction for all."""
        connection = self._connection
        carry_out = self._beside_others if len(jobs) > 1 else self._alone
        is_synced = any(job.is_synced for job in jobs)
        try:
            if not is_synced:
                connection.execute("PRAGMA synchronous = NORMAL")
            self._begin()
            results = [carry_out(job) for job in jobs]
            connection.execute("COMMIT")
            if place_of(self._file) != self._place:  # the file was replaced: no reader will find these writes
                raise replaced(self._path)
            return results
        except (
            Exception
        ) as error:  # the edge of this thread: the sender gets the error, and the next group runs
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # SQLite has rolled back already, for example because the disk is full
            return [self._refused(job, error) for job in jobs]
        finally:
            if not is_synced:
                connection.execute("PRAGMA synchronous = FULL")

    def _begin(self) -> None:
        """Keep other processes from writing. Wait for one that writes already: its end costs nothing, and ours every
        session of this process. A session whose lease is taken meanwhile gets Fenced.
        """
        for _ in range(_TRIES - 1):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
        self._connection.execute("BEGIN IMMEDIATE")

    def _alone(self, job: _Job) -> _Result:
        """Run a single job. A refusal undoes the transaction: a savepoint would make a commit a fifth slower."""
        return _Result(job.future, job.operation(self._connection))

    def _beside_others(self, job: _Job) -> _Result:
        connection = self._connection
        connection.execute("SAVEPOINT one")
        try:
            result = _Result(job.future, job.operation(connection))
        except Exception as error:
            if not connection.in_transaction:
                raise  # the whole transaction is gone, and its neighbours with it
            connection.execute("ROLLBACK TO one")
            result = self._refused(job, error)
        connection.execute("RELEASE one")
        return result

    def _refused(self, job: _Job, error: Exception) -> _Result:
        """Raise a bug unchanged, for the sender that brought it."""
        refusal = storage_error(error, self._path) if isinstance(error, FAULTS) else error
        return _Result(job.future, None, refusal)


def _tell(results: list[_Result]) -> None:
    """Deliver the results, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    if len(results) == 1:
        by_loop[results[0].future.get_loop()] = results
    else:
        for result in results:
            by_loop.setdefault(result.future.get_loop(), []).append(result)
    for loop, its_results in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, its_results)
        except RuntimeError:
            pass  # the loop is closed, so nobody waits there


def _resolve(results: list[_Result]) -> None:
    for result in results:
        if result.future.done():
            continue  # the sender was cancelled meanwhile
        if result.error is None:
            result.future.set_result(result.value)
        else:
            result.future.set_exception(result.error)
