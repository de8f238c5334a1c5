"""A disk that fills at any moment: exit 9 says whether the command was accepted, and names its session."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.machine import Finished, Machine, call, make_machine

STORAGE = 9
PAGE = 4096
FREE_PAGES = (0, 4, 8, 11, 12, 14, 20)
"""From too few to open the home to enough for all; a command is accepted from 12 or 14 pages on."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with its home on a small disk."""
    machine = make_machine(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    machine.home.symlink_to(disk)
    yield machine
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(machine: Machine, free_pages: int) -> Path:
    """Leave so many pages free on the disk, by a file that can be taken away."""
    ballast = machine.home / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * PAGE) == PAGE:
                pass
        except OSError:
            pass
        file.truncate((file.tell() // PAGE - free_pages) * PAGE)
    return ballast


def says_accepted(answer: Finished) -> bool:
    """Whether the refusal says that the command was accepted."""
    assert answer.code == STORAGE, answer
    is_accepted = "do not send it again" in answer.err
    is_refused = "not accepted." in answer.err or "Nothing was accepted." in answer.err
    assert is_accepted != is_refused, answer.err
    return is_accepted


@pytest.mark.requirement("L7", "C15")
def test_a_message_that_a_full_disk_kept_from_being_read_is_told_to_be_stored_or_not(
    machine: Machine,
) -> None:
    session = ""
    told: set[bool] = set()
    for number, free_pages in enumerate(FREE_PAGES):
        model = machine.script([{"text": f"answer {n}"} for n in range(4)], f"model{number}")
        session = machine.holdfast("run", "go", "-m", model, "--json").json["session"]
        words = f"message {number}"
        ballast = fill(machine, free_pages)
        answer = machine.holdfast("resume", session, words)
        ballast.unlink()
        if answer.code == 0:
            continue
        is_accepted = says_accepted(answer)
        told.add(is_accepted)
        assert f"holdfast resume {session}" in answer.err or not is_accepted
        assert machine.holdfast("resume", session, *([] if is_accepted else [words])).code == 0
        texts = [
            each["body"]["text"] for each in machine.events(session) if each["type"] == "MessageReceived"
        ]
        assert texts == ["go", words], (free_pages, answer.err)
    assert told == {False, True}, "both happened"


def test_a_task_that_was_not_accepted_names_no_session_and_leaves_none(machine: Machine) -> None:
    model = machine.script([{"text": "answer"}])
    assert machine.holdfast("run", "first", "-m", model).code == 0
    told: set[bool] = set()
    for free_pages in FREE_PAGES:
        before = {row["session"] for row in machine.holdfast("sessions", "--json").rows}
        ballast = fill(machine, free_pages)
        answer = machine.holdfast("run", "second", "-m", model)
        ballast.unlink()
        new = {row["session"] for row in machine.holdfast("sessions", "--json").rows} - before
        if answer.code == 0:
            continue
        told.add(says_accepted(answer))
        named = {word.rstrip("`") for word in answer.err.split() if word[:2] == "01"}
        assert "resume last" not in answer.err
        assert bool(new) == says_accepted(answer), answer.err
        assert new <= named
        assert new or "resume" not in answer.err
    assert told == {False, True}, "both happened"


@pytest.mark.requirement("A4", "L7")
def test_a_decision_that_was_accepted_is_listed_until_it_counts_and_stays_the_first(machine: Machine) -> None:
    told: set[bool] = set()
    for number, free_pages in enumerate(FREE_PAGES):
        lines = [
            {"tool_calls": [call("shell", command=f"kill -0 0; echo ran >> ran{number}")]},
            {"text": "done"},
        ]
        model = machine.script(lines, f"model{number}")
        machine.holdfast("run", "go", "-m", model, "--autonomy", "supervised", "-w", str(machine.workspace))
        (row,) = machine.holdfast("approvals", "--json").rows
        assert row["decided"] is None
        ballast = fill(machine, free_pages)
        answer = machine.holdfast("approve", row["id"])
        ballast.unlink()
        is_accepted = answer.code == 0 or says_accepted(answer)
        if answer.code == STORAGE:
            told.add(is_accepted)
            (row,) = machine.holdfast("approvals", "--json").rows
            assert row["decided"] == ("approve" if is_accepted else None)
            listed = machine.holdfast("approvals").out
            assert ("approved by" in listed, "holdfast deny" in listed) == (is_accepted, not is_accepted)
        denied = machine.holdfast("deny", row["id"])
        assert ("Already approved" in denied.out) == is_accepted
        assert machine.holdfast("resume", row["session"]).code == 0
        assert (machine.workspace / f"ran{number}").exists() == is_accepted
    assert told == {False, True}, "both happened"


def test_a_stop_that_was_accepted_says_so(machine: Machine) -> None:
    told: set[bool] = set()
    for number, free_pages in enumerate(FREE_PAGES):
        lines = [{"tool_calls": [call("ask_user", question="q?")]}, {"text": "done"}]
        model = machine.script(lines, f"model{number}")
        session = machine.holdfast("run", "go", "-m", model, "--json").json["session"]
        ballast = fill(machine, free_pages)
        answer = machine.holdfast("stop", session)
        ballast.unlink()
        if answer.code == STORAGE:
            told.add(is_accepted := says_accepted(answer))
            machine.holdfast("resume", session)
            types = [each["type"] for each in machine.events(session)]
            assert ("RunEnded" in types or "RunStopped" in types) == is_accepted, answer.err
    assert told == {False, True}, "both happened"
