"""The durable store: one SQLite file in a home, shared by processes. One thread of each process writes.

This class only passes on: changes (`writes`) to the `writer`, questions (`reads`) to reader threads with their own
connections, so that a short question never waits for a disk that syncs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StorageError, StorageLocked
from holdfast.protocol.budgets import Balance, Bucket, Claim, Claimed
from holdfast.protocol.circuits import CallEnded, Circuit
from holdfast.protocol.codec import Selected, StoredRecord
from holdfast.protocol.moments import Moment
from holdfast.protocol.ports import Blobs, Clock
from holdfast.protocol.rows import (
    EVERY,
    Approval,
    Commit,
    Holder,
    InboxEntry,
    Lease,
    Mark,
    News,
    Posted,
    Recovered,
    SessionRow,
    Situation,
    Sought,
    Verified,
)
from holdfast.protocol.services import Answer, Outgoing
from holdfast.protocol.spending import Amounts, Line
from holdfast.storage import budgets, deletion, fsck, reads, services, writes
from holdfast.storage.blobs import YOUNG_MS, FileBlobs
from holdfast.storage.chain import check_contiguous
from holdfast.storage.errors import replaced, storage_errors
from holdfast.storage.home import BLOBS, DATABASE, connect_reader, open_database, open_to_read, place_of
from holdfast.storage.names import check_command_id, check_session
from holdfast.storage.reads import Term
from holdfast.storage.writer import Writer

T = TypeVar("T")

BUSY_S = 10.0
"""How long to wait for another process that writes: as long as a lease lasts."""
_READERS = 2
"""A long question leaves a thread for the short ones."""


class SqliteStore:
    """A `protocol.ports.Store` in a folder. Open it with `open`, close it with `aclose`."""

    path: Path
    """The database file."""

    def __init__(
        self, home: Path, connection: sqlite3.Connection, clock: Clock, busy_s: float, capacity: int
    ) -> None:
        self.path = home / DATABASE
        self._clock = clock
        self._place = place_of(self.path)
        self._busy_s = busy_s
        self._writer = Writer(connection, self.path, busy_s, capacity)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="holdfast-reader")
        self._idle: deque[sqlite3.Connection] = deque()
        """Connections of readers between two questions."""
        self._is_closed = False
        self._blobs = home / BLOBS
        self.blobs: Blobs = FileBlobs(self._blobs, self._readers, clock)

    @classmethod
    def open(
        cls, home: Path, *, clock: Clock = SYSTEM_CLOCK, busy_s: float = BUSY_S, capacity: int = 1024
    ) -> SqliteStore:
        """Open or make the home; a matter of a millisecond, so it is not worth a thread.

        Leases run by the `clock`. `busy_s` is how long to wait for another process that writes, `capacity` how
        many operations may wait for the disk before their senders do.

        Raises:
            StorageError: one of its kinds, as `home.open_database` tells.
        """
        return cls(home, open_database(home, busy_s), clock, busy_s, capacity)

    @classmethod
    def open_to_read(
        cls, home: Path, *, clock: Clock = SYSTEM_CLOCK, busy_s: float = BUSY_S, capacity: int = 1024
    ) -> SqliteStore:
        """Do what `open` does, also for a home that cannot be written: then every write raises StorageReadOnly."""
        return cls(home, open_to_read(home, busy_s), clock, busy_s, capacity)

    async def claim(self, session: str, key: str, now_ms: int, first: InboxEntry | None = None) -> str:
        check_session(session, key)
        if first is not None:
            check_command_id(first.command_id)
        return await self._writer.do(
            lambda connection: writes.claim(connection, session, key, now_ms, first, self._blobs)
        )

    async def post(self, entry: InboxEntry, capacity: int) -> Posted:
        check_command_id(entry.command_id)
        return await self._writer.do(
            lambda connection: writes.post(connection, entry, capacity, self._clock.uptime_ms(), self._blobs)
        )

    async def news(self, since: Mark | None = None) -> News:
        return await self._ask(lambda connection: reads.news(connection, since))

    async def inbox(self, session: str) -> Sequence[InboxEntry]:
        return await self._ask(lambda connection: reads.inbox(connection, session))

    async def lease(self, session: str, holder: Holder, duration_ms: int, over: Lease | None = None) -> Lease:
        return await self._writer.do(
            lambda connection: writes.lease(connection, session, holder, self._term(duration_ms), over)
        )

    async def situation(self, session: str) -> Situation | None:
        return await self._ask(
            lambda connection: reads.situation(connection, session, self._clock.uptime_ms())
        )

    async def leased(self) -> Collection[str]:
        return await self._ask(lambda connection: reads.leased(connection, self._clock.uptime_ms()))

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        return await self._writer.do(
            lambda connection: writes.renew(connection, leases, self._term(duration_ms))
        )

    async def release(self, lease: Lease) -> None:
        await self._writer.do(lambda connection: writes.release(connection, lease))

    async def commit(self, commit: Commit) -> bool:
        check_contiguous(commit)
        if not commit.ended:
            return await self._writer.do(lambda connection: writes.commit(connection, commit, self._blobs))

        def with_ended(connection: sqlite3.Connection) -> bool:
            services.ended(connection, commit.ended, self._now())
            return writes.commit(connection, commit, self._blobs)

        return await self._writer.do(with_ended)

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        check_session(commit.session, commit.row.key)
        check_contiguous(commit)
        return await self._writer.do(
            lambda connection: writes.begin(connection, commit, holder, self._term(duration_ms), self._blobs)
        )

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        return await self._ask(lambda connection: reads.read(connection, session, after_seq, upto_seq))

    async def recover(self, session: str) -> Recovered:
        return await self._ask(lambda connection: reads.recover(connection, session))

    async def select(
        self,
        session: str,
        types: Sequence[str],
        upto_seq: int,
        read: Callable[[Iterator[Selected]], T],
        *,
        from_seq: int = 1,
        also: Sequence[int] = (),
    ) -> T:
        return await self._ask(
            lambda connection: reads.select(connection, session, types, upto_seq, read, from_seq, also)
        )

    async def last_seq(self, session: str) -> int:
        return await self._ask(lambda connection: reads.last_seq(connection, session))

    async def session(self, session: str) -> SessionRow | None:
        return await self._ask(lambda connection: reads.session(connection, session))

    async def find(self, name: str) -> list[str]:
        return await self._ask(lambda connection: reads.find(connection, name))

    async def sessions(self, sought: Sought = EVERY, limit: int = 20) -> list[SessionRow]:
        return await self._ask(lambda connection: reads.sessions(connection, sought, limit))

    async def branches(self, session: str) -> list[str]:
        return await self._ask(lambda connection: reads.branches(connection, session))

    async def due(self, upto_ms: int, limit: int = 20) -> list[SessionRow]:
        return await self._ask(lambda connection: reads.due(connection, upto_ms, limit))

    async def granting(self) -> list[SessionRow]:
        return await self._ask(reads.granting)

    async def approvals(self, session: str = "", is_open: bool = True) -> list[Approval]:
        return await self._ask(lambda connection: reads.approvals(connection, session, is_open))

    async def approval(self, approval_id: str) -> Approval | None:
        return await self._ask(lambda connection: reads.approval(connection, approval_id))

    async def delete(self, lease: Lease) -> None:
        await self._writer.do(lambda connection: deletion.empty(connection, lease, self.path.parent))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._readers, deletion.forget_log, self.path, self._busy_s)
        await self._writer.do(lambda connection: deletion.remove(connection, lease.session))
        with suppress(
            StorageLocked
        ):  # the log is empty but for this: what it still hides is the session's id
            await loop.run_in_executor(self._readers, deletion.forget_log, self.path, self._busy_s)
        await self._sweep()

    async def _sweep(self) -> None:
        """Remove the blobs that nothing refers to, and that nobody can be about to refer to."""
        before_ms = self._clock.now_ms() - YOUNG_MS
        files = await self._ask(lambda connection: deletion.unneeded(connection, self._blobs, before_ms))
        if files:
            await self._writer.do(lambda connection: deletion.sweep(connection, files, before_ms))

    async def spent(self, since_ms: int = 0, session: str = "") -> Amounts:
        return await self._ask(lambda connection: reads.spent(connection, since_ms, session))

    async def lines(self, since_ms: int = 0, session: str = "") -> Sequence[Line]:
        return await self._ask(lambda connection: reads.lines(connection, since_ms, session))

    async def reserve(self, claim: Claim) -> Claimed:
        # The commit that starts the attempt follows, and brings this to the disk too. Without it, nothing counts.
        return await self._writer.do(lambda connection: budgets.reserve(connection, claim), is_synced=False)

    async def balances(self, buckets: Sequence[Bucket]) -> Sequence[Balance]:
        return await self._ask(lambda connection: budgets.balances(connection, buckets))

    async def may_call(self, outgoing: Outgoing, claim: Claim | None = None) -> Answer:
        self._check_open()
        # Reading one row takes a few microseconds, which another thread could not save.
        if not outgoing.draw.rates and claim is None:
            free = self._answer(lambda connection: services.free_call(connection, outgoing.circuit))
            if free is not None:
                return free
        # As for `reserve`: the commit that starts the attempt follows.
        return await self._writer.do(
            lambda connection: services.may_call(connection, outgoing, self._now(), claim), is_synced=False
        )

    async def ended(self, *calls: CallEnded) -> None:
        await self._writer.do(
            lambda connection: services.ended(connection, calls, self._now()), is_synced=False
        )

    async def circuits(self) -> Sequence[Circuit]:
        return await self._ask(lambda connection: services.circuits(connection, self._now()))

    async def reset_circuit(self, name: str) -> bool:
        return await self._writer.do(lambda connection: services.reset_circuit(connection, name, self._now()))

    async def verify(self) -> Verified:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, fsck.verify_home, self.path.parent)

    async def aclose(self) -> None:
        self._is_closed = True
        self._readers.shutdown()
        while self._idle:
            self._idle.pop().close()
        await self._writer.aclose()

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.uptime_ms())

    def _term(self, duration_ms: int) -> Term:
        """Return a time that begins now."""
        now_ms = self._clock.uptime_ms()
        return Term(now_ms, now_ms + duration_ms)

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._answer, question)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError(f"{self.path} is closed")

    def _answer(self, question: Callable[[sqlite3.Connection], T]) -> T:
        with storage_errors(self.path):
            if place_of(self.path) != self._place:
                raise replaced(self.path)
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect_reader(self.path, self._busy_s)
            try:
                return question(connection)
            finally:
                self._idle.append(connection)
