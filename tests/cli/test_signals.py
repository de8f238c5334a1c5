"""Signals from the first moment to the last: what they end, with which code, and what is left to go on with."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.keyboard import Keyboard
from tests.cli.processes import SLOW, TIMEOUT_S, Cli, calls, is_running, says
from tests.edge.machine import CUSTOMIZED

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
SIGNALLED = """
import os, sys

class Signalled:
    __module__ = "site"  # finders of others are not kept

    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
        elif (name, {module!r}) == ("typer", "made.by.exec"):  # as a dataclass is made
            exec("os.kill(os.getpid(), {number})")

sys.meta_path.insert(0, Signalled())
"""
"""What sends a command a signal just when a module of its start-up is about to be loaded."""

MODULES = ["holdfast.cli.root", "typer", "made.by.exec", "holdfast.storage.sqlite"]
LOADING = [
    pytest.param(module, number, marks=() if SIGNALS[at % 3] == number or at == 3 else pytest.mark.long)
    for at, module in enumerate(MODULES)
    for number in SIGNALS
]
"""Every day each module with one signal, and the last one, which loads most, with each."""


def sessions(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("sessions", "--json").out.splitlines()]


def types(cli: Cli, session: str) -> list[str]:
    rows = cli("show", session, "--events", "--json").out.splitlines()
    return [json.loads(line)["type"] for line in rows]


def until_heeded(pid: int, number: int) -> None:
    """Wait until a process has seen a signal, or has ended."""
    status = Path(f"/proc/{pid}/status")
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        pending = int(lines["ShdPnd"], 16) | int(lines["SigPnd"], 16)
        if lines["State"].startswith("Z") or not pending >> (number - 1) & 1:
            return
    raise AssertionError(f"signal {number} is still pending")


def customize(cli: Cli, code: str) -> None:
    """Let every command execute this before anything of its own."""
    folder = cli.folder / "customized"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    cli.environ["PYTHONPATH"] = str(folder)


# --- while it starts ----------------------------------------------------------------------------


@pytest.mark.requirement("L2-06")
@pytest.mark.parametrize(("module", "number"), LOADING)
def test_a_signal_while_the_command_loads_ends_it_with_130_and_nothing_was_accepted(
    cli: Cli, module: str, number: int
) -> None:
    customize(cli, SIGNALLED.format(module=module, number=int(number)))
    ended = cli("run", "x", "-m", cli.model(says("never")))
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.endswith("holdfast: interrupted\n")
    cli.environ.clear()
    assert [row for row in sessions(cli) if row["seq"]] == []


@pytest.mark.requirement("L2-06", "H1")
@pytest.mark.parametrize(
    ("loading", "stating"), [(2, 3), pytest.param(5, 12, marks=pytest.mark.long)], ids=["some", "many"]
)
def test_whenever_a_start_is_ended_all_that_was_accepted_can_go_on(
    cli: Cli, loading: int, stating: int
) -> None:
    """At moments while it loads, and at moments between its first statement and the start of its first call."""
    slow, quick = cli.model(says("Done.", delay_s=60), name="slow"), cli.model(says("Done."), name="quick")
    assert cli("run", "x", "-m", quick).code == 0, "the home is there, and all that is loaded is compiled"
    seen = cli.folder / "seen"
    cli.environ |= {"PYTHONPATH": str(CUSTOMIZED), "SEEN": str(seen)}
    with cli.working("run", "x", "-m", slow) as work:
        work.until_type("ModelCallStarted")
        asked = seen.read_text()
        assert work.end(signal.SIGTERM).code == 130
    loads, statements = asked.index("S"), asked.count("S")
    moments = [f".{loads * n // loading}" for n in range(1, loading + 1)]
    moments += [f"S{statements * n // (stating + 1)}" for n in range(1, stating + 1)]
    for moment in moments:
        cli.environ |= {"MOMENT": moment, "SIGNAL": str(int(signal.SIGTERM))}
        if moment.startswith("S"):
            cli.environ.pop("SEEN", "")  # at its statements it is loaded already
        with cli.working("run", "x", "-s", f"start:{moment}", "-m", slow) as work:
            assert work.end().code in (130, -signal.SIGTERM), moment
    cli.environ.clear()
    rows = sessions(cli)
    assert len(rows) >= 2 + stating // 2, "the first two, and some of the others"
    for row in rows:
        if row["runs"]:
            assert row["status"] in ("done", "interrupted")
        if row["seq"]:
            assert cli("resume", row["session"], "-m", quick).code == 0
    assert cli("fsck").code == 0


# --- twice --------------------------------------------------------------------------------------


@pytest.mark.requirement("L2-06", "L1")
def test_the_second_ctrl_c_leaves_at_once_and_the_session_goes_on_from_its_journal(cli: Cli) -> None:
    model = cli.model(calls("shell", command="echo begun; sleep 65.5"), says("Went on."))
    with cli.terminal("run", "x", "-s", "a:b", "-m", model, "--autonomy", "full") as screen:
        screen.until("│ begun")
        with closing(sqlite3.connect(cli.home / "holdfast.db")) as database:
            database.execute("BEGIN IMMEDIATE")  # nobody can write: the stop cannot come to its end
            screen.type("\x03")
            for _ in range(3):  # the status line is drawn again and again
                screen.until("│ begun")
            screen.type("\x03")
            screen.until("Stopped at once. Continue with `holdfast resume ")
            assert screen.end() == 130
    assert "RunStopped" not in types(cli, "a:b")
    resumed = cli("resume", "a:b")
    assert (resumed.code, resumed.out) == (0, "Went on.\n")
    assert types(cli, "a:b").count("ToolCallAbandoned") == 1, "nobody saw the command end"
    assert not is_running("sleep 65.5")


@pytest.mark.requirement("L2-06", "L1")
@pytest.mark.parametrize("first", SIGNALS)
def test_who_is_ended_again_and_again_still_comes_to_an_orderly_end(cli: Cli, first: signal.Signals) -> None:
    """As by a terminal that is closed: its shell, its multiplexer and the kernel each send a signal."""
    model = cli.model(calls("shell", command="echo begun; sleep 67.5"), says("Went on."))
    with cli.terminal("run", "x", "-s", "a:b", "-m", model, "--autonomy", "full") as screen:
        screen.until("│ begun")
        with closing(sqlite3.connect(cli.home / "holdfast.db")) as database:
            database.execute("BEGIN IMMEDIATE")  # nobody can write: the stop cannot come to its end
            for number in (first, signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
                screen.process.send_signal(number)
                until_heeded(screen.process.pid, number)
            database.rollback()
        assert screen.end() == 130
    (row,) = sessions(cli)
    assert (row["status"], types(cli, "a:b")[-1]) == ("interrupted", "RunStopped")
    assert not is_running("sleep 67.5")


# --- after the terminal has gone ----------------------------------------------------------------


@pytest.mark.requirement("L2-06", "H1")
def test_a_vanished_terminal_stops_a_run_cleanly_and_keeps_its_words(cli: Cli) -> None:
    with cli.terminal("run", "count", "-s", "a:b", "-m", cli.model(SLOW)) as screen:
        screen.until("word ")
        assert screen.hang_up() == 130
    (row,) = sessions(cli)
    assert (row["status"], types(cli, "a:b")[-2:]) == ("interrupted", ["ModelCallCut", "RunStopped"])
    end = json.loads(cli("show", "a:b", "--events", "--json").out.splitlines()[-1])["body"]
    assert end["reason"] == "hangup"
    assert re.fullmatch(r"Stopped: the terminal of cli:\S+ was closed\.", end["message"])
    assert cli("resume", "a:b", "-m", cli.model(says("All of it."), name="quick")).out == "All of it.\n"


@pytest.mark.requirement("L2-06", "L1")
def test_a_vanished_terminal_ends_the_tool_too(cli: Cli) -> None:
    model = cli.model(calls("shell", command="echo begun; sleep 66.5"), says("Went on."))
    with cli.terminal("run", "x", "-s", "a:b", "-m", model, "--autonomy", "full") as screen:
        screen.until("│ begun")
        assert screen.hang_up() == 130
    assert not is_running("sleep 66.5")
    assert "ToolCallFinished" in types(cli, "a:b")
    assert cli("resume", "a:b").out == "Went on.\n"


async def test_a_question_at_a_terminal_that_is_gone_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with open(follower) as stdin:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", stdin)
        keyboard = Keyboard()
        os.close(leader)
        assert await keyboard.answer("Approve it? ") is None


@pytest.mark.requirement("H5")
def test_a_terminal_that_vanishes_at_a_question_leaves_it_open(cli: Cli) -> None:
    with cli.terminal(
        "run", "x", "-s", "a:b", "-m", cli.model(calls("shell", command="kill -0 0"))
    ) as screen:
        screen.until("Approve it?")
        assert screen.hang_up() == 130
    assert [row["status"] for row in sessions(cli)] == ["waiting"]
    assert len(cli("approvals", "--json").out.splitlines()) == 1


@pytest.mark.requirement("L2-06")
def test_a_vanished_terminal_ends_a_chat_in_the_middle_of_a_turn(cli: Cli) -> None:
    with cli.terminal("chat", "-s", "a:b", "-m", cli.model(SLOW)) as screen:
        screen.until(">")
        screen.type("count\r")
        screen.until("word ")
        assert screen.hang_up() == 130
    assert [row["status"] for row in sessions(cli)] == ["interrupted"]
    assert cli("resume", "a:b", "-m", cli.model(says("All of it."), name="quick")).out == "All of it.\n"


@pytest.mark.requirement("L2-06")
@pytest.mark.parametrize("line_editor", [True, False], ids=["edited", "dumb"])
@pytest.mark.parametrize("is_terminal_gone", [True, False], ids=["hang-up", "SIGTERM"])
def test_a_chat_that_waits_for_words_ends_with_its_terminal_and_on_sigterm(
    cli: Cli, line_editor: bool, is_terminal_gone: bool
) -> None:
    if not line_editor:
        cli.environ["TERM"] = "dumb"
    with cli.terminal("chat", "-s", "a:b", "-m", cli.model(says("Hello."), says("Again."))) as screen:
        screen.until(">")
        screen.type("hi\r")
        screen.until("Hello.")
        screen.until(">")
        if is_terminal_gone:
            assert screen.hang_up() == 130
        else:
            screen.process.terminate()
            screen.until("holdfast: interrupted")
            assert screen.end() == 130
    assert [row["status"] for row in sessions(cli)] == ["done"]
    assert cli("run", "more", "-s", "a:b").out == "Again.\n"


@pytest.mark.requirement("L2-06", "H1")
def test_who_is_deaf_to_hang_ups_as_under_nohup_works_on(cli: Cli) -> None:
    model = cli.model(says("one two three four five six", chunks=6, delay_s=2))
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "count", "-m", model, "--stream-json"],
        cwd=cli.workspace, env=cli._environ(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert any('"delta"' in line for line in process.stdout)
        process.send_signal(signal.SIGHUP)
        rows = [json.loads(line) for line in process.stdout]
        assert process.wait(TIMEOUT_S) == 0
    assert rows[-1]["status"] == "done"


HALF_A_LINE = """
import os, pty, sys
from holdfast.cli import root
from holdfast.cli.main import main

def run(arguments):
    sys.stdout.write("half a line")
    os.close(ours)
    return 3

ours, theirs = pty.openpty()
os.dup2(theirs, 1)
os.close(theirs)
root.run = run
main()
"""


@pytest.mark.requirement("B1")
def test_what_a_vanished_terminal_does_not_take_changes_no_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HALF_A_LINE]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environ, check=False)
    assert ended.returncode == 3
