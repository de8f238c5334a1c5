"""Leases on disk: their clock is the machine's own, and begins anew with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import TERM_MS, a_holder, drive, lease_of


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("uptime_s", [0, 3_599, 3_600 + TERM_MS / 1000, 1e6])
async def test_a_lease_from_before_the_machine_was_started_again_is_free(
    tmp_path: Path, uptime_s: float
) -> None:
    before, after = JumpingClock(), JumpingClock()
    before.advance(3_600)
    store = SqliteStore.open(tmp_path, clock=before)
    old = (await drive(store)).lease
    await store.aclose()
    after.advance(uptime_s)
    store = SqliteStore.open(tmp_path, clock=after)
    lapsed = await lease_of(store, old.session)
    assert lapsed is not None
    assert lapsed.left_ms == 0
    assert (await store.lease(old.session, a_holder("b"), TERM_MS)).epoch == old.epoch + 1
    await store.aclose()


@pytest.mark.skipif(not Path("/proc/uptime").exists(), reason="only Linux tells its uptime there")
def test_the_clock_of_leases_is_the_uptime_that_all_processes_share() -> None:
    def told_ms() -> float:
        return float(Path("/proc/uptime").read_text().split()[0]) * 1000

    assert told_ms() - 10 <= SYSTEM_CLOCK.uptime_ms() <= told_ms() + 10
