"""kill -9 at random moments of `holdfast run` and `resume`: no acknowledged step is lost, no effect happens twice
unseen, and the run ends as one that nobody disturbed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.tool_calls import DONE_BEFORE
from tests.edge.machine import CUSTOMIZED, LONG_LEASE, Machine, at_s, call, lines_of, of_type
from tests.kill.lives import SESSION, Kill, Story, begin, check, live, lives

EVERYDAY, LONG = Story(rounds=5), Story(rounds=12)
KILLS_OF_EVERYDAY, KILLS_OF_LONG = 4, 10


@pytest.mark.requirement("H1")
def test_a_run_that_nobody_kills_ends_as_the_story_tells(machine: Machine) -> None:
    check(machine, EVERYDAY, [live(machine, *begin(machine, EVERYDAY))])


@pytest.mark.requirement("H1", "L2-05", "A12")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
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
    """Every life but the last is killed as soon as it has replaced a file."""
    at_a_change, story = Kill(10_000, moment="R1"), Story(rounds=2)
    lived = [live(machine, *begin(machine, story), kill=at_a_change)]
    while lived[-1].is_killed:
        lived.append(live(machine, "resume", SESSION, kill=at_a_change))
    check(machine, story, lived)
    results = [body["result"]["text"] for body in of_type(machine.events(SESSION), "ToolCallFinished")]
    assert results.count(DONE_BEFORE) == len(lived) - 1 == 2 * story.rounds + 1


@pytest.mark.requirement("L2-05", "H1")
def test_killed_at_turn_10_of_20_it_completes_with_every_line_written_once(machine: Machine) -> None:
    turns = range(1, 20)
    writes = [{"tool_calls": [call("shell", command=f"echo {turn} >> lines; sleep 0.05")]} for turn in turns]
    model = machine.script([*writes, {"text": "done"}])
    with machine.start(
        "run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json"
    ) as process:
        for line in lines_of(process):
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
    """Also while the parent of the killed process has not yet taken note of its end. The lease lasts longer than
    anything here is waited for; what else runs on this machine slows a start like any other command."""
    start_s, took_s = [start_takes_s(machine) for _ in range(3)], []
    processes = [machine.start(*begin(machine, EVERYDAY), "--stream-json", **LONG_LEASE)]
    next_record(processes[0], "ToolCallStarted")
    for _ in range(4):
        processes[-1].kill()
        killed_s = time.time()
        processes.append(machine.start("resume", SESSION, "--stream-json", **LONG_LEASE))
        took_s.append(at_s(next_record(processes[-1], "Attached")) - killed_s)
        next_record(processes[-1], "ToolCallStarted")
    for process in processes:
        process.kill()
        process.communicate()
    assert min(took_s) < 1 + max(start_s), (took_s, start_s)


@pytest.mark.requirement("H1")
def test_killed_while_it_starts_the_task_was_accepted_whole_or_not_at_all(machine: Machine) -> None:
    """At moments between its first statement to the database and a few after the commit of its first call."""
    seen = machine.folder / "seen"
    watched = {"PYTHONPATH": str(CUSTOMIZED), "SEEN": str(seen)}
    with machine.start(*begin(machine, Story(0)), "--stream-json", **watched) as process:
        next_record(process, "ModelCallStarted")
        statements = seen.read_text().count("S")
        process.kill()
    accepted = []
    for number in range(1, 5):
        session = f"test:start-{number}"
        moment = Kill(1_000, moment=f"S{(statements + 4) * number // 4}")
        life = live(machine, *begin(machine, Story(0), session), kill=moment)
        assert life.is_killed
        answer = machine.holdfast("resume", session, "--json")
        accepted.append(answer.code == 0)
        if answer.code == 0:
            assert answer.json["text"] == "All is done."
            assert len(of_type(machine.events(session), "MessageReceived")) == 1
        else:
            assert (answer.code, life.records) == (2, [])
            assert "error" in answer.json
    assert accepted == sorted(accepted)
    assert accepted[-1], "that commit was on disk"


def start_takes_s(machine: Machine) -> float:
    """How long a command takes that does next to nothing."""
    begun_s = time.monotonic()
    assert machine.holdfast("sessions").code == 0
    return time.monotonic() - begun_s


def next_record(process: subprocess.Popen[str], type_: str) -> dict[str, Any]:
    """The next record of this type that a process tells."""
    told: Iterator[dict[str, Any]] = map(json.loads, lines_of(process))
    return next(record for record in told if record.get("type") == type_)
