"""`holdfast chat`: message by message, at a terminal and through a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Cli, calls, says


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.mark.requirement("B1")
def test_in_a_pipe_every_line_is_a_message_of_one_session(cli: Cli) -> None:
    model = cli.model(says("First.", when="one"), says("Second.", when="two"))
    ended = cli("chat", "-m", model, stdin="one\n\ntwo\n")
    assert (ended.code, ended.out) == (0, "First.\nSecond.\n")
    assert len(cli("sessions", "--json").out.splitlines()) == 1


@pytest.mark.requirement("L2-06")
def test_escape_stops_the_turn_keeps_its_words_and_the_session(cli: Cli) -> None:
    model = cli.model(says("one two three four", chunks=4, delay_s=4), says("never"))
    with cli.terminal("chat", "-m", model, "-s", "cli:talk") as screen:
        screen.until("Ctrl-D leaves")
        screen.until(">")
        screen.type("count\n")
        screen.until("one ")
        screen.type("\x1b")
        screen.until("interrupted")
        screen.until(">")
        screen.type("and now?\n")
        screen.until("one two three four")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert "holdfast chat -s cli:talk" in screen.screen


@pytest.mark.requirement("H5")
def test_approvals_are_asked_inline(cli: Cli) -> None:
    model = cli.model(calls("shell", command="touch made"), says("It is made."))
    with cli.terminal("chat", "-m", model) as screen:
        screen.until(">")
        screen.type("make it\n")
        screen.until("Allow it?")
        screen.type("y\n")
        screen.until("It is made.")
        screen.until(">")
        screen.type("\x04")
        assert screen.end() == 0
    assert (cli.workspace / "made").exists()
