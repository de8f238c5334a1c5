"""Faults on demand around any store: a crash at the N-th commit, a slow disk, a full disk.

The store inside is never damaged, so the next runtime of a test starts with exactly what a real crash leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import TypeVar

import msgspec

from holdfast.errors import StorageFull
from holdfast.protocol.budgets import Balance, Bucket, Claim, Claimed
from holdfast.protocol.circuits import CallEnded, Circuit
from holdfast.protocol.codec import Selected, StoredRecord
from holdfast.protocol.ports import Blobs, Store
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

T = TypeVar("T")


class Crash(BaseException):
    """The process was killed here. No error handler may catch it, so it is not an Exception."""


class Faults(msgspec.Struct, frozen=True):
    """What goes wrong, and when. Commits count from 1, and so does money that is reserved; 0 means never."""

    crash_before_commit: int = 0
    crash_after_commit: int = 0
    """After this commit is on disk, the crash comes before anybody learns of it."""
    full_from_commit: int = 0
    """From this commit on, nothing can be written."""
    delay_s: float = 0.0
    """Every operation takes this much longer."""


class FaultyStore:
    """A `protocol.ports.Store` that passes everything on to another one, except the faults.

    After a crash every call raises `Crash`, and so do those in progress.
    """

    def __init__(self, inner: Store, faults: Faults | None = None) -> None:
        self.inner = inner
        self._faults = faults or Faults()
        self.commits = 0
        """The number of commits that were requested."""
        self.in_flight = 0
        """Operations that wait for the inner store. A jumping clock waits for them."""
        self.is_crashed = False
        self.blobs: Blobs = _FaultyBlobs(self, inner.blobs)

    async def commit(self, commit: Commit) -> bool:
        return await self._committed(lambda: self.inner.commit(commit))

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        return await self._committed(lambda: self.inner.begin(commit, holder, duration_ms))

    async def _committed(self, commit: Callable[[], Awaitable[T]]) -> T:
        self._check_alive()
        self.commits += 1
        number = self.commits
        if number == self._faults.crash_before_commit:
            self.crash()
        self.check_space()
        result = await self.pass_on(commit)
        if number == self._faults.crash_after_commit:
            self.crash()
        return result

    def crash(self) -> None:
        """Die now: raise `Crash`, here and in every later call."""
        self.is_crashed = True
        raise Crash

    async def claim(self, session: str, key: str, now_ms: int, first: InboxEntry | None = None) -> str:
        self.check_space()
        return await self.pass_on(lambda: self.inner.claim(session, key, now_ms, first))

    async def post(self, entry: InboxEntry, capacity: int) -> Posted:
        self.check_space()
        return await self.pass_on(lambda: self.inner.post(entry, capacity))

    async def news(self, since: Mark | None = None) -> News:
        return await self.pass_on(lambda: self.inner.news(since))

    async def inbox(self, session: str) -> Sequence[InboxEntry]:
        return await self.pass_on(lambda: self.inner.inbox(session))

    async def lease(self, session: str, holder: Holder, duration_ms: int, over: Lease | None = None) -> Lease:
        self.check_space()
        return await self.pass_on(lambda: self.inner.lease(session, holder, duration_ms, over))

    async def situation(self, session: str) -> Situation | None:
        return await self.pass_on(lambda: self.inner.situation(session))

    async def leased(self) -> Collection[str]:
        return await self.pass_on(self.inner.leased)

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        self.check_space()
        return await self.pass_on(lambda: self.inner.renew(leases, duration_ms))

    async def release(self, lease: Lease) -> None:
        self.check_space()
        await self.pass_on(lambda: self.inner.release(lease))

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        return await self.pass_on(lambda: self.inner.read(session, after_seq, upto_seq))

    async def recover(self, session: str) -> Recovered:
        return await self.pass_on(lambda: self.inner.recover(session))

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
        return await self.pass_on(
            lambda: self.inner.select(session, types, upto_seq, read, from_seq=from_seq, also=also)
        )

    async def last_seq(self, session: str) -> int:
        return await self.pass_on(lambda: self.inner.last_seq(session))

    async def session(self, session: str) -> SessionRow | None:
        return await self.pass_on(lambda: self.inner.session(session))

    async def find(self, name: str) -> list[str]:
        return await self.pass_on(lambda: self.inner.find(name))

    async def sessions(self, sought: Sought = EVERY, limit: int = 20) -> list[SessionRow]:
        return await self.pass_on(lambda: self.inner.sessions(sought, limit))

    async def branches(self, session: str) -> list[str]:
        return await self.pass_on(lambda: self.inner.branches(session))

    async def due(self, upto_ms: int, limit: int = 20) -> list[SessionRow]:
        return await self.pass_on(lambda: self.inner.due(upto_ms, limit))

    async def granting(self) -> list[SessionRow]:
        return await self.pass_on(lambda: self.inner.granting())

    async def spent(self, since_ms: int = 0, session: str = "") -> Amounts:
        return await self.pass_on(lambda: self.inner.spent(since_ms, session))

    async def lines(self, since_ms: int = 0, session: str = "") -> Sequence[Line]:
        return await self.pass_on(lambda: self.inner.lines(since_ms, session))

    async def reserve(self, claim: Claim) -> Claimed:
        return await self._committed(lambda: self.inner.reserve(claim))

    async def balances(self, buckets: Sequence[Bucket]) -> Sequence[Balance]:
        return await self.pass_on(lambda: self.inner.balances(buckets))

    async def may_call(self, outgoing: Outgoing, claim: Claim | None = None) -> Answer:
        if claim is not None:
            return await self._committed(lambda: self.inner.may_call(outgoing, claim))
        return await self.pass_on(lambda: self.inner.may_call(outgoing))

    async def ended(self, *calls: CallEnded) -> None:
        await self.pass_on(lambda: self.inner.ended(*calls))

    async def circuits(self) -> Sequence[Circuit]:
        return await self.pass_on(self.inner.circuits)

    async def reset_circuit(self, name: str) -> bool:
        self.check_space()
        return await self.pass_on(lambda: self.inner.reset_circuit(name))

    async def approvals(self, session: str = "", is_open: bool = True) -> list[Approval]:
        return await self.pass_on(lambda: self.inner.approvals(session, is_open))

    async def approval(self, approval_id: str) -> Approval | None:
        return await self.pass_on(lambda: self.inner.approval(approval_id))

    async def delete(self, lease: Lease) -> None:
        self.check_space()
        await self.pass_on(lambda: self.inner.delete(lease))

    async def verify(self) -> Verified:
        return await self.pass_on(lambda: self.inner.verify())

    async def aclose(self) -> None:
        await self.pass_on(lambda: self.inner.aclose())

    def _check_alive(self) -> None:
        if self.is_crashed:
            raise Crash

    def check_space(self) -> None:
        """Raise `StorageFull` if the disk is full."""
        self._check_alive()
        if 0 < self._faults.full_from_commit <= self.commits:
            raise StorageFull

    async def pass_on(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the inner store's result, delayed and counted; raise `Crash` if this store died meanwhile."""
        self._check_alive()
        if self._faults.delay_s:
            await asyncio.sleep(self._faults.delay_s)  # not in flight: a jumping clock may jump over it
            self._check_alive()
        self.in_flight += 1
        try:
            return await operation()
        finally:
            self.in_flight -= 1
            self._check_alive()


class _FaultyBlobs:
    def __init__(self, store: FaultyStore, inner: Blobs) -> None:
        self._store = store
        self.inner = inner

    async def put(self, content: bytes) -> str:
        self._store.check_space()
        return await self._store.pass_on(lambda: self.inner.put(content))

    async def get(self, sha256: str) -> bytes:
        return await self._store.pass_on(lambda: self.inner.get(sha256))
