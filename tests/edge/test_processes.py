"""Several processes on one home: each session has one driver, and all other processes follow it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.edge.machine import LONG_LEASE, PATIENCE_S, Machine, call, lines_of, of_type


def shell_lines(count: int, delay_s: float) -> list[dict[str, Any]]:
    """A model that has as many commands run, each of which leaves a line."""
    commands = [f"echo {number} >> effects.log" for number in range(count)]
    return [{"tool_calls": [call("shell", command=command)], "delay_s": delay_s} for command in commands]


def waiting_lines(count: int) -> list[dict[str, Any]]:
    """As `shell_lines`; the first command is not done before there is a file `go`."""
    command = "until [ -e go ]; do sleep 0.05; done; echo 0 >> effects.log"
    return [{"tool_calls": [call("shell", command=command)]}, *shell_lines(count, 0)[1:]]


def until(process: subprocess.Popen[str], *words: str) -> dict[str, Any]:
    """The first record told by a process whose line holds all these words."""
    line = next(line for line in lines_of(process) if all(word in line for word in words))
    found: dict[str, Any] = json.loads(line)
    return found


def wait_for(is_so: Callable[[], bool]) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a process and the rest of what it tells."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, [json.loads(line) for line in out.splitlines()]


@pytest.mark.requirement("C11", "L11")
def test_two_processes_work_on_different_sessions_of_one_home(machine: Machine) -> None:
    model = machine.script([*shell_lines(6, 0.02), {"text": "done"}])
    command = ("-m", model, "--autonomy", "full", "--json")
    both = [machine.start("run", "go", "-s", f"t:{number}", *command) for number in range(2)]
    assert [end(process)[0] for process in both] == [0, 0]
    for number in range(2):
        events = machine.events(f"t:{number}")
        assert len(of_type(events, "ToolCallFinished")) == 6
    assert Counter((machine.workspace / "effects.log").read_text().split()) == dict.fromkeys("012345", 2)
    assert machine.holdfast("fsck").code == 0


@pytest.mark.requirement("C11")
def test_a_second_process_on_the_same_session_hands_its_words_over_and_follows(machine: Machine) -> None:
    model = machine.script([*waiting_lines(6), {"text": "done", "repeat": True}])
    command = ("-s", "t:same", "-m", model, "--autonomy", "full")
    first = machine.start("run", "first words", *command, "--stream-json")
    until(first, '"ToolCallStarted"')
    second = machine.start("run", "second words", *command, "--json")
    until(first, '"MessageReceived"', "second words")
    (machine.workspace / "go").touch()
    code, (told,) = end(second)
    assert (code, told["status"], told["text"]) == (0, "done", "done")
    assert end(first)[0] == 0
    events = machine.events("t:same")
    assert [body["text"] for body in of_type(events, "MessageReceived")] == ["first words", "second words"]
    assert len(of_type(events, "Attached")) == 1
    assert len(of_type(events, "RunStopped")) == 1, "the words joined the open run"
    assert (machine.workspace / "effects.log").read_text().split() == list("012345")


@pytest.mark.requirement("C11", "H1")
def test_when_the_driver_is_killed_the_follower_takes_over_at_once(machine: Machine) -> None:
    model = machine.script([*waiting_lines(8), {"text": "done", "repeat": True}])
    command = ("-s", "t:over", "-m", model, "--autonomy", "full", "--stream-json")
    first = machine.start("run", "go", *command, **LONG_LEASE)
    until(first, '"ToolCallStarted"')
    second = machine.start("resume", "t:over", "--stream-json", **LONG_LEASE)
    doors = machine.home / "run"
    wait_for(lambda: any(doors.glob(f"{second.pid}-*.sock")))
    assert machine.holdfast("sessions").code == 0, "as long as a command takes, and the second one follows"
    first.kill()
    until(second, '"Attached"', '"epoch":2')
    (machine.workspace / "go").touch()
    assert end(second)[0] == 0
    first.communicate()
    assert Counter((machine.workspace / "effects.log").read_text().split()) <= Counter("01234567")
    assert machine.holdfast("fsck").code == 0


@pytest.mark.long
@pytest.mark.requirement("C11", "H1")
def test_a_driver_that_slept_past_its_lease_writes_nothing_starts_nothing_and_ends_as_the_session(
    machine: Machine,
) -> None:
    model = machine.script([*shell_lines(12, 1.0), {"text": "done", "repeat": True}])
    sleeper = machine.start("run", "go", "-s", "t:nap", "-m", model, "--autonomy", "full", "--stream-json")
    until(sleeper, '"ToolCallFinished"')
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        taker = machine.start("resume", "t:nap", "--stream-json")
        attached = until(taker, '"Attached"', '"epoch":2')
        until(taker, '"ToolCallStarted"')
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    taken, slept = end(taker), end(sleeper)
    assert (taken[0], slept[0]) == (0, 0)
    events = machine.events("t:nap")
    assert {event["epoch"] for event in events if event["seq"] >= attached["seq"]} == {2}
    assert len(of_type(events, "Attached")) == 2
    assert (machine.workspace / "effects.log").read_text().split() == [str(number) for number in range(12)]
    told = [record["seq"] for record in slept[1] if "seq" in record]
    assert told[-1] == len(events), "it followed to the end"
    assert machine.holdfast("fsck").code == 0


@pytest.mark.requirement("H1", "L7")
def test_a_run_whose_database_is_replaced_stops_and_is_exit_9(machine: Machine) -> None:
    model = machine.script([*shell_lines(1, 0), *shell_lines(1, 60), {"text": "done"}])
    process = machine.start("run", "go", "-m", model, "--autonomy", "full", "--stream-json")
    until(process, '"ToolCallFinished"')
    database = machine.home / "holdfast.db"
    shutil.copyfile(database, database.with_name("copy"))
    database.with_name("copy").replace(database)
    assert end(process)[0] == 9
    assert "was replaced" in machine.said.read_text()
