"""Bytes from the system that are not text, and places that cannot be written to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.edge import nursery
from tests.edge.machine import Machine

ODD = "w\udcff"
"""A name with a byte that is not UTF-8, as Python keeps it."""
LINES = [{"text": "done", "repeat": True}]


@pytest.mark.requirement("L9", "L1")
def test_a_task_with_bytes_that_are_no_text_is_worked_on(machine: Machine) -> None:
    model = machine.script(LINES)
    command, options = machine.launch(("run", "-", "-m", model, "--json"), {})
    piped = subprocess.run(command, input=b"d\xe9j\xe0 vu", capture_output=True, check=False, **options)
    assert piped.returncode == 0, piped.stderr
    assert machine.holdfast("run", f"{ODD} bad", "-m", model).code == 0
    assert machine.holdfast("resume", "last", f"more {ODD}").code == 0
    assert machine.holdfast("sessions", "--grep", "\udcff", "--json").code == 0
    titles = [row["title"] for row in machine.holdfast("sessions", "--json").rows]
    assert titles == ["w\ufffd bad", "d\ufffdj\ufffd vu"]


@pytest.mark.requirement("L9")
def test_a_folder_whose_name_is_no_text_is_refused_by_name(machine: Machine) -> None:
    model = machine.script(LINES)
    (machine.workspace / ODD).mkdir()
    command, options = machine.launch(("run", "hi", "-m", model), {})
    options["cwd"] = machine.workspace / ODD
    inside = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert (inside.returncode, "is not UTF-8 text" in inside.stderr) == (2, True)
    for command_line in (("run", "hi", "-m", model), ("sessions",), ("doctor",)):
        answer = machine.holdfast(*command_line, HOLDFAST_HOME=str(machine.folder / ODD))
        assert answer.code == 2
        assert "The name of the home" in answer.err
    environ = {name: value for name, value in machine.environ.items() if name != "HOLDFAST_HOME"}
    for variable in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        nameless = Machine(machine.folder, {**environ, variable: str(machine.folder / ODD)})
        answer = nameless.holdfast("run", "hi", "-m", model)
        assert (answer.code, "The name of the home" in answer.err) == (2, True), variable


@pytest.mark.requirement("L9")
def test_a_locale_without_any_letters_but_ascii_loses_none_of_a_task(machine: Machine) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert machine.holdfast("run", "grüße", "-m", machine.script(LINES), **ascii_only).code == 0
    assert [row["title"] for row in machine.holdfast("sessions", "--json").rows] == ["grüße"]


@pytest.mark.requirement("C8", "L9")
def test_work_goes_on_where_progress_cannot_be_written(machine: Machine) -> None:
    for arguments in (("run", "hi", "-m", machine.script(LINES)), ("resume", "last", "more")):
        _, options = machine.launch((), {})
        with (
            Path("/dev/full").open("w") as full,
            nursery.start(
                (*arguments, "--json"), stdout=subprocess.PIPE, stderr=full, text=True, **options,
                is_loaded_anew="resume" in arguments,
            ) as process,
        ):  # fmt: skip
            out, _ = process.communicate()
        assert process.returncode == 0
        assert '"status":"done"' in out


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    "flags",
    [
        ("--budget", "\u0663"),
        ("--budget", "1_0"),
        ("--max-turns", "\uff11"),
        ("--timeout", "\uff15m"),
        ("-s", ""),
    ],
)
def test_numbers_in_other_scripts_and_empty_names_are_refused(
    machine: Machine, flags: tuple[str, str]
) -> None:
    answer = machine.holdfast("run", "hi", "-m", machine.script(LINES), *flags)
    assert answer.code == 2, answer
    assert machine.holdfast("sessions", "--json").out == ""


@pytest.mark.requirement("L9")
def test_a_budget_may_be_as_small_as_money_is_counted(machine: Machine) -> None:
    assert machine.holdfast("run", "hi", "-m", machine.script(LINES), "--budget", "0.000001").code == 0
