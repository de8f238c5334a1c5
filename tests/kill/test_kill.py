"""kill -9 at random moments of `holdfast run` and `resume`: no acknowledged step is lost, no effect happens twice
unseen, and the run ends as one that nobody disturbed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.tool_calls import DONE_BEFORE
from tests.edge.machine import CUSTOMIZED, LONG_LEASE, Line, Machine, at_s, call, lines_of, of_type
from tests.torture.evidence import bodies, journal
from tests.torture.judge import judge
from tests.torture.rounds import Blow, World, gather, kill_round, own_view, work

SESSION = "test:kill"
CUSTOM = {"PYTHONPATH": str(CUSTOMIZED)}
WRITES_AND_EDITS = 194
"""A seed whose session writes files and edits them."""


@pytest.mark.requirement("H1", "L2-05", "A12")
def test_whoever_is_killed_at_random_moments_loses_doubles_and_hides_nothing(tmp_path: Path) -> None:
    """One round of those that `tests/torture` plays by the hundred."""
    killed = gather(kill_round, 1, tmp_path / "round")
    assert killed.world.blows
    assert [*judge(killed.evidence), *own_view(killed)] == []


@pytest.mark.requirement("H1")
def test_killed_between_an_edit_and_its_record_the_edit_is_found_and_not_done_again(tmp_path: Path) -> None:
    """Every life but the last is killed as soon as it has replaced a file."""

    def at_changes(world: World) -> None:
        work(world, repeat(Blow(moment="R1")))

    killed = gather(at_changes, WRITES_AND_EDITS, tmp_path / "round")
    assert [*judge(killed.evidence), *own_view(killed)] == []
    results = [body["result"]["text"] for body in bodies(journal(killed.evidence.home), "ToolCallFinished")]
    assert results.count(DONE_BEFORE) >= killed.world.blows > 1


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
    calls = [{"tool_calls": [call("shell", command=f"echo {number}; sleep 0.1")]} for number in range(20)]
    ours = partial(
        machine.start, is_loaded_anew=True, **LONG_LEASE
    )  # nobody but this test takes note of an end
    processes = [ours(*begin(machine, SESSION, calls), "--stream-json")]
    next_record(processes[0], "ToolCallStarted")
    for _ in range(2):
        processes[-1].kill()
        killed_s = time.time()
        processes.append(ours("resume", SESSION, "--stream-json"))
        took_s.append(at_s(next_record(processes[-1], "Attached")) - killed_s)
        next_record(processes[-1], "ToolCallStarted")
    for process in processes:
        process.kill()
        process.communicate()
    assert min(took_s) < 1 + max(start_s), (took_s, start_s)


@pytest.mark.requirement("H1")
def test_killed_while_it_starts_the_task_was_accepted_whole_or_not_at_all(machine: Machine) -> None:
    """At moments between the first row that it writes and the one after the commit of its first call."""
    assert machine.holdfast(*begin(machine, "test:first")).code == 0, "the home is there"
    seen = machine.folder / "seen"
    slow = begin(machine, SESSION, [{"text": "Not in time.", "delay_s": 60}])
    with machine.start(*slow, "--stream-json", **CUSTOM, SEEN=str(seen)) as process:
        next_record(process, "ModelCallStarted")
        statements = seen.read_text().count("S")
        process.kill()
    accepted = []
    for number in range(1, 5):
        session = f"test:start-{number}"
        moment = {**CUSTOM, "MOMENT": f"S{(statements + 1) * number // 4}", "SIGNAL": "9"}
        with machine.start(*begin(machine, session), "--stream-json", **moment) as process:
            told = list(lines_of(process))
        assert process.returncode == -9
        answer = machine.holdfast("resume", session, "--json")
        accepted.append(answer.code == 0)
        if answer.code == 0:
            assert answer.json["text"] == "All is done."
            assert len(of_type(machine.events(session), "MessageReceived")) == 1
        else:
            assert (answer.code, told) == (2, [])
            assert "error" in answer.json
    assert accepted == sorted(accepted)
    assert accepted[-1], "that commit was on disk"


def begin(machine: Machine, session: str, lines: Sequence[Line] = ()) -> tuple[str, ...]:
    """The command that begins a session."""
    model = machine.script([*lines, {"text": "All is done."}])
    return ("run", "Work.", "-s", session, "-m", model, "--autonomy", "full", "--max-turns", "100")


def start_takes_s(machine: Machine) -> float:
    """How long a command takes that does next to nothing."""
    begun_s = time.monotonic()
    with machine.start("sessions", is_loaded_anew=True) as process:
        process.communicate()
    assert process.returncode == 0
    return time.monotonic() - begun_s


def next_record(process: subprocess.Popen[str], type_: str) -> dict[str, Any]:
    """The next record of this type that a process tells."""
    told: Iterator[dict[str, Any]] = map(json.loads, lines_of(process))
    return next(record for record in told if record.get("type") == type_)


@pytest.mark.requirement("H1", "L2-01")
def test_killed_during_a_side_call_nothing_is_lost_and_it_is_held_once_and_asked_again(
    machine: Machine,
) -> None:
    machine.configure("[reflection]\nevery_turns = 1\nmax = 1\n")
    judged = {"progress": "good", "decision": "continue", "reason": "It works.", "next": "More."}
    answer = {"text": json.dumps(judged), "purpose": "reflection", "delay_s": 3.0}
    turns = [{"tool_calls": [call("write_file", path=f"{turn}.txt", content="x")]} for turn in range(1, 6)]
    model = machine.script([*turns[:4], {**turns[4], "delay_s": 4.0}, {"text": "done"}, answer])
    with machine.start(
        "run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json"
    ) as process:
        for line in lines_of(process):
            if '"ToolCallFinished"' in line and '"t3.c1"' in line:
                process.kill()
    before = machine.events(SESSION)
    assert [body["key"] for body in of_type(before, "ModelCallStarted") if body.get("purpose")] == ["s1"]
    assert not of_type(before, "SideCallEnded")
    ended = machine.holdfast("resume", SESSION, "--json")
    assert (ended.code, ended.json["status"], ended.json["turns"]) == (0, "done", 6)
    events = machine.events(SESSION)
    assert events[: len(before)] == before
    lost = [body for body in of_type(events, "ModelCallAbandoned") if body.get("purpose")]
    assert [body["key"] for body in lost] == ["s1"]
    assert [(body["key"], body["status"]) for body in of_type(events, "SideCallEnded")] == [
        ("s2", "responded")
    ]
    assert len(of_type(events, "Reflected")) == 1
    assert all((machine.workspace / f"{turn}.txt").read_text() == "x" for turn in range(1, 6))
