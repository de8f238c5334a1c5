"""The commands of `holdfast chat`, at a terminal whose screen is drawn."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.outside import _KEPT_CHARS
from holdfast.cli.slash import SLASHES, completed
from tests.cli.processes import Cli, calls, says
from tests.cli.test_editor import ANY, sent

PINNED = (
    "/help", "/model", "/autonomy", "/budget", "/cost", "/tools", "/approvals", "/show", "/diff", "/undo", "/clear",
    "/resume", "/exit",
)  # fmt: skip


def test_the_pinned_commands_are_there_and_help_lists_them_all(cli: Cli) -> None:
    assert [row.name for row in SLASHES if row.name in PINNED] == list(PINNED)
    with cli.emulator("chat", "-m", cli.model(ANY), columns=40, rows=60) as screen:
        screen.until(">")
        screen.type("/help\r")
        for row in SLASHES:
            screen.until(f"  {row.name}")
        screen.until("!COMMAND")
        screen.type("\x04")
        assert screen.end() == 0
    assert cli("sessions", "--json").out == ""


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/mo", ["/model "]),
        ("/c", ["/cost", "/compact ", "/clear"]),
        ("/autonomy ", ["/autonomy read-only", "/autonomy supervised", "/autonomy full"]),
        ("hello", []),
        ("/etc/ho", []),
    ],
)
def test_tab_knows_commands_and_arguments(typed: str, found: list[str]) -> None:
    assert completed(typed) == found


@pytest.mark.parametrize("typed", ["/hepl", "/Help", "/exit now", "/", "!"])
def test_a_mistyped_command_is_an_error_and_is_not_sent(cli: Cli, typed: str) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(f"{typed}\r")
        screen.until_shown("! Commands", "\n! ")
        screen.type("\x04")
        assert screen.end() == 0
        if typed == "/hepl":
            assert "There is no command /hepl. Did you mean /help? Nothing was sent." in screen.text
    assert cli("sessions", "--json").out == ""


@pytest.mark.parametrize(
    ("typed", "message"),
    [("/etc/hosts is wrong", "/etc/hosts is wrong"), ("//help me", "/help me"), ("a /help", "a /help")],
)
def test_a_path_a_doubled_slash_and_a_later_word_are_text(cli: Cli, typed: str, message: str) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type(f"{typed}\r")
        screen.until("Understood.")
    assert sent(cli) == [message]


def test_in_a_pipe_a_command_is_a_message(cli: Cli) -> None:
    ended = cli("chat", "-m", cli.model(ANY), stdin="/help\n")
    assert (ended.code, ended.out) == (0, "Understood.\n")
    assert sent(cli) == ["/help"]


def test_a_command_of_the_person_runs_and_its_output_goes_with_the_next_message(cli: Cli) -> None:
    (cli.workspace / "file.txt").write_text("the content\n")
    with cli.emulator("chat", "-m", cli.model(ANY), "--autonomy", "read-only") as screen:
        screen.until(">")
        screen.type("!cat file.txt; exit 3\r")
        screen.until("the content")
        screen.until("exit 3")
        screen.type("what is it?\r")
        screen.until("Understood.")
        screen.type("and now?\r")
        screen.until("Understood.")
    first, second = sent(cli)
    assert first == (
        f"I ran `cat file.txt; exit 3` in {cli.workspace}. It ended with exit code 3 and printed:\nthe content\n"
        "\n\nwhat is it?"
    )
    assert second == "and now?"


def test_what_a_command_prints_moves_no_cursor_and_no_part_of_a_secret_is_sent(cli: Cli) -> None:
    secret = "gh" + "p_" + "A1b2C3d4E5" * 3 + "abcdef"
    lines = ["x" * (_KEPT_CHARS // 2 - 10) + f" {secret} " + "y" * 40_000, f"a {secret}", "\x1b[2Jover"]
    (cli.workspace / "out.txt").write_text("\n".join(lines))
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("!cat out.txt\r")
        screen.until("exit 0")
        assert "\\x1b[2Jover" in screen.text
        screen.type("what?\r")
        screen.until("Understood.")
    (message,) = sent(cli)
    assert "a [redacted:github]" in message
    assert secret[:8] not in message


def test_a_command_of_the_person_can_be_stopped_and_may_leave_something_behind(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY)) as screen:
        screen.until(">")
        screen.type("!echo begun; sleep 71.5\r")
        screen.until("begun")
        screen.type("\x03")
        screen.until("exit 130")
        screen.type("!sleep 5.5 & echo left\r")
        screen.until("left")
        screen.until("exit 0")


def test_model_autonomy_and_budget_change_the_next_message(cli: Cli) -> None:
    other = cli.model(
        says("The other one."), calls("shell", command="touch made"), says("Made."), name="other"
    )
    with cli.emulator("chat", "-m", cli.model(ANY), columns=200) as screen:
        screen.until(">")
        screen.type("hi\r")
        screen.until("Understood.")
        screen.type(f"/model {other}\r/autonomy full\r/budget 0.25\r")
        screen.until("The budget is $0.25 for each message from the next message on.")
        screen.until_shown("of $0.25", "· full · script:", "other.jsonl")
        screen.type("who?\r")
        screen.until("Made.")
    assert (cli.workspace / "made").exists()
    row = json.loads(cli("sessions", "--json").out)
    assert row["model"].endswith("other.jsonl")


@pytest.mark.parametrize("typed", ["/model nobody:x", "/autonomy odd", "/budget much"])
def test_a_wrong_value_changes_nothing(cli: Cli, typed: str) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), columns=200) as screen:
        screen.until(">")
        screen.type(f"{typed}\r")
        screen.until("! ")
        screen.type("hi\r")
        screen.until("Understood.")
        screen.until_shown("of $2.00")  # the status line is drawn anew after each line above it


def test_looking_commands_show_what_the_shell_commands_show(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), columns=100) as screen:
        screen.until(">")
        screen.type("/cost\r")
        screen.until("There is no session yet")
        screen.type("hi\r")
        screen.until("Understood.")
        screen.type("/cost\r")
        screen.until("total $0.0000 of $2.00")
        screen.type("/show\r")
        screen.until("Understood.")
        screen.type("/tools\r")
        screen.until("write_file")
        screen.type("/approvals\r")
        screen.until("Nothing waits for you.")


def test_a_session_that_was_deleted_meanwhile_is_left_and_the_next_message_begins_a_new_one(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), "-s", "a:b", columns=100) as screen:
        screen.until(">")
        screen.type("first\r")
        screen.until("Understood.")
        assert cli("delete", "a:b", "--yes").code == 0
        screen.type("second\r")
        screen.until("The session of this chat was deleted. Nothing was sent.")
        screen.type("\x1b[A\r")
        screen.until("Understood.")
        screen.type("/exit\r")
        assert screen.end() == 0
    assert sent(cli) == ["second"]


def test_another_session_repeats_no_warning(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), "-s", "a:b", columns=100, rows=50) as screen:
        screen.until(">")
        screen.type("first\r")
        screen.until("Understood.")
        screen.type("/clear\r")
        screen.until("The next message begins a new session.")
        screen.type("/resume a:b\r")
        screen.until("Your next message goes to this session.")
        assert screen.text.count("no sandbox confines them") == 1


def test_clear_begins_a_new_session_and_resume_goes_back(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), "-s", "a:b", columns=100) as screen:
        screen.until(">")
        screen.type("first\r")
        screen.until("Understood.")
        screen.type("/clear\r")
        screen.until("The next message begins a new session.")
        screen.type("second\r")
        screen.until("Understood.")
        screen.type("/resume a:b\r")
        screen.until("Your next message goes to this session.")
        screen.type("third\r")
        screen.until("Understood.")
        screen.type("/exit\r")
        assert screen.end() == 0
        assert "holdfast chat -s a:b" in screen.text
    assert len(cli("sessions", "--json").out.splitlines()) == 2
    assert sent(cli) == ["first", "third"]


def test_diff_shows_what_was_edited_and_undo_puts_it_back(cli: Cli) -> None:
    (cli.workspace / "poem.txt").write_text("roses are red\n")
    model = cli.model(calls("write_file", path="poem.txt", content="roses are blue\n"), says("Written."), ANY)
    with cli.emulator("chat", "-m", model, columns=100) as screen:
        screen.until(">")
        screen.type("write\r")
        screen.until("Written.")
        screen.type("/diff\r")
        screen.until("> /diff")
        screen.until("-roses are red")
        screen.until("+roses are blue")
        screen.type("/undo\r")
        screen.until("restored  poem.txt")
        assert (cli.workspace / "poem.txt").read_text() == "roses are red\n"
        screen.type("/undo\r")
        screen.until("There is nothing to put back.")
        screen.type("/undo none\r")
        screen.until("! /undo none: the number of messages must be 1 to 10,000.")
        screen.type("go on\r")
        screen.until("Understood.")
    assert sent(cli) == ["write", "go on"]


def test_a_command_may_print_a_line_that_never_ends(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(ANY), columns=100) as screen:
        screen.until(">")
        screen.type("!head -c 100000 /dev/zero | tr '\\0' x; echo; echo over\r")
        screen.until("over")
        screen.until("exit 0")
        assert screen.text.count("x" * 100) >= 900
        screen.type("what?\r")
        screen.until("Understood.")
    assert "characters left out]" in sent(cli)[0]
