"""Homes that cannot be used, or not wholly: a sentence, exit 9, and every session that can be read is kept."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.machine import Machine, call, of_type

STORAGE = 9
MARKS = ("mark of the first", "mark of the second")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of eight megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def refused(machine: Machine, *arguments: str, code: str) -> None:
    """The command ends with a message about the home."""
    answer = machine.holdfast(*arguments, "--json")
    assert answer.code == STORAGE, answer
    error = answer.json["error"]
    assert error["code"] == code
    assert str(machine.home / "holdfast.db") in error["message"]
    assert error["message"] in answer.err


def two_sessions(machine: Machine) -> Path:
    """Two finished sessions in one database file; its path."""
    for number, mark in enumerate(MARKS):
        lines = [{"text": mark, "tool_calls": [call("list_dir")]}, {"text": f"answer {number}"}]
        model = machine.script(lines, f"script-{number}")
        assert machine.holdfast("run", f"task {number}", "-s", f"t:{number}", "-m", model).code == 0
    return machine.home / "holdfast.db"


@pytest.mark.requirement("L7", "C15")
@pytest.mark.parametrize(
    ("content", "is_new"),
    [(b"milk, bread, butter\n" * 300, True), (b"x", True), (b"", False), (b"x", False), (None, False)],
    ids=["a list", "a byte", "emptied", "a byte in its place", "taken away"],
)
def test_a_file_that_is_no_database_is_left_byte_for_byte(
    machine: Machine, content: bytes | None, is_new: bool
) -> None:
    machine.home.mkdir(mode=0o700)
    file = machine.home / "holdfast.db"
    if not is_new:
        assert machine.holdfast("run", "go", "-m", machine.script([{"text": "done"}])).code == 0
        file.unlink()
    if content is not None:
        file.write_bytes(content)
    model = machine.script([{"text": "never"}])
    for arguments in (("run", "go", "-m", model), ("resume", "last"), ("sessions",), ("fsck",)):
        refused(machine, *arguments, code="storage_corrupt")
    assert (file.read_bytes() if file.exists() else None) == content


@pytest.mark.requirement("L7", "C15")
def test_a_home_of_a_newer_version_is_not_touched(machine: Machine) -> None:
    file = two_sessions(machine)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    content = file.read_bytes()
    for arguments in (
        ("run", "go", "-m", machine.script([{"text": "never"}])),
        ("show", "t:0"),
        ("sessions",),
    ):
        refused(machine, *arguments, code="storage_newer")
    assert file.read_bytes() == content


@pytest.mark.requirement("L7", "C15")
def test_a_flipped_bit_costs_one_session_and_is_told(machine: Machine) -> None:
    file = two_sessions(machine)
    content = bytearray(file.read_bytes())
    content[content.index(MARKS[0].encode()) + 3] ^= 1
    file.write_bytes(content)
    for arguments in (("show", "t:0"), ("resume", "t:0", "go on")):
        answer = machine.holdfast(*arguments, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (STORAGE, "storage_corrupt")
        assert "fsck" in answer.json["error"]["hint"]
    found = machine.holdfast("fsck", "--json")
    assert found.code == 1
    assert "changed" in found.out
    assert {row["key"] for row in machine.holdfast("sessions", "--json").rows} == {"t:0", "t:1"}
    assert of_type(machine.events("t:1"), "RunStopped")[0]["status"] == "done"
    answer = machine.holdfast("run", "more", "-s", "t:1", "-m", machine.script([{"text": "x"}] * 4), "--json")
    assert (answer.code, answer.json["text"]) == (0, "x")


@pytest.mark.requirement("L7", "H1")
def test_a_torn_tail_of_the_log_costs_at_most_what_stood_there(machine: Machine) -> None:
    lines = [{"tool_calls": [call("list_dir")], "delay_s": 0.02}] * 100
    model = machine.script([*lines, {"text": "end", "repeat": True}])
    with machine.start(
        "run", "go", "-s", "t:torn", "-m", model, "--max-turns", "200", "--stream-json"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"t5.c1"' in line:
                process.kill()
    log = machine.home / "holdfast.db-wal"
    log.write_bytes(log.read_bytes()[:-700])
    before = machine.events("t:torn")
    assert before, "the part before the tear is readable"
    assert machine.holdfast("fsck").code == 0
    answer = machine.holdfast("resume", "t:torn", "--max-turns", "3", "--json")
    assert answer.code in (0, 4)
    assert machine.events("t:torn")[: len(before)] == before


@pytest.mark.requirement("L7")
def test_a_database_without_its_end_is_told_and_left_as_it_is(machine: Machine) -> None:
    file = two_sessions(machine)
    content = file.read_bytes()[: -3 * 4096 - 100]
    file.write_bytes(content)
    assert machine.holdfast("fsck").code in (1, STORAGE)
    for arguments in (("sessions",), ("show", "t:0"), ("show", "t:1")):
        assert machine.holdfast(*arguments, "--json").code in (0, STORAGE), arguments
    assert file.read_bytes() == content


@pytest.mark.requirement("L7", "C15")
def test_a_read_only_home_is_told_and_its_sessions_are_there_afterwards(
    machine: Machine, small_disk: Path
) -> None:
    machine.home.symlink_to(small_disk)
    two_sessions(machine)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    model = machine.script([{"text": "never"}])
    for arguments in (("run", "go", "-m", model), ("resume", "t:1", "more")):
        refused(machine, *arguments, code="storage_read_only")
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert len(machine.holdfast("sessions", "--json").rows) == 2
    assert machine.holdfast("fsck").code == 0


@pytest.mark.requirement("L7", "C15")
def test_when_the_disk_fills_nothing_acknowledged_is_lost_and_resume_goes_on(
    machine: Machine, small_disk: Path
) -> None:
    home = ("--home", str(small_disk / "home"))
    steps = [
        {"text": f"{number} " + "x" * 20_000, "tool_calls": [call("glob", pattern=f"{number}*")]}
        for number in range(40)
    ]
    model = machine.script([*steps, {"text": "the end"}])
    limits = ("--max-turns", "100", "--max-tokens", "50000000")
    command = ("run", "go", "-s", "t:full", "-m", model, *limits, *home)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (7 << 20))
    patient = {"HOLDFAST_GUARD_STALL_TURNS": "100"}  # patterns that match no file are no progress
    with machine.start(*command, "--stream-json", **patient) as process:
        assert process.stdout is not None
        told = [line for line in process.stdout if '"seq"' in line]
    assert process.returncode == STORAGE
    assert told
    answer = machine.holdfast("resume", "t:full", "--json", *home)
    assert (answer.code, answer.json["error"]["code"]) == (STORAGE, "storage_full")
    for looking in (("sessions", "--json"), ("show", "t:full", "--events", "--json"), ("fsck", "--json")):
        answer = machine.holdfast(*looking, *home)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out
    ballast.unlink()
    answer = machine.holdfast("resume", "t:full", "--json", *home)
    assert (answer.code, answer.json["text"]) == (0, "the end")
    events = machine.holdfast("show", "t:full", "--events", "--json", *home).rows
    assert len(events) > len(told)
    assert [body["parts"][0]["text"].split()[0] for body in of_type(events, "Responded")] == [
        *map(str, range(40)),
        "the",
    ]
    assert machine.holdfast("fsck", *home).code == 0
