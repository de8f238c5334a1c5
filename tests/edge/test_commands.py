"""Commands that do not behave: one that sleeps with its children, one that prints fifty megabytes."""

from __future__ import annotations

import os
import sys

import pytest

from holdfast.sandbox import trees
from tests.edge.machine import Machine, call, of_type

MAX_GROWTH_KIB = 32 << 10


@pytest.mark.requirement("L1", "L7", "C8")
def test_a_command_that_sleeps_five_minutes_is_killed_at_its_timeout_with_all_its_children(
    machine: Machine,
) -> None:
    command = "sleep 300 & (setsid nohup sh -c 'trap \"\" TERM; sleep 300' &) ; echo asleep; sleep 300"
    lines = [
        {"tool_calls": [call("shell", command=command, timeout_s=3)]},
        {"text": "on", "when": "killed after 3 s"},
    ]
    answer = machine.holdfast("run", "go", "-m", machine.script(lines), "--autonomy", "full", "--json")
    assert (answer.code, answer.json["text"]) == (0, "on")
    (finished,) = of_type(machine.events("last"), "ToolCallFinished")
    result = finished["result"]
    assert (result["status"], result["failure"]["code"]) == ("timeout", "tool_timeout")
    assert result["duration_ms"] >= 3_000
    assert result["text"].startswith("asleep\n")
    assert trees.members({f"{answer.json['session']}:t1.c1"}) == set()


@pytest.mark.requirement("L7")
def test_a_command_that_prints_fifty_megabytes_is_clipped_in_bounded_memory(machine: Machine) -> None:
    assert peak_kib(machine, 50 << 20) - peak_kib(machine, 1 << 10) < MAX_GROWTH_KIB


def peak_kib(machine: Machine, size: int) -> int:
    """The most memory that a run took whose only command prints so many bytes."""
    command = f"echo first; head -c {size} /dev/zero | tr '\\0' x; echo; echo last"
    lines = [{"tool_calls": [call("shell", command=command)]}, {"text": "seen", "when": "(?s)first.*last"}]
    model = machine.script(lines)
    words = ("run", "go", "-m", model, "--autonomy", "full", "--json")
    with machine.start(*words, is_loaded_anew=True) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    (finished,) = of_type(machine.events("last"), "ToolCallFinished")
    assert finished["result"]["output_chars"] <= size + 100
    assert len(finished["result"]["text"]) < 30_000
    return int(usage.ru_maxrss)


@pytest.mark.requirement("L7", "C15")
def test_a_command_that_fails_with_a_long_trace_is_a_result_like_another(machine: Machine) -> None:
    command = f"{sys.executable} -c \"raise ValueError('x' * 10000)\""
    lines = [{"tool_calls": [call("shell", command=command)]}, {"text": "seen", "when": "exit code 1"}]
    answer = machine.holdfast("run", "go", "-m", machine.script(lines), "--autonomy", "full", "--json")
    assert (answer.code, answer.json["text"]) == (0, "seen")
    assert "x" * 1000 not in answer.out
