"""Approvals: asked at the terminal, or left open and decided by another process, and used exactly once."""

from __future__ import annotations

import json
import signal
from datetime import datetime
from typing import Any

import pytest

from holdfast.clock import SystemClock
from tests.cli.conftest import Filled, Holdfast
from tests.cli.processes import Cli, calls, says

COMMAND = "kill -0 0; echo ran >> ran.txt"
"""Ending processes is asked about."""


def a_model(cli: Cli, command: str = COMMAND) -> str:
    return cli.model(calls("shell", command=command), says("Went on.", repeat=True))


def runs(cli: Cli) -> int:
    """How often the command ran."""
    path = cli.workspace / "ran.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def open_approvals(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("approvals", "--json").out.splitlines()]


@pytest.mark.requirement("H5", "B4")
def test_without_a_terminal_it_rests_and_another_process_approves_and_resume_goes_on(cli: Cli) -> None:
    asked = cli("run", "x", "-m", a_model(cli), "--json")
    assert (asked.code, asked.json["status"], asked.json["reason"]) == (5, "waiting", "approval")
    (approval,) = open_approvals(cli)
    for word in (COMMAND, f"holdfast approve {approval['id']}", f"deny {approval['id']}", "holdfast resume "):
        assert word in asked.err
    assert (approval["tool"], approval["arguments"]["command"]) == ("shell", COMMAND)
    decided = cli("approve", approval["id"], "--note", "fine")
    assert decided.code == 0
    assert f"holdfast resume {asked.json['session']}" in decided.out
    assert (runs(cli), open_approvals(cli)) == (0, [])
    assert cli("resume", "last").out == "Went on.\n"
    assert runs(cli) == 1


@pytest.mark.requirement("H5")
def test_who_decides_sees_all_of_the_call_where_it_runs_and_which_program_it_begins_with(cli: Cli) -> None:
    program = cli.workspace / "bin" / "greet-1.0"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch ran.txt\n")
    program.chmod(0o755)
    (cli.workspace / "greet").symlink_to(program)
    cli.environ["COLUMNS"] = "500"  # nothing is cut
    command = "./greet --loudly" + " and" * 60 + " twice"
    cli("run", "x", "-m", a_model(cli, command))
    (approval,) = open_approvals(cli)
    assert (approval["cwd"], approval["binary"]) == (str(cli.workspace), str(program))
    with cli.terminal("resume", "last", "--approve-by", "prompt") as screen:
        screen.until("Approve it?")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 130
    for told in (cli("approvals").out, screen.screen, cli("approve", approval["id"]).out):
        words = " ".join(told.split())  # a narrow terminal breaks lines
        for shown in (f"│ command: {command}", f"in {cli.workspace}", f"begins with {program}"):
            assert shown in words


def test_an_approval_of_before_has_no_folder_to_tell_of(holdfast: Holdfast, home: Filled) -> None:
    in_home = ("--home", str(home.folder))
    (row,) = holdfast("approvals", "--json", *in_home).rows
    assert (row["cwd"], row["binary"]) == (None, None)
    told = holdfast("approvals", *in_home).out
    assert "│ command: rm -rf build\n  approve " in told


@pytest.mark.requirement("H5")
def test_who_decides_for_a_run_that_waits_at_its_prompt_is_not_told_that_it_must_be_resumed(cli: Cli) -> None:
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until("Approve it?")
        (approval,) = open_approvals(cli)
        out = cli("approve", approval["id"]).out
        screen.until("Went on.")
        assert screen.end() == 0
    assert runs(cli) == 1
    assert "holdfast resume" not in out or "that waits for it at a terminal continues. If none does," in out


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_who_decides_after_the_deadline_is_told_that_the_approval_expired(
    holdfast: Holdfast, home: Filled, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    in_home = ("--home", str(home.folder))
    (row,) = holdfast("approvals", "--json", *in_home).rows
    late_ms = datetime.fromisoformat(row["deadline"]).timestamp() * 1000 + 1
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: int(late_ms))
    for _ in range(2):
        late = holdfast(command, row["id"], *in_home)
        assert (late.code, late.err) == (1, "")
        assert late.out.startswith("Expired 20")
        assert late.out.endswith(": nobody decided in time.\n")
    assert holdfast("approvals", "--json", *in_home).rows == []


@pytest.mark.requirement("H5")
def test_who_decides_after_the_run_ended_is_told_so(cli: Cli) -> None:
    cli("run", "x", "-m", a_model(cli))
    (approval,) = open_approvals(cli)
    assert cli("stop", "last").code == 0
    late = cli("approve", approval["id"])
    assert (late.code, late.err) == (1, "")
    assert late.out.startswith("Withdrawn 20")
    assert late.out.endswith(": its run ended first.\n")


