"""The lease of an undo: what still runs when the undo is over may change nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Lapsed
from holdfast.protocol.events import MessageReceived
from holdfast.runtime.undo import NOT_DONE, Workshop
from holdfast.runtime.visit import leased
from holdfast.storage.images import Images
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.clock import JumpingClock
from holdfast.testing.driving import drive
from holdfast.tools.own import OwnPlaces


async def test_a_thread_that_outlives_a_cancelled_undo_may_change_no_file(tmp_path: Path) -> None:
    """A thread cannot be stopped: it asks before each file."""
    clock = JumpingClock()
    store = SqliteStore.open(tmp_path / "home", clock=clock)
    driving = await drive(store, 1)
    await driving.commit(MessageReceived("one"))
    await store.release(driving.lease)
    workshop = Workshop(store, clock, Images(tmp_path / "home", clock), OwnPlaces())
    async with leased(workshop.store, workshop.clock, driving.session, NOT_DONE) as lease:
        lease.check()
    with pytest.raises(Lapsed):
        lease.check()
    await store.aclose()
