"""Time limits that share one timer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.deadlines import Deadlines
from holdfast.testing.clock import JumpingClock, run_jumping


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_each_wait_ends_at_its_own_time() -> None:
    deadlines = Deadlines()

    async def wait(seconds: float) -> float:
        with pytest.raises(TimeoutError), deadlines.at(now_s() + seconds) as deadline:
            await asyncio.sleep(1_000)
        assert deadline.has_passed
        return now_s()

    async def main(clock: JumpingClock) -> list[float]:
        return await asyncio.gather(wait(30), wait(10), wait(20))

    assert run_jumping(main) == pytest.approx([30, 10, 20])


def test_a_limit_can_be_moved_both_ways() -> None:
    async def main(clock: JumpingClock) -> tuple[float, float]:
        deadlines = Deadlines()
        with deadlines.at(now_s() + 10) as later:
            await asyncio.sleep(9)
            later.move(now_s() + 10)
            await asyncio.sleep(9)
        kept = now_s()
        asyncio.get_running_loop().call_soon(lambda: sooner.move(now_s() + 1))
        with pytest.raises(TimeoutError), deadlines.at(now_s() + 100) as sooner:
            await asyncio.sleep(1_000)
        return kept, now_s()

    assert run_jumping(main) == pytest.approx((18, 19))


def test_what_ends_in_time_is_left_alone() -> None:
    async def main(clock: JumpingClock) -> float:
        deadlines = Deadlines()
        with deadlines.at(now_s() + 10) as deadline:
            await asyncio.sleep(1)
        await asyncio.sleep(100)
        assert not deadline.has_passed
        return now_s()

    assert run_jumping(main) == pytest.approx(101)


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main(clock: JumpingClock) -> None:
        deadlines = Deadlines()

        async def wait() -> None:
            with deadlines.at(now_s() + 10):
                await asyncio.sleep(1_000)

        task = asyncio.create_task(wait())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_jumping(main)


def test_an_error_at_the_limit_stays_what_it_is() -> None:
    async def main(clock: JumpingClock) -> None:
        async def fail() -> None:
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                raise ValueError("its own") from None

        with pytest.raises(ValueError, match="own"), Deadlines().at(now_s() + 1):
            await fail()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run_jumping(main)


def test_the_next_event_loop_has_limits_too() -> None:
    deadlines = Deadlines()

    async def main(clock: JumpingClock) -> None:
        with deadlines.at(now_s() + 1_000):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError), deadlines.at(now_s() + 5):
            await asyncio.sleep(100)

    run_jumping(main)
    run_jumping(main)


def test_ordinary_waits_set_one_timer_together() -> None:
    async def main(clock: JumpingClock) -> int:
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        set_: list[float] = []
        call_at = loop.call_at
        loop.call_at = lambda when, *rest, **more: set_.append(when) or call_at(when, *rest, **more)  # type: ignore[method-assign,func-returns-value]
        for _ in range(100):
            with deadlines.at(now_s() + 300):
                await asyncio.sleep(0)
        return len(set_)

    assert run_jumping(main) == 1
