"""The heartbeat of a process: renews all its leases in one job, long before they lapse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import Fenced, StorageError, StorageLocked
from holdfast.protocol.ports import Clock, Leases
from holdfast.runtime.holder import LEASE_MS, RENEW_MS, LiveLease

BEAT_S = 1.0


class Heartbeat:
    """The leases of one process while its tasks have them."""

    def __init__(self, store: Leases, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._leases: dict[str, LiveLease] = {}
        self._beating: asyncio.Task[None] | None = None

    @contextmanager
    def keeping(self, lease: LiveLease) -> Iterator[None]:
        """Renew this lease too. If it is lost, tell its holder."""
        session = lease.row.session
        self._leases[session] = lease
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            del self._leases[session]

    async def aclose(self) -> None:
        """Stop."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))

    async def _beat(self) -> None:
        try:
            while self._leases:
                await asyncio.sleep(BEAT_S)
                leases = [lease for lease in self._leases.values() if lease.first is None]
                now_ms = self._clock.uptime_ms()
                if any(now_ms > lease.until_ms - LEASE_MS + RENEW_MS for lease in leases):
                    await self._renew(leases)
        finally:
            self._beating = None

    async def _renew(self, leases: Sequence[LiveLease]) -> None:
        try:
            lost = await renew(self._store, self._clock, leases)
        except StorageLocked:
            return  # the next beat may succeed, and nothing starts without a lease
        except StorageError as error:
            for lease in leases:
                lease.on_lost(error)
            return
        for lease in lost:
            lease.on_lost(Fenced())


async def renew(store: Leases, clock: Clock, leases: Sequence[LiveLease]) -> list[LiveLease]:
    """Renew the leases, including those that lapsed while this machine slept and that nobody took. Return those that
    another driver took.
    """
    until_ms = clock.uptime_ms() + LEASE_MS
    taken = {(row.session, row.epoch) for row in await store.renew([lease.row for lease in leases], LEASE_MS)}
    lost: list[LiveLease] = []
    for lease in leases:
        if (lease.row.session, lease.row.epoch) in taken:
            lost.append(lease)
        else:
            lease.until_ms = until_ms
    return lost
