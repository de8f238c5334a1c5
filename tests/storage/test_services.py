"""Circuits that processes and threads share: exactly one probe goes out, whatever becomes of those who ask."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.protocol.circuits import CallEnded, Caller
from holdfast.protocol.moments import Moment
from holdfast.protocol.rates import Draw, Rate
from holdfast.protocol.services import FREE, Outgoing
from holdfast.storage import services
from holdfast.storage.home import connect
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.conformance_services import COOLDOWN_S, NAME, asked, fail
from holdfast.testing.driving import TERM_MS, Driving, drive

CHILD = Path(__file__).with_name("calling_child.py")
Child = subprocess.Popen[str]


def an_outgoing(driving: Driving, key: str, **rates: Rate) -> Outgoing:
    caller = Caller(driving.session, key, driving.lease.epoch)
    return Outgoing(NAME, Draw(caller, 0, 60_000, tuple(rates.items())))


@contextmanager
def child(home: Path, number: int) -> Iterator[Child]:
    command = [sys.executable, str(CHILD), str(home), str(number)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: Child, request: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{request}\n")
    process.stdin.flush()


def heard(process: Child) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def all_asked(children: list[Child]) -> dict[str, list[Child]]:
    """Let all ask at once. Return who got which answer."""
    for each in children:
        tell(each, "ask")
    found: dict[str, list[Child]] = {}
    for each in children:
        found.setdefault(heard(each), []).append(each)
    return found


def done(process: Child, verdict: str) -> None:
    tell(process, verdict)
    assert heard(process) == "ended"


@pytest.mark.long
@pytest.mark.requirement("A2")
def test_of_four_processes_exactly_one_probes_also_when_it_is_killed(tmp_path: Path) -> None:
    SqliteStore.open(tmp_path)
    with ExitStack() as stack:
        children = [stack.enter_context(child(tmp_path, number)) for number in range(1, 5)]
        assert [heard(each) for each in children] == ["ready"] * 4
        for _ in range(3):
            done(children[0], "fails")
        for round_ in range(30):
            found = all_asked(children)
            while "open" in found:  # the cooldown is a millisecond
                assert "call" not in found or len(found["call"]) == 1
                if "call" in found:
                    break
                found = all_asked(children)
            (probe,) = found["call"]
            if round_ % 10 < 9:
                done(probe, "fails")
                continue
            probe.kill()
            children.remove(probe)
            found = {}
            while "call" not in found:  # until its lease has ended
                found = all_asked(children)
            (probe,) = found["call"]
            done(probe, "fails" if round_ < 29 else "works")
        assert set(all_asked(children)) == {"call"}


@pytest.mark.requirement("A13")
async def test_circuit_concurrent_safety(tmp_path: Path) -> None:
    clock = JumpingClock()
    store = SqliteStore.open(tmp_path, clock=clock)
    driving = await drive(store)
    await fail(store, driving)
    clock.advance(COOLDOWN_S)
    await store.renew([driving.lease], TERM_MS)
    answers: list[str] = []

    async def ask(number: int, tasks: int) -> None:
        calls = [asked(store, an_outgoing(driving, f"{number}.{task}")) for task in range(tasks)]
        answers.extend([later.why if later is not None else "call" for later in await asyncio.gather(*calls)])

    threads = [threading.Thread(target=asyncio.run, args=(ask(number, 5),)) for number in range(64)]
    for thread in threads:
        thread.start()
    await ask(64, 680)
    for thread in threads:
        thread.join()
    assert Counter(answers) == {"call": 1, "probing": 999}
    (circuit,) = await store.circuits()
    assert circuit.probe is not None
    await store.ended(CallEnded(circuit.probe.caller, NAME, "works"))
    await asyncio.gather(*[store.ended(CallEnded(Caller("s", str(n), 1), NAME, "fails")) for n in range(100)])
    (circuit,) = await store.circuits()
    assert (circuit.failures, circuit.is_open) == (3, True), "what ends after it opened does not count"
    await store.aclose()


async def test_so_many_calls_at_once_never_get_more_than_there_is(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path, clock=JumpingClock())
    driving = await drive(store)
    rate = Rate(requests_per_minute=600, concurrent=50, burst_ms=1_000)
    calls = [asked(store, an_outgoing(driving, f"m{number}", home=rate)) for number in range(60)]
    answers = Counter([later.why if later is not None else "call" for later in await asyncio.gather(*calls)])
    assert answers == {"call": 10, "requests": 50}
    await store.aclose()


@pytest.mark.requirement("A15")
async def test_a_call_to_a_service_without_trouble_reads_one_row_and_writes_nothing(tmp_path: Path) -> None:
    """What that takes is measured: `python -m benchmarks services`."""
    store = SqliteStore.open(tmp_path)
    statements: list[str] = []
    with connect(store.path, 1.0) as connection:
        connection.set_trace_callback(statements.append)
        assert services.free_call(connection, NAME) == FREE
    connection.close()
    assert [each.split()[0] for each in statements] == ["SELECT"]
    await store.aclose()


async def test_a_circuit_that_lets_calls_through_is_not_written(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    await store.ended(
        CallEnded(Caller("s", "m1", 1), NAME, "fails"), CallEnded(Caller("s", "m2", 1), NAME, "works")
    )
    with connect(store.path, 1.0) as connection:
        before = connection.total_changes
        services.ended(connection, [CallEnded(Caller("s", "m3", 1), NAME, "works")], Moment(1, 1))
        assert services.free_call(connection, NAME) == FREE
        assert connection.total_changes == before
    connection.close()
    await store.aclose()
