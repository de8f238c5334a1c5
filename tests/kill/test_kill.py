"""kill -9 at random moments of `holdfast run` and `resume`: no acknowledged step is lost, no effect happens twice
unseen, and the run ends as one that nobody disturbed."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.tool_calls import DONE_BEFORE
from holdfast.runtime.holder import LEASE_MS
from tests.edge.machine import Machine, at_s, call, of_type
from tests.kill.lives import LEDGER, SESSION, Life, Story, begin, check, live, lives

EVERYDAY, LONG = Story(rounds=5), Story(rounds=12)
KILLS_OF_EVERYDAY, KILLS_OF_LONG = 4, 10


@pytest.mark.requirement("H1")
def test_a_run_that_nobody_kills_ends_as_the_story_tells(machine: Machine) -> None:
    check(machine, EVERYDAY, [live(machine, *begin(machine, EVERYDAY))])


@pytest.mark.requirement("H1", "L2-05", "A12")
@pytest.mark.parametrize("seed", range(5))
def test_a_run_killed_at_random_moments_ends_as_if_nobody_had(machine: Machine, seed: int) -> None:
    lived = lives(machine, EVERYDAY, KILLS_OF_EVERYDAY, seed)
    assert [life.is_killed for life in lived] == [True] * KILLS_OF_EVERYDAY + [False], (
        machine.said.read_text()
    )
    check(machine, EVERYDAY, lived)


@pytest.mark.long
@pytest.mark.requirement("H1", "L2-05", "A12")
@pytest.mark.parametrize("seed", range(100, 121))
def test_a_long_run_killed_ten_times_ends_as_if_nobody_had(machine: Machine, seed: int) -> None:
    lived = lives(machine, LONG, KILLS_OF_LONG, seed)
    assert [life.is_killed for life in lived] == [True] * KILLS_OF_LONG + [False], machine.said.read_text()
    check(machine, LONG, lived)


@pytest.mark.requirement("H1")
def test_killed_between_an_edit_and_its_record_the_edit_is_found_and_not_done_again(machine: Machine) -> None:
    commands = [begin(machine, EVERYDAY), *[("resume", SESSION)] * EVERYDAY.rounds]
    lived = [
        *(killed_at_a_change(machine, *command) for command in commands),
        live(machine, "resume", SESSION),
    ]
    check(machine, EVERYDAY, lived)
    results = [body["result"]["text"] for body in of_type(machine.events(SESSION), "ToolCallFinished")]
    assert DONE_BEFORE in results


@pytest.mark.requirement("L2-05", "H1")
def test_killed_at_turn_10_of_20_it_completes_with_every_line_written_once(machine: Machine) -> None:
    turns = range(1, 20)
    writes = [{"tool_calls": [call("shell", command=f"echo {turn} >> lines; sleep 0.05")]} for turn in turns]
    model = machine.script([*writes, {"text": "done"}])
    with machine.start(
        "run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"ToolCallFinished"' in line and '"t10.c1"' in line:
                process.kill()
    answer = machine.holdfast("resume", SESSION, "--json")
    assert (answer.code, answer.json["status"], answer.json["turns"]) == (0, "done", 20)
    events = machine.events(SESSION)
    lines = (machine.workspace / "lines").read_text().split()
    cut = {int(body["call_id"][1:].partition(".")[0]) for body in of_type(events, "ToolCallAbandoned")}
    assert cut <= {11, 12}, "what was at work when the kill came"
    assert [int(line) for line in lines if int(line) not in cut] == [
        turn for turn in turns if turn not in cut
    ]
    assert len(lines) == len(set(lines))


@pytest.mark.requirement("H1")
def test_resume_drives_within_a_second_and_waits_for_no_lease(machine: Machine) -> None:
    """Also while the parent of the killed process has not yet taken note of its end."""
    begun_s = time.monotonic()
    assert machine.holdfast("sessions").code == 0
    start_s = time.monotonic() - begun_s
    took_s: list[float] = []
    processes = [machine.start(*begin(machine, EVERYDAY), "--stream-json")]
    next_record(processes[0], "ToolCallStarted")
    for _ in range(4):
        processes[-1].kill()
        killed_s = time.time()
        processes.append(machine.start("resume", SESSION, "--stream-json"))
        took_s.append(at_s(next_record(processes[-1], "Attached")) - killed_s)
        next_record(processes[-1], "ToolCallStarted")
    for process in processes:
        process.kill()
        process.communicate()
    assert statistics.median(took_s) < 1 + start_s, took_s
    assert max(took_s) < LEASE_MS / 1000 / 2, took_s


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("hundredths", [25, 40, 55])
def test_killed_while_it_starts_the_task_was_accepted_whole_or_not_at_all(
    machine: Machine, hundredths: int
) -> None:
    life = live(machine, *begin(machine, Story(0)), kill_after_s=hundredths / 100, since_start=True)
    answer = machine.holdfast("resume", SESSION, "--json")
    if answer.code == 0:
        assert answer.json["text"] == "All is done."
        assert len(of_type(machine.events(SESSION), "MessageReceived")) == 1
    else:
        assert (answer.code, life.records) == (2, [])
        assert "error" in answer.json


def killed_at_a_change(machine: Machine, *command: str) -> Life:
    """Kill a command as soon as the ledger is another file than before."""
    ledger = machine.workspace / LEDGER

    def stamp() -> int:
        return ledger.stat().st_ino if ledger.exists() else 0

    before = stamp()
    with machine.start(*command, "--stream-json") as process:
        life = Life(process.pid, time.time())
        while stamp() == before and process.poll() is None:
            time.sleep(0.0002)
        process.kill()
        assert process.stdout is not None
        told = [line for line in process.stdout if line.endswith("\n") and '"seq"' in line]
        life.records = [json.loads(line) for line in told]
        life.code = process.wait()
    return life


def next_record(process: subprocess.Popen[str], type_: str) -> dict[str, Any]:
    """The next record of this type that a process tells."""
    assert process.stdout is not None
    told: Iterator[dict[str, Any]] = map(json.loads, process.stdout)
    return next(record for record in told if record.get("type") == type_)
