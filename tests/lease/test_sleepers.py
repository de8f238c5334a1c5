"""A driver that sleeps past its lease, between the record of an intent and its effect, does nothing when it wakes.

Real processes, really stopped. What happened is judged by what lies in the workspace and by what the model's
server received, never by what the sleeper says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer
from tests.edge.machine import Machine, call, of_type
from tests.lease.sleeping import (
    LOST_MS,
    NEXT,
    PATIENCE_S,
    SESSION,
    SHORT_LEASE,
    asleep,
    content,
    sleep_past_the_lease,
    until,
    wake,
)

LOST = {"LEASE_MS": str(LOST_MS)}
WARNING = r"it may still be alive.* (write_file|shell) \(t1\.c1\)"
"""The words for the model about a driver that sleeps."""


@pytest.mark.requirement("C11", "H1", "H5")
@pytest.mark.parametrize("at", ["commit:ToolCallStarted", "written"])
def test_a_file_is_not_replaced_by_who_slept_while_another_went_on(machine: Machine, at: str) -> None:
    model = machine.script([
        {"tool_calls": [call("write_file", path="a.txt", content="first\n")]},
        {"when": WARNING, "tool_calls": [call("edit_file", path="a.txt", old="first", new="second")]},
        {"text": "Done."},
    ])  # fmt: skip
    with asleep(machine, at, "-m", model, **LOST) as sleeper:
        assert machine.holdfast("resume", SESSION, **NEXT).code == 0
        assert (machine.workspace / "a.txt").read_text() == "second\n"
        before = machine.events(SESSION)
        assert wake(sleeper) == 0, "it follows to the end of the session"
    assert [path.name for path in machine.workspace.iterdir()] == ["a.txt"]
    assert (machine.workspace / "a.txt").read_text() == "second\n"
    assert machine.events(SESSION) == before
    assert machine.holdfast("replay", SESSION).code == 0


@pytest.mark.requirement("C11", "H1", "H5")
@pytest.mark.parametrize("at", ["rendered", "judged", "commit:ToolCallStarted", "written"])
def test_an_edit_is_made_once_wherever_its_first_driver_slept(machine: Machine, at: str) -> None:
    (machine.workspace / "a.txt").write_text("one\n")
    model = machine.script([
        {"tool_calls": [call("edit_file", path="a.txt", old="one\n", new="one\none\n")]},
        {"text": "Done."},
    ])  # fmt: skip
    with asleep(machine, at, "-m", model, **LOST) as sleeper:
        assert machine.holdfast("resume", SESSION, **NEXT).code == 0
        before = machine.events(SESSION)
        assert wake(sleeper) == 0
    assert (machine.workspace / "a.txt").read_text() == "one\none\n"
    events = machine.events(SESSION)
    assert events == before
    assert [body["result"]["status"] for body in of_type(events, "ToolCallFinished")] == ["ok"]
    begun = at.startswith("commit") or at == "written"
    assert ["edit_file (t1.c1)" in body["text"] for body in of_type(events, "NoteAdded")] == [True] * begun


@pytest.mark.requirement("C11", "H1", "H5")
@pytest.mark.parametrize("at", ["commit:ToolCallStarted", "starting"])
def test_no_command_is_run_by_who_slept_while_its_model_was_told_that_its_outcome_is_unknown(
    machine: Machine, at: str
) -> None:
    model = machine.script([
        {"tool_calls": [call("shell", command="echo done >> effects")]},
        {"when": WARNING, "text": "I look."},
    ])  # fmt: skip
    with asleep(machine, at, "-m", model, **LOST) as sleeper:
        answer = machine.holdfast("resume", SESSION, "--json", **NEXT)
        assert (answer.code, answer.json["text"]) == (0, "I look.")
        (told,) = of_type(machine.events(SESSION), "ToolCallAbandoned")
        assert "may have taken effect in full, in part or not at all" in told["text"]
        assert wake(sleeper) == 0
    assert list(machine.workspace.iterdir()) == []


@pytest.mark.requirement("C11", "H1", "H5")
@pytest.mark.parametrize("at", ["commit:ModelCallStarted", "connected"])
async def test_no_request_is_sent_by_who_slept_while_another_sent_its_own(machine: Machine, at: str) -> None:
    async with ModelServer([Reply(text="Done.", repeat=True)]) as server:
        environ = {"OPENAI_BASE_URL": server.openai_url}
        with asleep(machine, at, "-m", "openai:gpt-test", **environ, **LOST) as sleeper:
            resumed = await asyncio.to_thread(machine.holdfast, "resume", SESSION, **environ, **NEXT)
            assert (resumed.code, len(server.requests)) == (0, 1)
            assert await asyncio.to_thread(wake, sleeper) == 0
        assert len(server.requests) == 1
    events = machine.events(SESSION)
    sent = [body["key"] for body in of_type(events, "ModelCallStarted")]
    abandoned = [body["key"] for body in of_type(events, "ModelCallAbandoned")]
    assert (sent, abandoned) == (["m1", "m2"], ["m1"])


@pytest.mark.requirement("C11", "H5")
def test_who_slept_while_nobody_came_renews_its_lease_and_goes_on(machine: Machine) -> None:
    model = machine.script([
        {"tool_calls": [call("write_file", path="a.txt", content="first\n")]},
        {"tool_calls": [call("shell", command="echo done >> effects")]},
        {"text": "Done."},
    ])  # fmt: skip
    with asleep(machine, "commit:ToolCallStarted", "-m", model) as sleeper:
        sleep_past_the_lease()
        assert wake(sleeper) == 0
    assert (machine.workspace / "a.txt").read_text() == "first\n"
    assert (machine.workspace / "effects").read_text() == "done\n"
    events = machine.events(SESSION)
    assert [body["result"]["status"] for body in of_type(events, "ToolCallFinished")] == ["ok", "ok"]
    assert len(of_type(events, "Attached")) == 1, "it had the session all the time"


@contextmanager
def frozen(machine: Machine) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A driver that is stopped in the middle of a command, and that command, which goes on."""
    command = "echo $$ > pid; while :; do sleep 0.1; done"
    model = machine.script([{"tool_calls": [call("shell", command=command)]}, {"text": "Done."}])
    arguments = ("run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json")
    with machine.start(*arguments, **SHORT_LEASE | LOST) as process:
        try:
            pid = int(until(lambda: content(machine.workspace / "pid")))
            process.send_signal(signal.SIGSTOP)
            yield process, Path(f"/proc/{pid}")
        finally:
            process.kill()