@pytest.mark.requirement("H5")
def test_a_denied_call_does_not_run_and_the_model_is_told_why(cli: Cli) -> None:
    model = cli.model(calls("shell", command=COMMAND), says("As you wish.", when="not on a Friday"))
    cli("run", "x", "-m", model)
    (approval,) = open_approvals(cli)
    assert cli("deny", approval["id"], "--note", "not on a Friday").code == 0
    assert cli("resume", "last").out == "As you wish.\n"
    assert runs(cli) == 0


@pytest.mark.requirement("H5")
def test_the_second_answer_is_told_who_was_first_and_when(cli: Cli) -> None:
    cli("run", "x", "-m", a_model(cli))
    (approval,) = open_approvals(cli)
    assert cli("deny", approval["id"]).code == 0
    second = cli("approve", approval["id"])
    assert second.code == 1
    assert second.out.startswith("Already denied by cli:")
    assert ", 20" in second.out


def test_an_unknown_approval_ends_with_2(cli: Cli) -> None:
    assert cli("approve", "NONE-1").code == 2
    assert cli("deny", "NONE-1").code == 2


def test_a_question_is_approved_only_with_words(cli: Cli) -> None:
    model = cli.model(calls("ask_user", question="Why?"), says("Thanks.", when="because"))
    cli("run", "x", "-m", model)
    (approval,) = open_approvals(cli)
    assert cli("approve", approval["id"]).code == 2
    assert cli("approve", approval["id"], "--note", "because").code == 0
    assert cli("resume", "last").out == "Thanks.\n"


@pytest.mark.requirement("B1")
def test_with_approve_by_deny_nobody_is_asked(cli: Cli) -> None:
    ended = cli("run", "x", "-m", a_model(cli), "--approve-by", "deny")
    assert (ended.code, ended.out, runs(cli)) == (0, "Went on.\n", 0)


# --- at a terminal ------------------------------------------------------------------------------


@pytest.mark.requirement("H5")
def test_at_a_terminal_enter_alone_allows_nothing_and_yes_runs_it_once(cli: Cli) -> None:
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until(f"command: {COMMAND}")
        screen.until("Approve it?")
        screen.type("\n")
        screen.until("Approve it?")
        assert runs(cli) == 0
        screen.type("y\n")
        screen.until("Went on.")
        assert screen.end() == 0
    assert runs(cli) == 1


@pytest.mark.parametrize(("term", "way_out"), [("xterm", "Esc"), ("dumb", "Ctrl-D")])
def test_an_answer_that_is_not_understood_is_told_what_is_possible(cli: Cli, term: str, way_out: str) -> None:
    cli.environ["TERM"] = term
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until(f"{way_out} leaves it open.")
        screen.until("Approve it?")
        screen.type("maybe\n")
        screen.until(f"Type y to approve, n to deny, or n and why. {way_out} leaves it open.")
        screen.until("Approve it?")
        screen.type("\x1b" if way_out == "Esc" else "\x04")
        assert screen.end() == 5
    assert runs(cli) == 0


def test_an_empty_answer_to_a_question_is_told_what_is_possible(cli: Cli) -> None:
    model = cli.model(calls("ask_user", question="Colour?", options=["red", "blue"]), says("Ok."))
    with cli.terminal("run", "x", "-m", model) as screen:
        screen.until("Answer: ")
        screen.type("\n")
        screen.until("Type a number or an answer. Esc leaves the question open.")
        screen.until("Answer: ")
        screen.type("1\n")
        screen.until("Ok.")


def test_at_a_terminal_no_tells_the_model_why(cli: Cli) -> None:
    model = cli.model(calls("shell", command=COMMAND), says("Another way then.", when="too risky"))
    with cli.terminal("run", "x", "-m", model) as screen:
        screen.until("Approve it?")
        screen.type("n too risky\n")
        screen.until("Another way then.")
        assert screen.end() == 0
    assert runs(cli) == 0


def test_a_question_at_a_terminal_takes_the_number_of_an_option(cli: Cli) -> None:
    model = cli.model(
        calls("ask_user", question="Colour?", options=["red", "blue"]), says("Ok.", when="blue")
    )
    with cli.terminal("run", "x", "-m", model) as screen:
        screen.until("2. blue")
        screen.until("Answer: ")
        screen.type("2\n")
        screen.until("Ok.")
        assert screen.end() == 0


