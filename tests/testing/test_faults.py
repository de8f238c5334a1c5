"""Faults come when they are ordered, and leave the store inside as a real crash would."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StorageFull
from holdfast.protocol.events import MessageReceived
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.driving import drive, texts
from holdfast.testing.faults import Crash, Faults, FaultyStore


@pytest.mark.requirement("C8")
@pytest.mark.parametrize(
    ("faults", "kept"),
    [(Faults(crash_before_commit=2), ["1"]), (Faults(crash_after_commit=2), ["1", "2"])],
)
async def test_a_crash_around_a_commit_leaves_what_was_written(faults: Faults, kept: list[str]) -> None:
    inner = VolatileStore()
    store = FaultyStore(inner, faults)
    driving = await drive(store)
    await driving.commit(MessageReceived("1"))
    with pytest.raises(Crash):
        await driving.commit(MessageReceived("2"))
    with pytest.raises(Crash):
        await store.read(driving.session)
    with pytest.raises(Crash):
        await store.blobs.put(b"x")
    with pytest.raises(Crash):
        await store.aclose()
    assert texts(await inner.read(driving.session)) == kept
    assert (store.commits, store.in_flight) == (2, 0)


async def test_a_crash_also_ends_the_calls_that_were_under_way() -> None:
    store = FaultyStore(VolatileStore(), Faults(delay_s=0.001))
    driving = await drive(store)
    reading = asyncio.create_task(store.read(driving.session))
    await asyncio.sleep(0)
    with pytest.raises(Crash):
        store.crash()
    with pytest.raises(Crash):
        await reading


async def test_a_crash_is_no_exception_that_a_handler_could_swallow() -> None:
    assert not issubclass(Crash, Exception)


@pytest.mark.requirement("L7")
async def test_a_full_disk_refuses_writes_and_still_reads() -> None:
    store = FaultyStore(VolatileStore(), Faults(full_from_commit=2))
    driving = await drive(store)
    await driving.commit(MessageReceived("1"))
    with pytest.raises(StorageFull):
        await driving.commit(MessageReceived("2"))
    with pytest.raises(StorageFull):
        await store.blobs.put(b"x")
    assert texts(await store.read(driving.session)) == ["1"]
