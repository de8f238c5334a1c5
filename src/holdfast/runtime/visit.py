"""Visits a session that nobody drives: takes its lease, and commits facts without attaching.

The controller visits too, for the commands in an inbox. This is for commands whose sender does something itself
between two facts, such as putting files back.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.causes import Commanded
from holdfast.core.decide import decision
from holdfast.errors import Conflict, NoSuchSession
from holdfast.protocol.commands import Command, CommandBody, Principal
from holdfast.protocol.ports import Clock, Store
from holdfast.runtime.fold import Fold
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.holder import LEASE_MS, LiveLease, is_dead, is_free, this_process


class Visit:
    """Commits facts under a lease, without attaching."""

    def __init__(
        self, store: Store, clock: Clock, lease: LiveLease, fold: Fold, principal: Principal
    ) -> None:
        self.lease = lease
        self.fold = fold
        self._store = store
        self._clock = clock
        self._principal = principal
        self._is_contested = lease.has_rival(fold.epoch)
        """The previous driver may still live. The first record says so: the next driver cannot find that out."""

    async def tell(self, body: CommandBody) -> None:
        """Record what a command means."""
        command = Command(secrets.token_hex(16), self.fold.session, self._principal, body)
        now_ms, epoch = self._clock.now_ms(), self.lease.row.epoch
        cause = Commanded(command, epoch, self._is_contested)
        batch = self.fold.take(decision(self.fold.state, cause, now_ms, 0))
        commit = self.fold.commit(batch, epoch, now_ms, (command.id,), releases_lease=False)
        await self.lease.commit(self._store, commit)
        self._is_contested = False


@asynccontextmanager
async def visiting(
    store: Store, clock: Clock, session: str, principal: Principal, nothing: str
) -> AsyncIterator[Visit]:
    """Visit a session. Raises what `leased` and `Fold.open` raise."""
    async with leased(store, clock, session, nothing) as lease:
        row = await store.session(session)
        fold = Fold(session, row.key if row is not None else "")
        await fold.open(store)
        yield Visit(store, clock, lease, fold, principal)


@asynccontextmanager
async def leased(store: Store, clock: Clock, session: str, nothing: str) -> AsyncIterator[LiveLease]:
    """Have the session's lease, so that nobody drives it meanwhile. `nothing`: what is said if somebody does.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: somebody drives it.
    """
    holder = this_process()
    situation = await store.situation(session)
    if situation is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    until_ms = clock.uptime_ms() + LEASE_MS
    row = situation.lease
    is_contested = row is not None and not is_dead(row.holder)
    if is_free(row):
        row = await store.lease(session, holder, LEASE_MS, row)
    if row is None or row.holder.nonce != holder.nonce:
        raise Conflict(
            f"A process drives session {session}. {nothing}",
            hint=f"Stop it first: `holdfast stop {session}`.",
        )
    lease = LiveLease(row, until_ms, clock, is_contested)
    heartbeat = Heartbeat(store, clock)
    try:
        with heartbeat.keeping(lease):
            yield lease
    finally:
        lease.until_ms = 0
        await heartbeat.aclose()
        await store.release(row)
