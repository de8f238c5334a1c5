"""Replay over random histories: whatever happens to a session, its records alone tell the same decisions again."""

from __future__ import annotations

import random

import pytest

from holdfast.views.replay import replay
from tests.core.simulation import Simulation
from tests.core.stories import SESSION


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("seed", range(12))
def test_every_history_is_decided_again_as_it_was_recorded(seed: int) -> None:
    numbers = random.Random(seed)
    session = Simulation([numbers.randrange(840) for _ in range(800)])
    session.play()
    found = replay(SESSION, "", session.records)
    assert [f"{each.seq}: {each.what}" for each in found.differences] == []
    assert found.records == len(session.records) > 150