@pytest.mark.requirement("C11", "H5")
@pytest.mark.parametrize("at", ["written", "starting"])
def test_who_slept_right_before_an_effect_while_nobody_came_goes_on_with_its_session(
    machine: Machine, at: str
) -> None:
    """It cannot know that nobody came, so the effect is left; then it takes its own session over."""
    model = machine.script([
        {"tool_calls": [call("write_file", path="a.txt", content="first\n")]},
        {"tool_calls": [call("shell", command="echo done >> effects")]},
        {"text": "Done.", "repeat": True},
    ])  # fmt: skip
    with asleep(machine, at, "-m", model) as sleeper:
        sleep_past_the_lease()
        assert wake(sleeper) == 0, machine.said.read_text()
    assert (machine.workspace / "a.txt").read_text() == "first\n"
    events = machine.events(SESSION)
    told = [body["call_id"] for body in of_type(events, "ToolCallAbandoned")]
    assert (content(machine.workspace / "effects"), told) in (("done\n", []), ("", ["t2.c1"]))
    assert machine.holdfast("replay", SESSION).code == 0


@pytest.mark.requirement("C11", "H5")
async def test_who_slept_before_a_request_while_nobody_came_sends_it_when_it_wakes(machine: Machine) -> None:
    async with ModelServer([Reply(text="Done.", repeat=True)]) as server:
        environ = {"OPENAI_BASE_URL": server.openai_url}
        with asleep(machine, "connected", "-m", "openai:gpt-test", **environ) as sleeper:
            await asyncio.to_thread(sleep_past_the_lease)
            assert await asyncio.to_thread(wake, sleeper) == 0, machine.said.read_text()
        assert len(server.requests) == 1


@pytest.mark.requirement("C11", "H5")
def test_a_command_whose_keeper_slept_past_the_lease_is_not_run_and_its_model_is_told(
    machine: Machine,
) -> None:
    """The driver is awake and renews its lease meanwhile; the keeper is its parent's parent."""
    freeze = (
        "read -r pid name state keeper rest < /proc/$PPID/stat; echo $keeper > keeper; kill -STOP $keeper"
    )
    model = machine.script([
        {"tool_calls": [call("shell", command=freeze)]},
        {"tool_calls": [call("shell", command="echo done >> effects")]},
        {"when": "may have taken effect", "text": "I look."},
    ])  # fmt: skip
    arguments = ("run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--stream-json")
    with machine.start(*arguments, **SHORT_LEASE) as driver:
        try:
            keeper = int(until(lambda: content(machine.workspace / "keeper")))
            until(lambda: "t2.c1" * (len(of_type(machine.events(SESSION), "ToolCallStarted")) == 2))
            sleep_past_the_lease()
            sleep_past_the_lease()
            os.kill(keeper, signal.SIGCONT)
            driver.communicate(timeout=PATIENCE_S)
            assert driver.returncode == 0, machine.said.read_text()
        finally:
            driver.kill()
    assert not (machine.workspace / "effects").exists()
    assert [body["call_id"] for body in of_type(machine.events(SESSION), "ToolCallAbandoned")] == ["t2.c1"]


@pytest.mark.requirement("B4", "L1", "H5")
def test_a_stop_while_its_driver_is_frozen_ends_the_command_before_it_says_so(machine: Machine) -> None:
    with frozen(machine) as (driver, command):
        stopped = machine.holdfast("stop", SESSION, **NEXT)
        assert (stopped.code, "interrupted" in stopped.out) == (0, True)
        assert not command.exists()
        assert wake(driver) == 130


@pytest.mark.requirement("H1", "L1", "H5")
def test_who_takes_over_from_a_frozen_driver_ends_its_command_before_it_goes_on(machine: Machine) -> None:
    with frozen(machine) as (driver, command):
        resumed = machine.holdfast("resume", SESSION, **NEXT)
        assert (resumed.code, resumed.out) == (0, "Done.\n")
        assert not command.exists()
        assert wake(driver) == 0, "it follows to the end of the session"
