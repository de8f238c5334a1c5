"""The heartbeat of a process: renews all its leases in one job, long before they lapse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import Fenced, StorageError, StorageLocked
from holdfast.protocol.ports import Clock, Leases
from holdfast.runtime.holder import LEASE_MS, RENEW_MS, Hold

BEAT_S = 1.0


class Heartbeat:
    """The leases of one process while its tasks have them."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._holds: dict[str, Hold] = {}
        self._beating: asyncio.Task[None] | None = None

    @contextmanager
    def keeping(self, hold: Hold) -> Iterator[None]:
        """Renew this lease too. If it is lost, tell its holder."""
        session = hold.lease.session
        self._holds[session] = hold
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            del self._holds[session]

    async def aclose(self) -> None:
        """Stop."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))

    async def _beat(self) -> None:
        try:
            while self._holds:
                await asyncio.sleep(BEAT_S)
                holds = [hold for hold in self._holds.values() if hold.first is None]
                now_ms = self._clock.uptime_ms()
                if any(now_ms > hold.until_ms - LEASE_MS + RENEW_MS for hold in holds):
                    await self._renew(holds)
        finally:
            self._beating = None

    async def _renew(self, holds: Sequence[Hold]) -> None:
        try:
            lost = await renew(self._leases, self._clock, holds)
        except StorageLocked:
            return  # the next beat may succeed, and nothing starts without a lease
        except StorageError as error:
            for hold in holds:
                hold.on_lost(error)
            return
        for hold in lost:
            hold.on_lost(Fenced())


async def renew(leases: Leases, clock: Clock, holds: Sequence[Hold]) -> list[Hold]:
    """Renew the leases, including those that lapsed while this machine slept and that nobody took. Return those that
    another driver took.
    """
    until_ms = clock.uptime_ms() + LEASE_MS
    taken = {(lease.session, lease.epoch) for lease in await leases.renew([h.lease for h in holds], LEASE_MS)}
    lost: list[Hold] = []
    for hold in holds:
        if (hold.lease.session, hold.lease.epoch) in taken:
            lost.append(hold)
        else:
            hold.until_ms = until_ms
    return lost
