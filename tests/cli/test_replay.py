"""`holdfast replay`: equal decisions pass, and each difference is reported with its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.root import run as run_command
from tests.cli.conftest import Finished, Holdfast

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


def ask(holdfast: Holdfast, folder: Path, session: str, config: str = "") -> Finished:
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
        ("[limits]\ntokens = 4000\n", "ModelCallStarted", "ModelCallUnaffordable"),
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
