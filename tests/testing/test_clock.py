"""Time that jumps: waits cost nothing, order holds, and real work is waited for."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from holdfast.protocol.events import MessageReceived
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.testing.driving import drive
from holdfast.testing.faults import Faults, FaultyStore


def test_an_hour_of_sleep_takes_milliseconds() -> None:
    async def main(clock: JumpingClock) -> int:
        before_ms = clock.now_ms()
        await asyncio.sleep(3600)
        return clock.now_ms() - before_ms

    started = time.perf_counter()
    assert run_jumping(main) == 3_600_000
    assert time.perf_counter() - started < 1_800


def test_timers_fire_in_order_each_at_its_time() -> None:
    async def main(clock: JumpingClock) -> list[tuple[int, int]]:
        start_ms = clock.now_ms()
        fired: list[tuple[int, int]] = []

        async def sleep(seconds: int) -> None:
            await asyncio.sleep(seconds)
            fired.append((seconds, clock.now_ms() - start_ms))

        async with asyncio.TaskGroup() as group:
            for seconds in (90_000, 5, 86_400, 60, 1):
                group.create_task(sleep(seconds))
        return fired

    assert run_jumping(main) == [(s, s * 1000) for s in (1, 5, 60, 86_400, 90_000)]


def test_a_timeout_fires_at_its_time() -> None:
    async def main(clock: JumpingClock) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return clock.elapsed_s

    assert run_jumping(main) == pytest.approx(30)


def test_no_time_passes_while_a_thread_works() -> None:
    async def main(clock: JumpingClock) -> float:
        async with asyncio.timeout(1):
            await asyncio.to_thread(subprocess.run, ["sleep", "0.1"], check=True)
        return clock.elapsed_s

    assert run_jumping(main) == 0


def test_no_time_passes_while_the_writer_of_a_store_is_at_work(tmp_path: Path) -> None:
    async def main(clock: JumpingClock) -> float:
        inner = SqliteStore.open(tmp_path)
        store = FaultyStore(inner)
        clock.pause_while(lambda: store.in_flight > 0)
        driving = await drive(store)
        async with asyncio.timeout(1):
            for turn in range(50):
                await driving.commit(MessageReceived(str(turn)))
            assert len(await store.read(driving.session)) == 50
        assert clock.elapsed_s == 0
        await asyncio.sleep(3600)
        await driving.commit(MessageReceived("an hour later"))
        await inner.aclose()
        return clock.elapsed_s

    assert run_jumping(main) == 3600


def test_a_slow_disk_is_slow_in_jumped_time_only() -> None:
    async def main(clock: JumpingClock) -> float:
        store = FaultyStore(VolatileStore(), Faults(delay_s=20))
        clock.pause_while(lambda: store.in_flight > 0)
        await (await drive(store)).commit(MessageReceived("one"))
        return clock.elapsed_s

    assert run_jumping(main) == pytest.approx(60)


def test_a_clock_moves_by_hand_too() -> None:
    clock = JumpingClock(start_ms=1000)
    clock.advance(1.5)
    assert clock.now_ms() == 2500