@pytest.mark.requirement("H5")
def test_an_answer_from_elsewhere_ends_the_prompt_and_the_run_goes_on(cli: Cli) -> None:
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until("Approve it?")
        (approval,) = open_approvals(cli)
        assert cli("approve", approval["id"]).code == 0
        screen.until("Went on.")
        assert screen.end() == 0
    assert runs(cli) == 1


@pytest.mark.requirement("H5")
def test_who_leaves_the_prompt_leaves_the_approval_open(cli: Cli) -> None:
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until("Approve it?")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 130
    assert len(open_approvals(cli)) == 1
    with cli.terminal("resume", "last") as screen:
        screen.until("Approve it?")
        screen.type("\x04")
        assert screen.end() == 5
    assert len(open_approvals(cli)) == 1


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_end_of_a_run_has_a_line_of_its_own_after_an_open_question(cli: Cli, term: str) -> None:
    cli.environ |= {"TERM": term}
    with cli.terminal("run", "x", "-m", a_model(cli)) as screen:
        screen.until("Approve it?")
        screen.type("y but")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 130
        last = next(line for line in screen.screen.splitlines() if "interrupted" in line)
    assert "Approve it?" not in last


def test_what_a_terminal_would_act_on_is_written_out(cli: Cli) -> None:
    write = calls("write_file", path="holdfast.toml", content="# '\x1b[2K\rharmless'")
    with cli.terminal("run", "x", "-m", cli.model(write, says("Went on."))) as screen:
        screen.until(r"# '\x1b[2K\x0dharmless'")
        screen.until("Approve it?")
        screen.type("n\n")
        assert screen.end() == 0


def test_a_long_call_cannot_be_allowed_before_all_of_it_was_shown(cli: Cli) -> None:
    command = "\n".join(["kill -0 0", *("echo x" for _ in range(100)), "echo hidden-part", *["echo y"] * 100])
    with cli.terminal("run", "x", "-m", a_model(cli, command)) as screen:
        screen.until("characters hidden")
        assert "hidden-part" not in screen.screen
        screen.until("Approve it?")
        screen.type("y\n")
        screen.until("Press v first")
        screen.until("Approve it?")  # what is typed before a question answers nothing
        screen.type("v\n")
        screen.until("hidden-part")
        screen.until("Approve it?")
        screen.type("n\n")
        assert screen.end() == 0


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("key", ["\x1b", "\x04"])
def test_a_key_leaves_a_question_open(cli: Cli, key: str) -> None:
    with cli.emulator("run", "x", "-m", a_model(cli)) as screen:
        screen.until_shown("Approve it?")
        screen.type(f"y\x7f{key}")
        assert screen.end() == 5
    assert (runs(cli), len(open_approvals(cli))) == (0, 1)


def test_an_answer_can_be_corrected_before_enter(cli: Cli) -> None:
    model = cli.model(calls("shell", command=COMMAND), says("Another way then.", when="too risky"))
    with cli.emulator("run", "x", "-m", model) as screen:
        screen.until_shown("Approve it?")
        screen.type("yes\x15n to\x7foo wild\x7f\x7f\x7f\x7frisky")
        screen.until_shown("why: n too risky")
        screen.type("\n")
        screen.until("Another way then.")
        assert screen.end() == 0
    assert runs(cli) == 0


@pytest.mark.requirement("H5")
def test_the_question_about_an_edit_shows_its_diff(cli: Cli) -> None:
    (cli.workspace / ".pre-commit-config.yaml").write_text("# mine\nloglevel=old\n")
    edit = calls("edit_file", path=".pre-commit-config.yaml", old="old", new="new")
    with cli.emulator("run", "x", "-m", cli.model(edit, says("Edited."))) as screen:
        screen.until("-loglevel=old")
        screen.until("+loglevel=new")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("Edited.")
        assert screen.end() == 0
    assert (cli.workspace / ".pre-commit-config.yaml").read_text() == "# mine\nloglevel=new\n"


@pytest.mark.requirement("H5")
def test_the_question_about_a_patch_shows_it(cli: Cli) -> None:
    (cli.workspace / ".pre-commit-config.yaml").write_text("# mine\nloglevel=old\n")
    text = "--- a/.pre-commit-config.yaml\n+++ b/.pre-commit-config.yaml\n@@ -2 +2 @@\n-loglevel=old\n+loglevel=new\n"
    edit = calls("apply_patch", patch=text)
    with cli.emulator("run", "x", "-m", cli.model(edit, says("Edited."))) as screen:
        screen.until("-loglevel=old")
        screen.until("+loglevel=new")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("Edited.")
        assert screen.end() == 0
    assert (cli.workspace / ".pre-commit-config.yaml").read_text() == "# mine\nloglevel=new\n"
