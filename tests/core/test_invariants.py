"""What holds in every history, whatever happens in it; and that the fold takes any event in any phase."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from holdfast.core.causes import Due
from holdfast.core.decide import decide
from holdfast.core.evolve import evolve, fold
from holdfast.core.state import Phase, State, phase
from holdfast.core.summary import summary, totals
from holdfast.core.wanted import wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Pause, Stop
from tests.core.phases import EXAMPLES, IN_PHASE
from tests.core.simulation import OutOfChoices, Simulation, phases_met
from tests.core.stories import GIVEN, SESSION
from tests.seeds import many

HISTORIES = st.lists(st.integers(0, 839), max_size=150)
"""840 is divided by every number of options that there is up to 8, so that all are as likely."""


@pytest.mark.requirement("C1", "H1", "H3", "H5", "L1")
@examples(max_examples=many(300), deadline=None)
@given(HISTORIES)
def test_every_invariant_holds_after_every_commit_of_every_history(choices: list[int]) -> None:
    session = Simulation(choices)
    session.play()
    session.check_totals()


@pytest.mark.untraced
@pytest.mark.requirement("H1", "H3", "B8")
@pytest.mark.parametrize("seed", [*range(20), 38])
def test_every_invariant_holds_in_long_histories(seed: int) -> None:
    numbers = random.Random(seed)
    session = Simulation([numbers.randrange(840) for _ in range(1_700)])
    session.play()
    session.check_totals()
    assert len(session.records) > 300


@examples(max_examples=many(100), deadline=None)
@given(HISTORIES, st.integers(0, 10_000))
def test_a_fold_from_anywhere_comes_to_the_state_that_was_decided_on(choices: list[int], cut: int) -> None:
    session = Simulation(choices)
    session.play()
    at = cut % len(session.records)
    assert fold(session.records) == session.state
    assert fold(session.records[at:], fold(session.records[:at])) == session.state


@examples(max_examples=many(100), deadline=None)
@given(HISTORIES)
def test_without_crashes_driven_time_is_the_time_at_work(choices: list[int]) -> None:
    session = Simulation(choices)
    runs: dict[int, int] = {}
    with suppress(OutOfChoices):
        while True:
            session.step()
            if session.state.run is not None:
                runs[session.state.run.number] = session.state.run.driven_ms
    counted_late = session.awake_ms - session.state.awake_ms
    if not session.crashes and session.is_driven:
        assert 0 <= session.at_work_ms - sum(runs.values()) <= counted_late


@pytest.mark.untraced
def test_random_histories_meet_most_pairs_of_phase_and_event() -> None:
    numbers = random.Random(7)
    met: set[tuple[Phase, str]] = set()
    for _ in range(60):
        met |= phases_met([numbers.randrange(840) for _ in range(600)])
    assert {name for _, name in met} >= {kind.__name__ for kind in e.EVENT_TYPES} - {
        "SessionForked",
        "SessionRenamed",
        "SessionImported",
    }
    assert {name for name, _ in met} == set(IN_PHASE)


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", sorted(IN_PHASE))
def test_the_fold_takes_every_event_in_every_phase(name: Phase, kind: type[e.Event]) -> None:
    state = IN_PHASE[name]().state
    assert phase(state) == name
    after = evolve(
        state, e.Record(SESSION, state.seq + 1, state.at_ms + 1, state.epoch, GIVEN, EXAMPLES[kind])
    )
    assert after.seq == state.seq + 1
    assert isinstance(wanted(after), list)
    assert summary(after).seq == after.seq
    decide(after, Due("nobody"), after.at_ms, after.awake_ms)


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_the_fold_takes_every_event_first(kind: type[e.Event]) -> None:
    after = evolve(State(), e.Record(SESSION, 1, 1, 0, GIVEN, EXAMPLES[kind]))
    assert after.seq == 1
    assert totals(after).cost_microusd >= 0
    assert isinstance(wanted(after), list)


def test_the_fold_never_changes_a_state_that_it_was_given() -> None:
    story = IN_PHASE["acting"]()
    before = story.state
    told = repr(before)
    for body in (Pause(), Stop()):
        story.command(body)
    assert repr(before) == told
