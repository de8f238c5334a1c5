"""`python -m benchmarks [SECTION...] [--json FILE]`: tables beside a floor.

Each cell runs in a fresh process, the model in another one. CPU time is the figure: wall time on a shared machine
says little. `python -m benchmarks instructions` counts instead; it ends with 1 when a count rose by more than the
history in docs/benchmarks.md explains. `requests` compares sessions with and without compactions. The measurements
are in `cell`, `counted`, `instructions`, `resume`, `streaming`, `idle`, `guard`, `gates`, `imports`, `clipping`,
`history`, `tokens`, `redact`, `services`, `walls` and `proxy`, the floor is in `floor`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import gates as gating
from benchmarks import guard as guarding
from benchmarks import imports
from benchmarks import instructions as counting
from benchmarks import proxy as proxying
from benchmarks import redact as redacting
from benchmarks import services as calling
from benchmarks import walls as walling
from benchmarks.cell import COMPACTED
from benchmarks.paired import compared

FLOOR = "floor-grouped"
SYSTEMS = (FLOOR, "floor-direct", "holdfast")
"""The ratios are to the first one: what a loop costs that writes as Holdfast does, through a writer thread."""
SESSION_TURNS, SESSION_LATENCY_MS = 10, 50
IDLE_SESSIONS = 1_000
MOST_COMMANDS = 100
"""A longer session with commands is not measured: its turns cost the same."""
RESUMES = 15
"""How often each system resumes: a single time differs by half from run to run on a shared machine."""

Row = dict[str, float | str]


class Plan(NamedTuple):
    """What is asked for."""

    port: int
    turns: list[int]
    sessions: list[int]
    resume: list[int]
    requests: list[int]


@contextmanager
def model_server() -> Iterator[int]:
    """The model in a process of its own; its port."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.terminate()


def fresh(module: str, *arguments: object) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def beside(rows: Iterator[Row], figure: str, floor: str) -> Iterator[Row]:
    """The rows with their ratio to the last one of the floor, which comes before those that it is the floor of."""
    least = 0.0
    for row in rows:
        cost = float(row[figure])
        least = cost if row["system"] == floor else least
        yield {**row, "x_floor": cost / least}


# --- sections -----------------------------------------------------------------------------------


def _cells(port: int, turns: int, sessions: int, latency_ms: int) -> Iterator[Row]:
    for system in SYSTEMS:
        with tempfile.TemporaryDirectory() as folder:
            cost = fresh("cell", system, port, turns, sessions, latency_ms, folder)
        yield {"turns": turns, "sessions": sessions, "system": system, **cost}


def turns(plan: Plan) -> Iterator[Row]:
    """A durable tool turn in sessions of growing length."""
    for count in plan.turns:
        yield from beside(_cells(plan.port, count, 1, 0), "cpu_ms_per_turn", FLOOR)


def paired(plan: Plan) -> Iterator[Row]:
    """The same, a session of the floor and one of Holdfast in turn, in one process; and with a command each turn."""
    for tool in ("echo", "shell"):
        for count in [each for each in plan.turns if tool == "echo" or each <= MOST_COMMANDS]:
            with tempfile.TemporaryDirectory() as folder:
                yield {"tool": tool, "turns": count, **fresh("paired", plan.port, count, folder, tool)}


def instructions(plan: Plan) -> Iterator[Row]:
    """Calls of functions and instructions of a durable tool turn."""
    return beside(counting.measured((FLOOR, "holdfast"), plan.port), "calls_per_turn", FLOOR)


def sessions(plan: Plan) -> Iterator[Row]:
    """Many sessions at once, of ten turns with a model that takes 50 ms."""
    for count in plan.sessions:
        cells = _cells(plan.port, SESSION_TURNS, count, SESSION_LATENCY_MS)
        yield from beside(cells, "cpu_ms_per_turn", FLOOR)


def resume(plan: Plan) -> Iterator[Row]:
    """One more message for a long session, each time in a fresh process, imports aside; in turn with the floor."""

    def once(system: str, count: int, home: Path) -> float:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(home, folder, dirs_exist_ok=True)
            return fresh("resume", system, plan.port, count, folder, home)["cpu_ms"]

    for count in plan.resume:
        with tempfile.TemporaryDirectory() as folder:
            homes = {system: Path(folder, system) for system in (FLOOR, "holdfast")}
            for system, home in homes.items():
                home.mkdir()
                fresh("cell", system, plan.port, count, 1, 0, home)
            pairs = [
                (once(FLOOR, count, homes[FLOOR]), once("holdfast", count, homes["holdfast"]))
                for _ in range(RESUMES)
            ]
        yield {"turns": count, **compared(pairs, "cpu_ms")}


