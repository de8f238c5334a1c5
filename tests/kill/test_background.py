"""kill -9 while processes run in the background: they end, and the next process tells the model."""

from __future__ import annotations

import time

import pytest

from holdfast.sandbox import trees
from tests.edge.machine import Machine, call, lines_of, of_type

SESSION = "test:background"


@pytest.mark.requirement("H1", "C8", "L2-05")
def test_after_kill_9_no_process_is_left_and_the_model_knows(machine: Machine) -> None:
    serve = call("shell", command="env -i setsid sleep 1000 & exec sleep 1000", background=True)
    model = machine.script(
        [
            {"tool_calls": [serve]},
            {"tool_calls": [call("shell", command="sleep 1000")]},
            {"tool_calls": [call("process_output", id="t1.c1")]},
            {"text": "done"},
        ]
    )
    with machine.start(
        "run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json"
    ) as process:
        for line in lines_of(process):
            if '"ToolCallStarted"' in line and '"t2.c1"' in line:
                process.kill()
    session = machine.holdfast("sessions", "--json").rows[0]["session"]
    until = time.monotonic() + 20
    while trees.members([f"{session}:t1.c1", f"{session}:t2.c1"]):
        assert time.monotonic() < until, "what a killed process started lives on"
        time.sleep(0.05)
    answer = machine.holdfast("resume", SESSION, "--json")
    assert (answer.code, answer.json["status"]) == (0, "done")
    events = machine.events(SESSION)
    (note,) = [body for body in of_type(events, "NoteAdded") if body["about"] == "processes"]
    assert "t1.c1 (`env -i setsid sleep 1000 & exec sleep 1000`)" in note["text"]
    read = of_type(events, "ToolCallFinished")[-1]["result"]
    assert read["status"] == "error"
    assert "Nothing was started in the background." in read["text"]
