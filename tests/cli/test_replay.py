"""`holdfast replay`: the same is the same, and what is not is told with its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.cli.root import run as run_command
from holdfast.protocol.commands import Continue, Resolve, Send
from holdfast.protocol.events import Record, Responded, RunStopped, SettingsChanged, ToolCallStarted
from holdfast.runtime.replay import replay
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.testing.scenarios import (
    SESSION_KEY,
    Played,
    World,
    controller_of,
    play,
    records_of,
    settings_of,
)
from tests.cli.conftest import Answer, Holdfast
from tests.scenarios.scenes import BY_NAME

AGAIN = {"tool_calls": [{"name": "list_dir", "arguments": {}}], "usage": {"input_tokens": 1_000}}
LINES = [AGAIN, AGAIN, AGAIN, {"text": "Done."}]


@pytest.fixture
def recorded(holdfast: Holdfast, tmp_path: Path) -> str:
    """A run of four turns, three of them the same."""
    (tmp_path / "work").mkdir()
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    flags = ("-m", f"script:{tmp_path / 'm.jsonl'}", "-w", str(tmp_path / "work"))
    answer = holdfast("run", "look", *flags, "--json", "--home", str(tmp_path / "home"))
    assert answer.code == 0, answer.err
    return str(answer.rows[0]["session"])


def ask(holdfast: Holdfast, folder: Path, session: str, config: str = "") -> Answer:
    flags: tuple[str, ...] = ()
    if config:
        (folder / "other.toml").write_text(config)
        flags = ("--with", str(folder / "other.toml"))
    return holdfast("replay", session, *flags, "--json", "--home", str(folder / "home"))


@pytest.mark.requirement("H2")
def test_a_session_is_decided_again_without_model_or_tool_and_nothing_is_written(
    holdfast: Holdfast, tmp_path: Path, recorded: str
) -> None:
    before = holdfast("show", recorded, "--events", "--json", "--home", str(tmp_path / "home")).out
    (tmp_path / "m.jsonl").unlink()
    (tmp_path / "work").rmdir()
    answer = ask(holdfast, tmp_path, recorded)
    assert answer.code == 0
    assert answer.rows[0]["same"] is True
    assert answer.rows[0]["differences"] == []
    assert answer.rows[0]["records"] == len(before.splitlines())
    assert holdfast("show", recorded, "--events", "--json", "--home", str(tmp_path / "home")).out == before


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("config", "recorded_type", "decided_type"),
    [
        ("[limits]\nturns = 2\n", "ModelCallStarted", "RunLanding"),
        ("[limits]\ntokens = 4000\n", "ModelCallStarted", "RunLanding"),
        ("[repeat]\nnote = 2\n", "ModelCallStarted", "NoteAdded"),
        ("[repeat]\nnote = 2\nstop = 3\n", "ModelCallStarted", "NoteAdded"),
    ],
)
def test_other_settings_show_where_it_would_have_gone_otherwise(
    holdfast: Holdfast, tmp_path: Path, recorded: str, config: str, recorded_type: str, decided_type: str
) -> None:
    answer = ask(holdfast, tmp_path, recorded, config)
    assert answer.code == 1
    (difference,) = answer.rows[0]["differences"]
    assert difference["recorded"]["type"] == recorded_type
    assert difference["decided"]["type"] == decided_type


@pytest.mark.requirement("H2")
def test_settings_that_a_replay_cannot_judge_are_named(
    holdfast: Holdfast, tmp_path: Path, recorded: str
) -> None:
    answer = ask(holdfast, tmp_path, recorded, 'autonomy = "read-only"\n[limits]\nturns = 100\n')
    assert (answer.code, answer.rows[0]["ignored"]) == (0, ["autonomy"])
    assert ask(holdfast, tmp_path, recorded, "[limits]\nturn = 1\n").code == 2
    assert run_command(["replay", "nobody:here", "--home", str(tmp_path / "home")]) == 2


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    place = tmp_path_factory.mktemp("place")
    return run_jumping(lambda clock: play(BY_NAME["several turns"], clock, VolatileStore(), place))


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


@pytest.mark.requirement("H2")
def test_commands_that_were_taken_together_leave_the_next_step_to_the_last_of_them(tmp_path: Path) -> None:
    scenario = BY_NAME["approved"]

    async def answer_and_change(clock: JumpingClock) -> tuple[Record, ...]:
        store, settings = VolatileStore(), settings_of(scenario, tmp_path)
        async with controller_of(scenario, store, clock, World(tmp_path)) as controller:
            session = await controller.begin(SESSION_KEY, "tester", Send("Do it.", settings))
            await controller.drive(session)
            (asked,) = await store.approvals(session)
            await controller.submit(session, "one", Resolve(asked.id, "approve"))
            await controller.submit(session, "two", Continue(replace(settings, max_output_tokens=999)))
            await controller.drive(session)
        return await records_of(store, session)

    records = run_jumping(answer_and_change)
    assert any(isinstance(record.event, SettingsChanged) for record in records)
    assert replay(records[0].session, SESSION_KEY, records).differences == ()