def requests(plan: Plan) -> Iterator[Row]:
    """A turn and a resume, in a window that takes the whole session, and in one in which it is compacted."""
    for count in plan.requests:
        for system in ("holdfast", COMPACTED):
            with tempfile.TemporaryDirectory() as folder:
                cost = fresh("cell", system, plan.port, count, 1, 0, folder)
                resumed = fresh("resume", system, plan.port, count, folder, folder)["cpu_ms"]
            turn = {name: cost[name] for name in ("cpu_ms_per_turn", "disk_bytes_per_turn")}
            yield {"turns": count, "system": system, **turn, "resume_cpu_ms": resumed}


def streaming(plan: Plan) -> Iterator[Row]:
    """A chunk of a streamed response, with and without somebody who watches."""

    def cells() -> Iterator[Row]:
        for system in ("floor", "holdfast", "holdfast-heard"):
            with tempfile.TemporaryDirectory() as folder:
                yield {"system": system, **fresh("streaming", system, plan.port, folder)}

    return beside(cells(), "cpu_us_per_chunk", "floor")


def idle(plan: Plan) -> Iterator[Row]:
    """A thousand sessions in which nothing happens."""
    for kind in ("driven", "driven-followed", "elsewhere-followed", "rest-followed"):
        with tempfile.TemporaryDirectory() as folder:
            yield {"sessions": IDLE_SESSIONS, "kind": kind, **fresh("idle", kind, IDLE_SESSIONS, folder)}


def guard(plan: Plan) -> Iterator[Row]:
    """A survey of 20,000 files, evidence of results, likenesses of calls, each beside a floor of its own."""
    return guarding.measured()


def gates(plan: Plan) -> Iterator[Row]:
    """All gates for one call, beside splitting its command with `shlex` and encoding it as JSON."""
    return gating.measured()


def services(plan: Plan) -> Iterator[Row]:
    """Circuits and rates for one call to a service."""
    return calling.measured()


def starts(plan: Plan) -> Iterator[Row]:
    """A whole process that imports something, beside bare Python."""
    return beside(imports.measured(), "cpu_ms", imports.BARE)


def clipping(plan: Plan) -> Iterator[Row]:
    """A megabyte of output, clipped to what a model gets."""
    for output, cost in fresh("clipping").items():
        yield {"output": output, "cpu_ms": cost}


def history(plan: Plan) -> Iterator[Row]:
    """A search of the history of a session of 5,000 turns of 2 KB."""
    for query, cost in fresh("history").items():
        yield {"query": query, "cpu_ms": cost}


def tokens(plan: Plan) -> Iterator[Row]:
    """The token estimate: the kinds of a text, an estimate, a lesson."""
    for part, cost in fresh("tokens").items():
        yield {"part": part, "cpu_us": cost}


def redact(plan: Plan) -> Iterator[Row]:
    """Masking the secrets of 1 KB of text, beside encoding it as JSON."""
    return redacting.measured()


def walls(plan: Plan) -> Iterator[Row]:
    """A command in a sandbox, without one and under a bare bwrap; the fence of many files."""
    return walling.measured()


def proxy(plan: Plan) -> Iterator[Row]:
    """The proxy of sandboxed calls: a request, a megabyte, and the way to it."""
    return proxying.measured()


SECTIONS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "instructions": instructions,
    "turns": turns,
    "paired": paired,
    "sessions": sessions,
    "resume": resume,
    "requests": requests,
    "streaming": streaming,
    "idle": idle,
    "guard": guard,
    "gates": gates,
    "services": services,
    "imports": starts,
    "clipping": clipping,
    "history": history,
    "tokens": tokens,
    "redact": redact,
    "walls": walls,
    "proxy": proxy,
}


# --- the table ----------------------------------------------------------------------------------


def shown(section: str, rows: Iterator[Row]) -> list[Row]:
    """Print a section line by line as it is measured; returns it."""
    print(f"\n{section}: {(SECTIONS[section].__doc__ or '').splitlines()[0]}")
    table: list[Row] = []
    for row in rows:
        if not table:
            print("".join(f"{name:>27}" for name in row))
        print("".join(f"{_cell(value):>27}" for value in row.values()), flush=True)
        table.append(row)
    return table


def _cell(value: float | str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    """Measure, and print the tables; with --json also write their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; without any, all of them")
    parser.add_argument("--turns", type=_numbers, default="10,100,500,2000")
    parser.add_argument("--sessions", type=_numbers, default="100", dest="at_once")
    parser.add_argument("--resume", type=_numbers, default="500,2000")
    parser.add_argument("--requests", type=_numbers, default="500,2000,5000")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.sections or list(SECTIONS)
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    with model_server() as port:
        plan = Plan(port, options.turns, options.at_once, options.resume, options.requests)
        tables = {name: shown(name, SECTIONS[name](plan)) for name in chosen}
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1))
    if told := [line for row in tables.get("instructions", ())[-1:] for line in counting.unexplained(row)]:
        sys.exit("\n".join(told))


if __name__ == "__main__":
    main()
