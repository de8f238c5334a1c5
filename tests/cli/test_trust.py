"""`holdfast trust`: what a project file would change is shown, somebody agrees, and until it changes it counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

CONTENT = 'model = "openai:gpt-5.5"\nautonomy = "full"\n[limits]\nturns = 3\nidle = "20h"\n'


def project(cli: Cli, content: str = CONTENT) -> Path:
    file = cli.workspace / "holdfast.toml"
    file.write_text(content)
    return file


def settings(cli: Cli) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in map(json.loads, cli("config", "show", "--json").out.splitlines())}


def made(cli: Cli) -> list[str]:
    return sorted(path.name for path in cli.workspace.iterdir())


@pytest.mark.requirement("A4", "L9")
def test_a_cloned_repository_chooses_no_model_and_runs_no_command_of_its_own(cli: Cli) -> None:
    script = json.dumps(calls("shell", command="touch owned")) + "\n" + json.dumps(says("Done.")) + "\n"
    (cli.workspace / "model.jsonl").write_text(script)
    file = project(cli, 'model = "script:model.jsonl"\n')
    cli.configure('autonomy = "full"\n')
    for accepted in (False, True):
        if accepted:
            assert cli("trust", "--yes").code == 0
        ended = cli("run", "build it")
        assert ended.code == 2
        assert f"{file}:1" in ended.err
        assert "script" in ended.err
    assert made(cli) == ["holdfast.toml", "model.jsonl"]


@pytest.mark.requirement("A4", "A16")
def test_values_of_an_untrusted_file_that_do_not_count_are_told_once_with_the_next_command(cli: Cli) -> None:
    file = project(cli)
    ended = cli("run", "hi", "-m", cli.model(says("Hi.")))
    assert ended.code == 0
    assert ended.err.count("holdfast trust") == 1
    assert f"holdfast trust {file}" in ended.err
    shown = settings(cli)
    assert (shown["model"]["value"], shown["model"]["origin"]) == (None, None)
    assert shown["autonomy"]["value"] == "supervised"
    (ignored,) = shown["autonomy"]["ignored"]
    assert (ignored["value"], ignored["origin"]) == ("full", f"{file}:2")
    assert "holdfast trust" in ignored["why"]
    assert (shown["limits.turns"]["value"], "ignored" in shown["limits.turns"]) == (3, False)
    assert f"{file}:2: may set it only after" in cli("config", "show").out


@pytest.mark.requirement("A4")
def test_trust_holds_until_the_file_changes(cli: Cli) -> None:
    file = project(cli)
    trusted = cli("trust", str(file), "--yes", "--json")
    assert (trusted.code, trusted.json["file"], trusted.json["trusted"]) == (0, str(file), True)
    assert {change["key"]: change["counts"] for change in trusted.json["changes"]} == {
        "model": "trusted",
        "autonomy": "trusted",
        "limits.turns": "already",
        "limits.idle": "never",
    }
    shown = settings(cli)
    assert (shown["model"]["origin"], shown["autonomy"]["value"]) == (f"{file}:1", "full")
    assert shown["limits.idle"]["value"] == "5m"
    assert "already" in cli("trust").out
    project(cli, CONTENT + "# another line\n")
    assert settings(cli)["autonomy"]["value"] == "supervised"


@pytest.mark.requirement("A4")
def test_with_nobody_to_ask_nothing_is_trusted(cli: Cli) -> None:
    file = project(cli)
    ended = cli("trust")
    assert ended.code == 2
    assert f"holdfast trust {file} --yes" in ended.err
    assert "autonomy" in ended.out, "what it would change is shown all the same"
    assert cli("trust", "--json").json["error"]["code"] == "usage"
    assert settings(cli)["autonomy"]["value"] == "supervised"


@pytest.mark.requirement("A4")
def test_a_person_is_shown_the_changes_and_asked_for_a_clear_answer(cli: Cli) -> None:
    project(cli, CONTENT + '[providers."\\u001b[2Jx"]\nbase_url = "http://127.0.0.1:1"\n')
    for answers, code, autonomy in (
        (["n\n"], 1, "supervised"),
        (["\x04"], 1, "supervised"),
        (["\n", "y\n"], 0, "full"),
    ):
        with cli.terminal("trust") as screen:
            screen.until("instead of supervised")
            screen.until("may only tighten, and 5m is already set")
            for answer in answers:
                screen.until("y or n: ")
                screen.type(answer)
            assert screen.end() == code
        assert "\x1b[2J" not in screen.screen
        assert settings(cli)["autonomy"]["value"] == autonomy


@pytest.mark.parametrize(
    ("named", "told"),
    [(".", "There is no file"), ("nowhere", "not a project file"), ("other.toml", "not a project file")],
)
def test_what_is_no_project_file_is_refused(cli: Cli, named: str, told: str) -> None:
    (cli.workspace / "other.toml").write_text("")
    ended = cli("trust", named, "--yes")
    assert ended.code == 2
    assert told in ended.err


@pytest.mark.requirement("L9")
def test_a_wrong_project_file_is_told_with_all_its_problems_and_not_trusted(cli: Cli) -> None:
    file = project(cli, "modl = 1\n[limits]\nturns = 0\n")
    ended = cli("trust", "--yes")
    assert ended.code == 2
    assert f"{file}:1: modl" in ended.err
    assert f"{file}:3: limits.turns" in ended.err


@pytest.mark.requirement("A4", "B2")
def test_todays_admin_file_caps_the_cost_of_a_session_that_had_no_cost_limit(cli: Cli) -> None:
    model = cli.model(says("One."), says("Two."))
    assert cli("run", "x", "-s", "a:b", "-m", model).code == 0
    (cli.folder / "admin.toml").write_text("[limits]\ncost_usd = 0.25\n")
    assert cli("resume", "a:b", "more").code == 0
    rows = map(json.loads, cli("show", "a:b", "--events", "--json").out.splitlines())
    started = [row["body"] for row in rows if row["type"] == "RunStarted"]
    assert started[1]["settings"]["limits"]["cost_microusd"] == 250_000
