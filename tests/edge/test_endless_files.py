"""Endless files, and paths that are not files, wherever a command takes a file: exit 2 and a clear message."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.edge import nursery
from tests.edge.machine import PATIENCE_S, Finished, Machine

MEMORY_BYTES = 4 << 30
"""The address space of a command: far more than it needs, and soon used up if it reads an endless file."""
Place = Callable[[Machine, str], list[str]]


def ended(machine: Machine, *arguments: str, stdin: str = os.devnull, **environ: str) -> Finished:
    """A command with little memory."""
    _, options = machine.launch(arguments, environ)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        Path(stdin).open("rb") as given,
        nursery.start(arguments, text=True, stdin=given, **pipes, **options) as process,
    ):
        with suppress(ProcessLookupError):  # it has only begun, unless this machine is busy and it is over
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    return Finished(process.returncode, out, err)


def linked(link: Path, file: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(file)


def as_user_file(machine: Machine, file: str) -> list[str]:
    linked(machine.home / "config.toml", file)
    return ["run", "go", "-m", machine.script([{"text": "never"}])]


def as_project_file(machine: Machine, file: str) -> list[str]:
    linked(machine.workspace / "holdfast.toml", file)
    return ["run", "go", "-m", machine.script([{"text": "never"}])]


def as_trusted_file(machine: Machine, file: str) -> list[str]:
    linked(machine.workspace / "holdfast.toml", file)
    return ["trust", "--yes"]


PLACES: dict[str, Place] = {
    "--system": lambda machine, file: [
        "run", "go", "--system", file, "-m", machine.script([{"text": "never"}]),
    ],
    "script": lambda _, file: ["run", "go", "-m", f"script:{file}"],
    "user file": as_user_file,
    "project file": as_project_file,
    "trust": as_trusted_file,
    "replay --with": lambda _, file: ["replay", "last", "--with", file],
}  # fmt: skip


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    """A pipe into which nobody writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return str(path)


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("place", PLACES)
def test_a_device_and_a_pipe_are_no_files(machine: Machine, place: str, pipe: str) -> None:
    for file in ("/dev/zero", pipe):
        if place == "replay --with":
            assert ended(machine, "run", "go", "-m", machine.script([{"text": "Done."}])).code == 0
        arguments = PLACES[place](machine, file)
        answer = ended(machine, *arguments)
        assert answer.code == 2, answer.err
        assert "not a file" in answer.err
        for link in (machine.home / "config.toml", machine.workspace / "holdfast.toml"):
            link.unlink(missing_ok=True)


@pytest.mark.requirement("L9")
def test_an_administrators_file_that_is_none_is_told(machine: Machine) -> None:
    answer = ended(machine, "config", "show", HOLDFAST_ADMIN_CONFIG="/dev/zero")
    assert answer.code == 2
    assert "/dev/zero: is a device" in answer.err


def test_a_task_without_end_on_stdin_is_refused(machine: Machine) -> None:
    answer = ended(machine, "run", "-", "-m", machine.script([{"text": "never"}]), stdin="/dev/zero")
    assert answer.code == 2
    assert "larger than 1,000,000 bytes" in answer.err
    answer = ended(machine, "chat", "-m", machine.script([{"text": "never"}]), stdin="/dev/zero")
    assert answer.code == 2
    assert "larger than 1,000,000 bytes" in answer.err
