"""What circuits and rates cost one call to a service, in a home on disk.

CPU time of all threads, the best of several rounds: the question before the call, and what its end adds to the commit
that records it. `python -m benchmarks services` prints the table.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from holdfast.protocol.budgets import Bucket, Claim, Reservation
from holdfast.protocol.circuits import CallEnded, Caller
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rates import Draw, Rate
from holdfast.protocol.services import Outgoing
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import Driving, drive

Row = dict[str, float | str]
TIMES, ROUNDS = 100, 60
LARGE = Rate(requests_per_minute=1_000_000, tokens_per_minute=100_000_000)
"""No call has to wait for it."""


def measured() -> Iterator[Row]:
    """Services without trouble, with and without rates, and one whose circuit is open."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_rows(Path(folder)))


async def _rows(home: Path) -> list[Row]:
    store = SqliteStore.open(home)
    driving = await drive(store)
    await store.ended(CallEnded(_caller(driving, 0), "failed", "fails"))
    for _ in range(3):
        await store.ended(CallEnded(_caller(driving, 0), "broken", "fails"))
    rows = [
        await _row(driving, "a service without trouble", "works", (), has_end=False),
        await _row(driving, "one that failed before", "failed", ()),
        await _row(driving, "two allowances", "works", (("model", LARGE), ("home", LARGE))),
    ]
    rows.append(await _with_budget(driving))
    (refused_us,) = await _best_us(lambda number: store.may_call(_outgoing(driving, "broken", number, ())))
    rows.append({"call": "a circuit that is open", "question_us": refused_us, "with_its_end_us": refused_us})
    await store.aclose()
    return rows


async def _row(
    driving: Driving, call: str, service: str, rates: tuple[tuple[str, Rate], ...], *, has_end: bool = True
) -> Row:
    """`has_end`: the commit says how the call ended. It does not for one that works like all before it."""
    store = driving.store

    async def ask(number: int) -> None:
        assert (await store.may_call(_outgoing(driving, service, number, rates))).later is None

    async def commit(number: int) -> None:
        await driving.commit(MessageReceived("ended"))

    async def both(number: int) -> None:
        await ask(number)
        ended = CallEnded(_caller(driving, number), service, "works", used_tokens=9)
        await driving.commit(MessageReceived("ended"), ended=(ended,) if has_end else ())

    asks_us, commit_us, whole_us = await _best_us(ask, commit, both)
    return {"call": call, "question_us": asks_us, "with_its_end_us": whole_us - commit_us}


async def _with_budget(driving: Driving) -> Row:
    """Return what two allowances add to a call that has to reserve money in the same transaction."""
    store, budgets = (
        driving.store,
        (Bucket("home", 1 << 50), Bucket("session", 1 << 50, session=driving.session)),
    )
    rates = (("model", LARGE), ("home", LARGE))

    def claim(number: int) -> Claim:
        key = _caller(driving, number).key
        return Claim(Reservation(driving.session, key, 1, "owner", 100), 50, budgets)

    async def reserve(number: int) -> None:
        await store.reserve(claim(number))

    async def ask(number: int) -> None:
        assert (await store.may_call(_outgoing(driving, "works", number, rates), claim(number))).later is None

    async def only_money(number: int) -> None:
        await reserve(number)
        await driving.commit(MessageReceived("ended"), reserves=())

    async def both(number: int) -> None:
        await ask(number)
        ended = CallEnded(_caller(driving, number), "works", "works", used_tokens=9)
        await driving.commit(MessageReceived("ended"), ended=(ended,), reserves=())

    reserve_us, ask_us, money_us, whole_us = await _best_us(reserve, ask, only_money, both)
    return {
        "call": "the same, with money reserved",
        "question_us": ask_us - reserve_us,
        "with_its_end_us": whole_us - money_us,
    }


def _caller(driving: Driving, number: int) -> Caller:
    return Caller(driving.session, f"m{number % 2}", driving.lease.epoch)


def _outgoing(driving: Driving, service: str, number: int, rates: tuple[tuple[str, Rate], ...]) -> Outgoing:
    return Outgoing(service, Draw(_caller(driving, number), 10, 60_000, rates))


async def _best_us(*works: Callable[[int], Awaitable[object]]) -> list[float]:
    """Return the least time of each. They take turns, so the same noise comes to all."""
    best_s = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for which, work in enumerate(works):
            begun_s = time.process_time()
            for number in range(TIMES):
                await work(number)
            best_s[which] = min(best_s[which], time.process_time() - begun_s)
    return [each / TIMES * 1e6 for each in best_s]
