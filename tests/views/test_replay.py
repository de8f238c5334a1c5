"""Replay tells every decision that differs from the recorded one, with its record."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.model_calls import MAX_TOOL_CALLS
from holdfast.protocol.commands import Continue, Resolve, Send, owner
from holdfast.protocol.events import (
    NoteAdded,
    Record,
    Responded,
    RunStopped,
    SettingsChanged,
    ToolCallRefused,
    ToolCallStarted,
)
from holdfast.protocol.failures import Failure
from holdfast.protocol.settings import changed
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.testing.scenarios import (
    SESSION_KEY,
    Played,
    Scenario,
    World,
    controller_of,
    play,
    records_of,
    settings_of,
)
from holdfast.views.replay import replay
from tests.scenarios.scenes import BY_NAME


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    place = tmp_path_factory.mktemp("place")
    return run_jumping(lambda clock: play(BY_NAME["several turns"], clock, VolatileStore(clock), place))


def forged(records: tuple[Record, ...], kind: type, **changes: object) -> tuple[Record, ...]:
    """The journal with the last event of a type changed."""
    at = max(index for index, record in enumerate(records) if isinstance(record.event, kind))
    changed = replace(records[at], event=replace(records[at].event, **changes))
    return (*records[:at], changed, *records[at + 1 :])


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (RunStopped, {"reason": "boredom"}),
        (ToolCallStarted, {"attempt": 7}),
        (Responded, {"cost_microusd": 1_000_000}),
    ],
)
def test_what_today_would_be_decided_otherwise_is_told_with_its_record(
    played: Played, kind: type, changes: dict[str, object]
) -> None:
    records = forged(played.records, kind, **changes)
    (difference, *_) = replay(played.session, SESSION_KEY, records).differences
    assert isinstance(records[difference.seq - 1].event, kind)
    assert next(iter(changes)) in difference.what


@pytest.mark.requirement("H2")
def test_what_is_missing_or_too_much_in_a_batch_is_told(played: Played) -> None:
    without_end = played.records[:-1]
    (difference,) = replay(played.session, SESSION_KEY, without_end).differences
    assert (difference.seq, type(difference.decided)) == (len(played.records), RunStopped)
    last = played.records[-1]
    twice = (*played.records, replace(last, seq=last.seq + 1))
    (difference,) = replay(played.session, SESSION_KEY, twice).differences
    assert (difference.seq, type(difference.recorded)) == (last.seq + 1, RunStopped)


@pytest.mark.requirement("H2")
def test_a_session_in_which_nothing_happened_yet_is_the_same() -> None:
    assert replay("S", "", []).differences == ()


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, ...]:
    """The journal of a run whose settings change when its approval is given."""
    place = tmp_path_factory.mktemp("place")
    scenario = BY_NAME["approved"]

    async def answer_and_change(clock: JumpingClock) -> tuple[Record, ...]:
        store, settings = VolatileStore(), settings_of(scenario, place)
        async with controller_of(scenario, store, clock, World(place)) as controller:
            session = await controller.begin(SESSION_KEY, owner("tester"), Send("Do it.", settings))
            await controller.drive(session)
            (asked,) = await store.approvals(session)
            await controller.submit(session, owner("one"), Resolve(asked.id, "approve"))
            await controller.submit(session, owner("two"), Continue(changed(settings, max_output_tokens=999)))
            await controller.drive(session)
        return await records_of(store, session)

    records = run_jumping(answer_and_change)
    assert any(isinstance(record.event, SettingsChanged) for record in records)
    return records


@pytest.mark.requirement("H2")
def test_commands_that_were_taken_together_leave_the_next_step_to_the_last_of_them(
    changing: tuple[Record, ...],
) -> None:
    assert replay(changing[0].session, SESSION_KEY, changing).differences == ()


@pytest.mark.requirement("H2")
def test_a_change_of_settings_that_other_settings_make_equal_is_no_difference(
    changing: tuple[Record, ...],
) -> None:
    found = replay(changing[0].session, SESSION_KEY, changing, {"max_output_tokens": 999})
    assert found.differences == ()
    assert found.records == len(changing)


@pytest.mark.requirement("H2")
def test_a_difference_behind_an_equal_change_of_settings_has_the_seq_of_its_record(
    changing: tuple[Record, ...],
) -> None:
    records = forged(changing, RunStopped, reason="boredom")
    (difference,) = replay(records[0].session, SESSION_KEY, records, {"max_output_tokens": 999}).differences
    assert difference.seq == records[-1].seq


@pytest.mark.requirement("H2")
def test_calls_that_were_too_many_are_decided_again_as_too_many(tmp_path: Path) -> None:
    reads = [{"name": "list_dir", "arguments": {}}] * (MAX_TOOL_CALLS + 2)
    scenario = Scenario("too many", [{"tool_calls": reads}, {"text": "Done."}])
    played = run_jumping(lambda clock: play(scenario, clock, VolatileStore(), tmp_path))
    assert any(isinstance(record.event, NoteAdded) for record in played.records)
    assert replay(played.session, SESSION_KEY, played.records).differences == ()


@pytest.mark.requirement("H2")
def test_replay_reads_no_sentence(tmp_path: Path) -> None:
    """Other words for the same facts differ in their words alone: the decision is still the recorded one."""
    scenario = BY_NAME["nobody to ask"]
    played = run_jumping(lambda clock: play(scenario, clock, VolatileStore(), tmp_path))
    records = forged(played.records, ToolCallRefused, failure=Failure("policy_denied", "Other words."))
    (difference,) = replay(played.session, SESSION_KEY, records).differences
    assert difference.what == "ToolCallRefused would differ in failure."
    stopped = run_jumping(
        lambda clock: play(BY_NAME["stopped in mid-tool"], clock, VolatileStore(), tmp_path)
    )
    records = forged(stopped.records, RunStopped, message="Halted.", by="somebody else")
    assert {type(each.recorded) for each in replay(stopped.session, SESSION_KEY, records).differences} == {
        RunStopped
    }
