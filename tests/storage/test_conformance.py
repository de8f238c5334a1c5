"""Both stores pass the suite that is shipped for every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.protocol.ports import Store
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.conformance_store import StoreConformance
from holdfast.testing.faults import FaultyStore


@pytest.fixture
def clock() -> JumpingClock:
    """Leases run by it."""
    return JumpingClock()


@pytest.mark.requirement("C11")
class TestVolatile(StoreConformance):
    @pytest.fixture
    def store(self, clock: JumpingClock) -> Store:
        return VolatileStore(clock)


@pytest.mark.requirement("C11")
class TestSqlite(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: JumpingClock) -> AsyncIterator[Store]:
        store = SqliteStore.open(tmp_path / "home", clock=clock)
        yield store
        await store.aclose()


class TestFaultyWithoutFaults(StoreConformance):
    @pytest.fixture
    def store(self, clock: JumpingClock) -> Store:
        return FaultyStore(VolatileStore(clock))
