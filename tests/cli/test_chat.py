"""`holdfast chat`: message by message, at a terminal and through a pipe."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import termios
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.processes import TIMEOUT_S, Cli, calls, says
from tests.edge.machine import descendants

COUNTING = says("one two " + "three " * 1_600, chunks=1_600, delay_s=300)
"""Long enough to be stopped on any machine; its first words come at once."""


@pytest.mark.requirement("B1")
def test_in_a_pipe_every_line_is_a_message_of_one_session(cli: Cli) -> None:
    model = cli.model(says("First.", when="one"), says("Second.", when="two"))
    ended = cli("chat", "-m", model, stdin="one\n\ntwo\n")
    assert (ended.code, ended.out) == (0, "First.\nSecond.\n")
    assert len(cli("sessions", "--json").out.splitlines()) == 1


@pytest.mark.requirement("L2-06")
def test_escape_stops_the_turn_keeps_its_words_and_the_session(cli: Cli) -> None:
    model = cli.model(COUNTING, says("never"))
    with cli.emulator("chat", "-m", model, "-s", "cli:talk") as screen:
        screen.until("Ctrl-D leaves")
        screen.until(">")
        screen.type("count\r")
        screen.until("one ")
        screen.type("\x1b")
        screen.until("interrupted")
        screen.until(">")
        screen.type("and now?\r")
        screen.until("one two")
        screen.type("\x1b")
        screen.until("interrupted")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert "holdfast chat -s cli:talk" in screen.screen


@pytest.mark.requirement("H5")
def test_approvals_are_asked_inline(cli: Cli) -> None:
    model = cli.model(calls("shell", command="kill -0 0; touch made"), says("It is made."))
    with cli.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("make it\r")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("It is made.")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert (cli.workspace / "made").exists()


def until_called(cli: Cli) -> None:
    """Wait until the model was called for the first time. A terminal that knows only lines shows no half answer."""
    until_s = time.monotonic() + TIMEOUT_S
    while "ModelCallStarted" not in cli("show", "last", "--events", "--json").out:
        assert time.monotonic() < until_s


@pytest.fixture(params=["edited", "dumb"])
def either(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """A chat with the line editor, and one at a terminal that knows only lines."""
    if request.param == "dumb":
        cli.environ["TERM"] = "dumb"
    return cli


@pytest.mark.requirement("L2-06")
@pytest.mark.parametrize("keys", ["\x1b\x1b", "\x03"])
def test_a_key_that_stops_a_turn_does_so_whatever_was_pressed_with_it(either: Cli, keys: str) -> None:
    model = either.model(COUNTING, says("never"))
    with either.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("count\r")
        until_called(either)
        screen.type(keys)
        screen.until("interrupted")
        if "TERM" not in either.environ:
            screen.type("and now?\r")
            screen.until("one two")


def test_ctrl_d_during_a_turn_leaves_after_it(either: Cli) -> None:
    with either.emulator("chat", "-m", either.model(COUNTING)) as screen:
        screen.until(">")
        screen.type("count\r")
        until_called(either)
        screen.type("\x04")
        screen.type("\x1b")
        screen.until("interrupted")
        assert screen.end() == 0


@pytest.mark.requirement("L2-06")
def test_escape_right_after_a_message_stops_its_turn(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(COUNTING)) as screen:
        screen.until(">")
        screen.type("count\r\x1b")
        screen.until("interrupted")


@pytest.mark.requirement("L2-06")
def test_a_message_that_was_not_read_yet_comes_back_on_ctrl_c_and_is_not_sent(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(COUNTING)) as screen:
        screen.until(">")
        screen.type("count\r\x03 the rest")
        screen.until("> count the rest")
        screen.type("\x03")
        screen.until_gone("> count the rest")
        screen.type("\x03")
        screen.until("Press Ctrl-C again to leave.")
        screen.type("\x03")
        assert screen.end() == 0
    assert cli("sessions", "--json").out == ""


@pytest.mark.requirement("B1")
def test_what_is_typed_during_a_turn_is_the_next_message(either: Cli) -> None:
    first = says("one two three four", chunks=4, delay_s=2, when="count")
    model = either.model(first, says("Five.", when="^go on$"), says("Six.", when="^and on$"))
    with either.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("count\r")
        until_called(either)
        screen.type("gi\x7fo on\rand\x1b[A")
        screen.until("> go on")
        screen.until("Five.")
        screen.until("and")
        screen.type(" on\r")
        screen.until("Six.")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.requirement("H5", "B1")
def test_what_is_typed_before_a_question_does_not_answer_it_and_is_the_next_message(either: Cli) -> None:
    first = says("one two", chunks=2, delay_s=1) | calls("shell", command="kill -0 0; touch made")
    model = either.model(first, says("Made."), says("Yes.", when="^y$"))
    with either.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("make it\r")
        until_called(either)
        screen.type("y\r")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("Made.")
        screen.until("> y")
        screen.until("Yes.")


@pytest.mark.requirement("H5")
def test_half_an_answer_is_no_message_when_somebody_else_decides(either: Cli) -> None:
    model = either.model(calls("shell", command="kill -0 0; touch made"), says("Made."), says("Yes?"))
    with either.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("make it\r")
        screen.until("Approve it?")
        screen.type("ye")
        asked = json.loads(either("approvals", "--json").out)
        assert either("approve", asked["id"]).code == 0
        screen.until("Made.")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    events = [json.loads(line) for line in either("show", "last", "--events", "--json").out.splitlines()]
    assert sum(event["type"] == "MessageReceived" for event in events) == 1


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("key", ["\x1b", "\x04", "\x03"])
def test_a_key_leaves_a_question_open_and_leaving_with_an_open_approval_says_so(cli: Cli, key: str) -> None:
    with cli.emulator(
        "chat", "-m", cli.model(calls("shell", command="kill -0 0; touch made"), says("Made."))
    ) as screen:
        screen.until(">")
        screen.type("make it\r")
        screen.until_shown("Approve it?")
        screen.type(key)
        screen.until_gone("Approve it?")
        screen.until("waits for you")
        screen.type("\x04")
        assert screen.end() == 5
    assert len(cli("approvals", "--json").out.splitlines()) == 1
    assert not (cli.workspace / "made").exists()


@pytest.mark.requirement("H5")
def test_an_approval_that_was_left_open_is_asked_again_by_resume(cli: Cli) -> None:
    with cli.emulator(
        "chat", "-m", cli.model(calls("shell", command="kill -0 0; touch made"), says("It is made."))
    ) as screen:
        screen.until(">")
        screen.type("make it\r")
        screen.until_shown("Approve it?")
        screen.type("\x1b")
        screen.until_gone("Approve it?")
        screen.type("/resume\r")
        screen.until("> /resume")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("It is made.")
    assert (cli.workspace / "made").exists()


@pytest.mark.requirement("B1")
def test_a_chat_in_which_nothing_was_said_leaves_no_session(cli: Cli) -> None:
    model = cli.model(says("never"))
    with cli.emulator("chat", "-m", model) as screen:
        screen.until("a new session")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert cli("sessions", "--json").out == ""
    assert "Go on with" not in screen.screen


@pytest.mark.requirement("L9")
def test_a_dumb_terminal_gets_lines_and_no_codes(cli: Cli) -> None:
    cli.environ["TERM"] = "dumb"
    model = cli.model(calls("list_dir"), says("one two three four", chunks=4, delay_s=1))
    with cli.terminal("run", "look", "-m", model) as screen:
        assert screen.end() == 0
    assert "one two three four" in screen.screen
    assert "\x1b" not in screen.screen


@pytest.mark.requirement("L2-06")
def test_an_interrupt_behind_an_empty_line_stops_nothing_that_comes_later(cli: Cli) -> None:
    model = cli.model(says("one two", chunks=2, delay_s=1))
    with cli.emulator("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("\r\x03")
        screen.until("Press Ctrl-C again to leave.")
        screen.type("count\r")
        screen.until("one two")
        screen.until("done")


def test_a_signal_suspends_a_chat_and_its_terminal_works_meanwhile(cli: Cli) -> None:
    with cli.shell(f"chat -m {cli.model(says('Hello.'))}") as screen:
        screen.until("Ctrl-D leaves.")
        screen.until("2004h")
        (chat,) = [pid for pid in descendants(screen.process.pid) if b"chat" in cmdline(pid)]
        os.kill(chat, signal.SIGTSTP)
        screen.until("Stopped")
        screen.type("echo it is $((40 + 2))\n")
        screen.until("it is 42")
        screen.type("fg\n")
        screen.until("2004h")
        screen.type("hi\r")
        screen.until("done · ")
        screen.type("\x04")
        screen.until("Continue with:")
        screen.type("exit\n")
        assert screen.end() == 0


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("either", ["edited", pytest.param("dumb", marks=pytest.mark.long)], indirect=True)
def test_ctrl_z_suspends_a_chat_and_it_goes_on(either: Cli) -> None:
    with either.shell(f"chat -m {either.model(says('Hello.'))}") as screen:
        screen.until("Ctrl-D leaves.")
        screen.until(">")
        screen.type("\x1a")
        screen.until("Stopped")
        screen.type("fg\r")
        screen.until("-m holdfast chat")  # the shell names what it continues
        if "TERM" not in either.environ:
            screen.until("2004h")  # the prompt is there again
        screen.type("hi\r")
        screen.until("done · ")
        screen.until(">")
        screen.type("\x04")
        screen.until("Continue with:")
        screen.type("exit\r")
        assert screen.end() == 0


@pytest.mark.parametrize("command", ["run", "chat", pytest.param("simple chat", marks=pytest.mark.long)])
def test_a_question_is_there_again_after_its_command_was_suspended(cli: Cli, command: str) -> None:
    """A shell writes over it, and may leave the terminal with modes of its own."""
    if command == "simple chat":
        cli.environ["TERM"] = "dumb"
    model = cli.model(calls("shell", command="./make || touch made"), says("Made."))
    words = "run tell" if command == "run" else "chat"
    with cli.shell(f"{words} -m {model}") as screen:
        if command != "run":
            screen.until("Ctrl-D leaves.")
            screen.until(">")
            screen.type("tell\r")
        screen.until("Approve it?")
        half = "" if command == "simple chat" else "no"  # there, the terminal forgets it
        screen.type(half)
        screen.until(half)
        screen.type("\x1a")
        screen.until("Stopped")
        screen.type("stty sane; fg\r")
        screen.until("Approve it?")
        screen.until(half)
        screen.type("\x7f" * len(half))
        screen.type("y\r")
        screen.until("done · ")
    assert (cli.workspace / "made").exists()


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.requirement("L2-06", "L1")
def test_the_second_ctrl_c_leaves_a_chat_at_once_and_gives_the_terminal_back(cli: Cli) -> None:
    command = "echo begun; sleep 68.5"
    model = cli.model(calls("shell", command=command), says("Went on."))
    with cli.emulator("chat", "-s", "a:b", "-m", model, "--autonomy", "full") as screen:
        screen.until(">")
        screen.type("work\r")
        screen.until_shown("│ begun")
        with closing(sqlite3.connect(cli.home / "holdfast.db")) as database:
            database.execute("BEGIN IMMEDIATE")  # nobody can write: the stop cannot come to its end
            screen.type("\x03")
            screen.type("\x03")
            screen.until("Stopped at once. Continue with `holdfast resume ")
            assert screen.end() == 130
        assert screen.modes & (termios.ICANON | termios.ECHO | termios.ISIG) == (
            termios.ICANON | termios.ECHO | termios.ISIG
        )
    assert cli("resume", "a:b").out == "Went on.\n"


@pytest.mark.requirement("H5")
@pytest.mark.parametrize("typed", ["", "half an answer"])
def test_a_terminal_that_vanishes_at_a_question_of_a_chat_leaves_it_open(cli: Cli, typed: str) -> None:
    with cli.emulator(
        "chat", "-s", "a:b", "-m", cli.model(calls("shell", command="kill -0 0; true"))
    ) as screen:
        screen.until(">")
        screen.type("work\r")
        screen.until_shown("Approve it?")
        screen.type(typed)
        screen.until_shown(f"why: {typed}".rstrip())
        assert screen.hang_up() == 130
    assert len(cli("approvals", "--json").out.splitlines()) == 1


def test_a_chat_gives_the_terminal_back_as_it_was(cli: Cli) -> None:
    with cli.emulator("chat", "-m", cli.model(says("Hello."))) as screen:
        before = screen.modes
        screen.until(">")
        screen.type("hi\r")
        screen.until("done · ")
        assert screen.modes != before
        screen.type("\x04")
        assert screen.end() == 0
        assert screen.modes == before
        assert ">" not in screen.lines[-1]


def test_a_question_that_was_left_open_is_asked_again_by_resume(cli: Cli) -> None:
    with cli.emulator(
        "chat", "-m", cli.model(calls("shell", command="kill -0 0; touch made"), says("Made."))
    ) as screen:
        screen.until(">")
        screen.type("work\r")
        screen.until_shown("Approve it?")
        screen.type("\x1b")
        screen.until("/resume asks you again.")
        screen.until(">")
        screen.type("/resume\r")
        screen.until("Approve it?")
        screen.type("y\r")
        screen.until("Made.")
    assert (cli.workspace / "made").exists()
