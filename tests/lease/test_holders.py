"""Whether the holder of a lease still lives. That is certain only of processes of this machine since its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.protocol.commands import Send, owner
from holdfast.protocol.events import Attached
from holdfast.protocol.ports import Store
from holdfast.runtime import holder
from holdfast.runtime.holder import LEASE_MS, is_dead, this_process
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.testing.faults import FaultyStore
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import Scenario, World, controller_of, records_of, settings_of

OURS = this_process()
ELSEWHERE = {"host": "another", "boot_id": "another", "pid_namespace": "pid:[1]"}


@pytest.mark.requirement("H5", "C11")
def test_a_process_that_lives_is_not_dead_and_one_that_ended_is() -> None:
    assert not is_dead(OURS)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        alive = replace(OURS, pid=child.pid, started=holder._start_time(child.pid))
        assert alive.started
        assert not is_dead(alive)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(alive), "it is a zombie: nobody has taken note of its end"
    assert is_dead(alive)


@pytest.mark.requirement("H5", "C11")
def test_a_number_that_another_process_bears_by_now_is_not_the_holders() -> None:
    assert is_dead(replace(OURS, started="1"))


@pytest.mark.requirement("H5", "C11")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_nobody_elsewhere_is_known_to_be_dead(name: str) -> None:
    """A process of that number may live there, whatever is here."""
    gone = replace(OURS, pid=2**22 + 1, started="1")
    assert is_dead(gone)
    assert not is_dead(replace(gone, **{name: ELSEWHERE[name]}))


@pytest.mark.requirement("H5", "C11")
def test_where_nobody_knows_when_the_machine_was_started_a_lease_is_waited_for() -> None:
    assert not is_dead(replace(OURS, pid=2**22 + 1, started="1", boot_id=""))


@pytest.mark.requirement("H5", "C11")
def test_a_session_of_another_machine_goes_on_here_when_its_lease_is_over(tmp_path: Path) -> None:
    scenario = Scenario("moved", [{"text": "Done."}])

    async def move(clock: JumpingClock) -> None:
        inner: Store = VolatileStore(clock)
        store = FaultyStore(inner)
        clock.pause_while(lambda: store.in_flight > 0)
        async with controller_of(scenario, store, clock, World(tmp_path)) as controller:
            session = await controller.begin(
                "a:b", owner("ann"), Send("Go.", settings_of(scenario, tmp_path))
            )
            await inner.lease(session, replace(OURS, **ELSEWHERE, nonce="another"), LEASE_MS)
            begun_ms = clock.uptime_ms()
            await controller.drive(session)
            assert clock.uptime_ms() - begun_ms >= LEASE_MS
        records = await records_of(inner, session)
        assert [r.event.epoch for r in records if isinstance(r.event, Attached)] == [2]
        assert ended(records) == [("done", "answer")]
        await check_session(inner, session, records)

    run_jumping(move)
