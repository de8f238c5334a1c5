"""A task that was accepted and whose process was killed before it read it: it lies in the inbox, and nothing of it is
in the journal. Whatever is asked next of its session knows it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from holdfast.protocol.ids import session_id
from holdfast.storage.sqlite import SqliteStore
from tests.edge.machine import Machine, call, of_type
from tests.lease.sleeping import SESSION, asleep, stopped

WORKS = [{"tool_calls": [call("shell", command="echo done >> effects")]}, {"text": "Done.", "repeat": True}]
"""It may only be done where nobody has to be asked."""


def killed(machine: Machine, model: str) -> None:
    """A `run go` that was accepted with full autonomy, and killed before its first record."""
    with asleep(machine, "accepted", "-m", model) as process:
        process.kill()
    assert machine.events(SESSION) == []


def said(machine: Machine) -> list[str]:
    """The tasks that the journal holds."""
    return [body["text"] for body in of_type(machine.events(SESSION), "MessageReceived")]


@pytest.mark.requirement("H1", "L2-05")
def test_resume_goes_on_from_the_inbox_with_the_settings_that_wait_there(machine: Machine) -> None:
    killed(machine, machine.script(WORKS))
    answer = machine.holdfast("resume", SESSION, "--json")
    assert (answer.code, answer.json["text"]) == (0, "Done."), answer.err
    assert (machine.workspace / "effects").read_text() == "done\n"
    assert said(machine) == ["go"]


@pytest.mark.requirement("H1", "L9")
def test_a_flag_of_resume_changes_what_it_names_and_keeps_the_other_settings_that_wait(
    machine: Machine,
) -> None:
    killed(machine, machine.script([{"text": "Never said."}], "first"))
    other = machine.script(WORKS, "other")
    answer = machine.holdfast("resume", SESSION, "-m", other, "--json")
    assert (answer.code, answer.json["text"]) == (0, "Done."), answer.err
    assert (machine.workspace / "effects").read_text() == "done\n"
    sent = of_type(machine.events(SESSION), "ModelCallStarted")
    assert {body["model"] for body in sent} == {other}


@pytest.mark.requirement("H1", "H5")
def test_the_same_run_again_gives_its_task_once(machine: Machine) -> None:
    model = machine.script(WORKS)
    killed(machine, model)
    answer = machine.holdfast("run", "go", "-s", SESSION, "-m", model, "--autonomy", "full", "--json")
    assert (answer.code, answer.json["text"]) == (0, "Done."), answer.err
    assert said(machine) == ["go"]
    assert machine.holdfast("run", "go", "-s", SESSION).code == 0
    assert said(machine) == ["go", "go"], "words that were read may be said again"


@pytest.mark.requirement("H1")
def test_another_run_joins_the_task_that_waits(machine: Machine) -> None:
    model = machine.script(WORKS)
    killed(machine, model)
    assert machine.holdfast("run", "and that", "-s", SESSION).code == 0
    assert said(machine) == ["go", "and that"]


@pytest.mark.requirement("B4", "L2-06")
def test_a_stop_closes_the_task_that_waits_and_the_next_run_does_not_get_it(machine: Machine) -> None:
    killed(machine, machine.script(WORKS))
    stopped = machine.holdfast("stop", SESSION)
    assert (stopped.code, "interrupted" in stopped.out) == (0, True), stopped.out
    ended = of_type(machine.events(SESSION), "RunStopped")
    assert [body["status"] for body in ended] == ["interrupted"]
    answer = machine.holdfast("run", "another task", "-s", SESSION, "--json")
    assert (answer.code, answer.json["status"]) == (0, "done")
    for number in range(1, answer.json["model_calls"] + 1):
        request = machine.holdfast("show", SESSION, "--request", str(number)).out
        assert ' another task"' in request
        assert ' go"' not in request
    assert "before it began; the next task is without it" in machine.holdfast("show", SESSION).out
    assert machine.holdfast("fsck").code == 0
    assert machine.holdfast("replay", SESSION).code == 0


@pytest.mark.requirement("L9")
def test_show_tells_of_the_task_that_waits_and_how_to_begin_it(machine: Machine) -> None:
    killed(machine, machine.script(WORKS))
    told = machine.holdfast("show", SESSION)
    assert "1 command that no process has read yet" in told.out
    overview = machine.holdfast("show", SESSION, "--json").json
    assert (overview["waiting"], overview["next"]) == (1, f"holdfast resume {overview['session']}")


@pytest.mark.requirement("B4", "L2-06")
def test_a_task_that_was_stopped_before_it_began_is_given_when_the_session_is_resumed(
    machine: Machine,
) -> None:
    killed(machine, machine.script(WORKS))
    assert machine.holdfast("stop", SESSION).code == 0
    assert machine.holdfast("resume", SESSION).code == 0
    assert ' go"' in machine.holdfast("show", SESSION, "--request", "1").out


@pytest.mark.requirement("B4")
def test_a_stop_that_was_killed_before_it_was_read_is_handled_by_the_next_one(machine: Machine) -> None:
    killed(machine, machine.script(WORKS))
    with stopped(machine, "accepted", "stop", SESSION) as process:
        process.kill()
    assert machine.holdfast("show", SESSION, "--json").json["waiting"] == 2
    again = machine.holdfast("stop", SESSION)
    assert (again.code, "has no open run: it is interrupted" in again.out) == (0, True), again.out
    assert machine.holdfast("show", SESSION, "--json").json["waiting"] == 0
    assert [body["status"] for body in of_type(machine.events(SESSION), "RunStopped")] == ["interrupted"]


@pytest.mark.requirement("B4")
def test_a_task_that_waits_stays_during_a_pause_and_resume_begins_it(machine: Machine) -> None:
    killed(machine, machine.script(WORKS))
    paused = machine.holdfast("pause", SESSION)
    assert (paused.code, "paused" in paused.out) == (0, True), paused.out
    assert [row["status"] for row in machine.holdfast("sessions", "--json").rows] == ["paused"]
    assert machine.holdfast("resume", SESSION).code == 0
    assert said(machine) == ["go"]


@pytest.mark.requirement("L7", "L9")
def test_a_start_that_failed_is_named_and_goes_on_when_what_failed_is_mended(machine: Machine) -> None:
    """Its first record could not be written."""
    assert machine.holdfast("sessions").code == 0
    SqliteStore.open(machine.home)
    refuse = "CREATE TRIGGER refuse BEFORE INSERT ON records BEGIN SELECT RAISE(FAIL, 'no more'); END"
    with closing(sqlite3.connect(machine.home / "holdfast.db")) as database:
        database.execute(refuse)
    model = machine.script(WORKS)
    assert machine.holdfast("run", "go", "-s", SESSION, "-m", model, "--autonomy", "full").code == 9
    again = machine.holdfast("resume", "last")
    assert again.code == 9
    assert "no more" in again.err
    with closing(sqlite3.connect(machine.home / "holdfast.db")) as database:
        database.execute("DROP TRIGGER refuse")
    assert machine.holdfast("resume", "last").code == 0
    assert said(machine) == ["go"]


@pytest.mark.requirement("L9")
def test_resuming_a_start_whose_model_is_gone_names_the_model(machine: Machine) -> None:
    model = machine.script(WORKS)
    killed(machine, model)
    script = model.removeprefix("script:")
    (machine.folder / "script.jsonl").unlink()
    answer = machine.holdfast("resume", "last")
    assert answer.code == 2
    assert script in answer.err


@pytest.mark.requirement("L9")
def test_resuming_a_session_in_which_nothing_was_ever_asked_says_so(machine: Machine) -> None:
    async def claim() -> None:
        store = SqliteStore.open(machine.home)
        await store.claim(session_id(1_750_000_000_000, bytes(10)), SESSION, 1_750_000_000_000)
        await store.aclose()

    asyncio.run(claim())
    for arguments in (("resume", SESSION), ("resume", "last", "-m", machine.script(WORKS))):
        answer = machine.holdfast(*arguments)
        assert answer.code == 2
        assert "no task" in answer.err
        assert "model" not in answer.err
