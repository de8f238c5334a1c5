"""Real processes that are stopped, woken and killed while they drive."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.commands import Send, owner
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rows import Lease
from holdfast.protocol.settings import settings_with
from holdfast.runtime.controller import SessionController
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import lease_of
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import records_of
from tests.conftest import REPOSITORY
from tests.scenarios.worker import GO_ON, drive, ports_of

PATIENCE_S = 120.0


async def prepare(home: Path, log: Path, workspace: Path) -> str:
    """A session with words in its inbox that nobody has read."""
    ports = ports_of(home, log)
    try:
        async with SessionController(ports) as controller:
            session = await controller.open("a:b")
            facts = ModelFacts("script", "model", price="free")
            settings = settings_with(facts, str(workspace), autonomy="full")
            await controller.submit(session, owner("tester"), Send("Work.", settings))
            return session
    finally:
        await ports.store.aclose()


async def start(home: Path, session: str, log: Path, **environ: str) -> asyncio.subprocess.Process:
    """A worker process on the session; `LEASE_MS`: how long its leases last."""
    path = str(REPOSITORY / "tests" / "edge" / "customized")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.scenarios.worker", str(home), session, str(log)),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path, **environ},
        stdout=asyncio.subprocess.PIPE,
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.02)


def told(log: Path) -> list[list[str]]:
    """[pid, what, which] of every line."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


async def check(home: Path, session: str) -> tuple[e.Record, ...]:
    """Everything that must hold of the home afterwards."""
    store = SqliteStore.open(home)
    try:
        records = await records_of(store, session)
        await check_session(store, session, records)
    finally:
        await store.aclose()
    return records


@pytest.mark.long
@pytest.mark.requirement("C11", "H1", "H5")
async def test_a_process_that_slept_past_its_lease_writes_nothing_and_starts_nothing(tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    session = await prepare(home, log, tmp_path)
    sleeper = await start(home, session, log)
    await until(lambda: len(told(log)) == 1)
    os.kill(sleeper.pid, signal.SIGSTOP)
    (tmp_path / GO_ON).touch()
    status = await drive(home, session, log)
    before = await check(home, session)
    lines = told(log)
    os.kill(sleeper.pid, signal.SIGCONT)
    output, _ = await sleeper.communicate()
    assert status == "done"
    assert output.decode().strip() == "done", "it follows to the end of the session"
    assert await check(home, session) == before
    assert ended(before) == [("done", "answer")]
    by_sleeper = [line[1:] for line in told(log)[len(lines) :]]
    assert by_sleeper in ([], [["cancelled", "first"]], [["end", "first"]]), by_sleeper
    assert {record.epoch for record in before} == {1, 2}


@pytest.mark.requirement("H1", "L2-05")
async def test_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    session = await prepare(home, log, tmp_path)
    victim = await start(home, session, log)
    await until(lambda: len(told(log)) == 1)
    victim.kill()
    await victim.communicate()
    lease = await lease_in(home, session)
    assert lease is not None
    assert lease.left_ms, "it was not waited out"
    (tmp_path / GO_ON).touch()
    assert await drive(home, session, log) == "done"
    records = await check(home, session)
    assert [line[1:] for line in told(log)] == [
        ["begin", "first"],
        ["begin", "first"],
        ["end", "first"],
        ["begin", "second"],
        ["end", "second"],
    ]
    assert sum(isinstance(r.event, e.Attached) for r in records) == 2


@pytest.mark.requirement("H1", "L2-05")
async def test_whoever_waits_for_a_process_that_is_killed_goes_on_without_waiting_for_its_lease(
    tmp_path: Path,
) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    session = await prepare(home, log, tmp_path)
    victim = await start(home, session, log, LEASE_MS="3600000")
    await until(lambda: len(told(log)) == 1)
    waiting = asyncio.create_task(drive(home, session, log))
    await until(lambda: (home / "run").is_dir() and len(list((home / "run").iterdir())) == 2)
    victim.kill()
    await victim.communicate()
    (tmp_path / GO_ON).touch()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "done"
    assert {record.epoch for record in await check(home, session)} == {1, 2}


async def lease_in(home: Path, session: str) -> Lease | None:
    """The lease as it lies in the store."""
    store = SqliteStore.open(home)
    try:
        return await lease_of(store, session)
    finally:
        await store.aclose()
