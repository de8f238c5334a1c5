"""`holdfast resume`: a session goes on as it was recorded, after whatever ended the last stretch of work."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, Ended, calls, is_running, says


def events(cli: Cli, session: str = "last") -> list[dict[str, Any]]:
    """The whole journal."""
    return [json.loads(line) for line in cli("show", session, "--events", "--json").out.splitlines()]


def types(cli: Cli) -> list[str]:
    return [row["type"] for row in events(cli)]


@pytest.mark.requirement("L12", "B4")
def test_session_resumed(cli: Cli) -> None:
    model = cli.model(calls("shell", command="sleep 64.5; echo slept"), says("Slept enough."))
    with cli.working("run", "sleep", "-s", "cli:bed", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        work.process.kill()
        work.process.wait()
    resumed = cli("resume", "cli:bed")
    assert (resumed.code, resumed.out) == (0, "Slept enough.\n")
    assert "? shell sleep 64.5; echo slept" in resumed.err
    assert "outcome" in resumed.err
    assert types(cli).count("ToolCallAbandoned") == 1
    assert types(cli).count("RunStarted") == 1
    assert not is_running("sleep 64.5")


@pytest.mark.requirement("B4")
def test_what_runs_after_an_approval_is_told_by_its_name(cli: Cli) -> None:
    cli(
        "run", "x", "-m", cli.model(calls("shell", command="kill -0 0; sleep 0.6; touch made"), says("Made."))
    )
    (approval,) = [json.loads(line)["id"] for line in cli("approvals", "--json").out.splitlines()]
    cli("approve", approval)
    with cli.terminal("resume", "last") as screen:
        screen.until(
            "shell kill -0 0; sleep 0.6; touch made 0."
        )  # while it runs, and how long it has been running
        screen.until("✓ shell kill -0 0; sleep 0.6; touch made")
        assert screen.end() == 0
    assert "t1.c1" not in screen.screen


@pytest.mark.requirement("S15", "L8")
def test_events_have_one_shape_while_they_happen_and_when_they_are_read_later(cli: Cli) -> None:
    looks = calls("list_dir")["tool_calls"] + calls("shell", command="sleep 64.75")["tool_calls"]
    model = cli.model(calls("shell", command="seq 20000"), {"tool_calls": looks}, says("Done."))
    with cli.working("run", "look", "-s", "a:b", "-m", model, "--autonomy", "full") as work:
        work.until(lambda row: row.get("type") == "ToolCallStarted" and row["call_id"] == "t2.c2")
        work.process.kill()
        work.process.wait()
    with cli.working("resume", "a:b") as again:
        assert again.end().code == 0
    told = [row for row in (*work.rows, *again.rows) if "seq" in row]
    read = events(cli, "a:b")
    assert told == [{**{name: row[name] for name in ("seq", "at", "type")}, **row["body"]} for row in read]
    added = [row["request"]["rest"] for row in told if row["type"] == "ModelCallStarted"]
    assert "the folder is empty" in "".join(fresh["piece"] for fresh in added[2]), (
        "told before this process began"
    )
    whole = [row["result"]["full_text"] for row in told if row.get("result", {}).get("blob")]
    assert [text.splitlines()[-1] for text in whole] == ["20000"]


def test_a_finished_session_prints_its_result_and_nothing_is_appended(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(says("The result.")))
    before = events(cli)
    (cli.folder / "script.jsonl").unlink()
    resumed = cli("resume", "last")
    assert (resumed.code, resumed.out) == (0, "The result.\n")
    assert cli("resume", "last", "--json").json["text"] == "The result."
    assert events(cli) == before


def test_words_on_a_finished_session_open_another_run(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(says("One."), says("Two.", when="more")))
    resumed = cli("resume", "last", "some more", "--json")
    assert (resumed.json["text"], resumed.json["turns"]) == ("Two.", 1)


@pytest.mark.requirement("B1")
def test_after_a_limit_it_goes_on_with_fresh_limits(cli: Cli) -> None:
    model = cli.model(calls("list_dir"), says("Stopped here."), says("Now it is done."))
    assert cli("run", "x", "-m", model, "--max-turns", "1").code == 4
    resumed = cli("resume", "last", "--json")
    assert (resumed.code, resumed.json["text"], resumed.json["turns"]) == (0, "Now it is done.", 1)


def test_after_a_failure_it_goes_on(cli: Cli) -> None:
    model = cli.model(calls("list_dir"))
    assert cli("run", "x", "-m", model).code == 1
    cli.model(calls("list_dir"), says("-"), says("Mended."))
    assert cli("resume", "last").out == "Mended.\n"


def test_it_goes_on_from_any_folder_where_it_was(cli: Cli, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    model = cli.model(says("-"), calls("write_file", path="here.txt", content="x"), says("Written."))
    cli("run", "x", "-m", model, "-w", str(elsewhere))
    assert cli("resume", "last", "write").code == 0
    assert (elsewhere / "here.txt").exists()


def test_a_flag_changes_it_from_there_on_and_is_recorded(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; echo hi"), says("Said hi."))
    assert cli("run", "x", "-m", model).code == 5
    resumed = cli("resume", "last", "--autonomy", "read-only", "--max-turns", "3")
    assert resumed.code == 5
    (changed,) = [row for row in events(cli) if row["type"] == "SettingsChanged"]
    assert changed["body"]["settings"]["posture"]["autonomy"] == "read-only"
    assert changed["body"]["settings"]["limits"]["turns"] == 3


def test_todays_administrator_still_tightens_what_was_recorded(cli: Cli) -> None:
    model = cli.model(says("-"), calls("list_dir"), says("Landed."))
    cli("run", "x", "-m", model, "--max-turns", "9")
    (cli.folder / "admin.toml").write_text("[limits]\nturns = 1\n")
    resumed = cli("resume", "last", "more", "--json")
    assert (resumed.code, resumed.json["reason"], resumed.json["turns"]) == (4, "turns", 1)


def test_a_model_whose_key_is_gone_ends_with_2_and_nothing_is_accepted(cli: Cli) -> None:
    cli("run", "x", "-m", cli.model(says("Hi.")))
    before = len(events(cli))
    resumed = cli("resume", "last", "more", "-m", "anthropic:claude-sonnet-5")
    assert resumed.code == 2
    assert "ANTHROPIC_API_KEY" in resumed.err
    assert len(events(cli)) == before


@pytest.mark.requirement("H5", "B4")
def test_a_question_rests_and_is_answered_by_words(cli: Cli) -> None:
    model = cli.model(calls("ask_user", question="Which colour?"), says("Blue it is.", when="deep blue"))
    asked = cli("run", "paint", "-m", model, "--json")
    assert (asked.code, asked.json["status"], asked.json["reason"]) == (5, "waiting", "question")
    assert f'holdfast resume {asked.json["session"]} "TEXT"' in asked.err
    assert cli("resume", "last").code == 5
    assert cli("resume", "last", "deep blue").out == "Blue it is.\n"


@pytest.mark.requirement("B1")
def test_words_for_a_session_that_another_process_drives_are_handed_over_and_followed(cli: Cli) -> None:
    model = cli.model(
        calls("shell", command="until test -e go; do sleep 0.05; done"), says("Both heard.", when="also this")
    )
    with cli.working("run", "one", "-s", "cli:two", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        with cli.working("run", "also this", "-s", "cli:two") as second:
            second.until_type("MessageReceived")
            (cli.workspace / "go").touch()
            assert second.end().code == 0
        assert work.end().code == 0
    assert second.rows[-1]["type"] == "RunStopped"
    assert types(cli).count("Attached") == 1
    assert types(cli).count("MessageReceived") == 2


def test_ctrl_c_at_a_session_that_another_process_drives_only_leaves_it(cli: Cli) -> None:
    model = cli.model(
        calls("shell", command="until test -e go; do sleep 0.05; done"), says("Not disturbed.", repeat=True)
    )
    with cli.working("run", "one", "-s", "cli:two", "-m", model, "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        with cli.working("resume", "cli:two", "more") as second:
            second.until_type("MessageReceived")
            left: Ended = second.end(signal.SIGINT)
        assert left.code == 130
        assert "Another process continues it." in left.err
        (cli.workspace / "go").touch()
        assert work.end().code == 0
    assert work.rows[-1]["status"] == "done"
