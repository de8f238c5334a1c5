"""What a durable tool turn costs in counts that do not depend on how fast the machine is, or on what else it does.

Functions that are called are counted everywhere; instructions where the machine lets them be: by its counters
(`perf stat`), or by valgrind, which is slow and needs no right. A short and a longer session are counted, each in a
fresh process; the difference is what the turns cost. docs/benchmarks.md has the history of the counts, and says why
they rose. `unexplained` compares with its last row.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FEW, MANY = 20, 120
RISE = 1.05
"""More than that is explained in the history, in a row of its own."""
HISTORY = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
_ROW = re.compile(r"^\| [^|]+ \| `?(\w+)`? \| (3\.\d+) \| ([\d,]+) \| ([\d.]+|-) \|", re.MULTILINE)
_PERF = ("perf", "stat", "-x", ",", "-e", "instructions:u")
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")

Row = dict[str, float | str]


class Known(NamedTuple):
    """A row of the history."""

    commit: str
    python: str
    calls: float
    millions: float | None
    """Millions of instructions; None if they were not counted."""


def measured(systems: Sequence[str], port: int) -> Iterator[Row]:
    """Calls and millions of instructions of a turn."""
    counter = _counter()
    for system in systems:
        row: Row = {"system": system, "calls_per_turn": _calls(system, port)}
        if counter:
            row |= {"minstr_per_turn": _instructions(counter, system, port) / 1e6, "counted_by": counter[0]}
        yield row


def history() -> list[Known]:
    """All rows, the oldest first."""
    rows = _ROW.findall(HISTORY.read_text("utf-8"))
    return [
        Known(commit, python, float(calls.replace(",", "")), None if millions == "-" else float(millions))
        for commit, python, calls, millions in rows
    ]


def unexplained(row: Row) -> list[str]:
    """What rose by more than the history tells. Another Python has counts of its own."""
    python = ".".join(platform.python_version_tuple()[:2])
    known = [each for each in history() if each.python == python]
    if not known:
        return []
    last = known[-1]
    pairs = [("calls_per_turn", last.calls), ("minstr_per_turn", last.millions)]
    return [
        f"{figure} rose from {before:g} (at {last.commit}) to {float(row[figure]):.6g}: make it less, or add "
        f"a row to {HISTORY.name} that says why"
        for figure, before in pairs
        if before and figure in row and float(row[figure]) > RISE * before
    ]


def _calls(system: str, port: int) -> float:
    few, many = (float(json.loads(_run((), system, port, turns).stdout)["calls"]) for turns in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _instructions(counter: tuple[str, ...], system: str, port: int) -> float:
    few, many = (_number(_run(counter, system, port, turns).stderr) for turns in (FEW, MANY))
    return (many - few) / (MANY - FEW) / 2  # each process sees its session twice


def _run(counter: tuple[str, ...], system: str, port: int, turns: int) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONHASHSEED": "0", **({"UNCOUNTED": "1"} if counter else {})}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *counter,
            sys.executable,
            "-m",
            "benchmarks.counted",
            system,
            str(port),
            str(turns),
            folder,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\\n{done.stderr}")
    return done


def _counter() -> tuple[str, ...]:
    """What counts instructions here; nothing where nobody does."""
    if shutil.which("perf"):
        tried = subprocess.run([*_PERF, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0 and _number(tried.stderr):
            return _PERF
    return _VALGRIND if shutil.which("valgrind") else ()


def _number(told: str) -> float:
    """The count in what perf or valgrind says."""
    found = re.search(r"^(\d+),.*instructions|I +refs: +([\d,]+)", told, re.MULTILINE)
    return float((found[1] or found[2]).replace(",", "")) if found else 0.0
