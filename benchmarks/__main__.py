"""`python -m benchmarks [--turns 10,100,500,2000] [--sessions 100,1000] [--json FILE]`: the table.

Holdfast beside the floor, each cell in a fresh process, the model in another one. CPU time is the figure: wall time
on a shared machine says little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FLOOR = "floor-grouped"
SYSTEMS = (FLOOR, "floor-direct", "holdfast")
"""The ratios are to the first one: what a loop costs that writes as Holdfast does, through a writer thread."""


def line(*columns: object) -> str:
    """A line of the table."""
    widths = (6, 8, -14, 11, 8, 11, 10, 11)
    pairs = zip(columns, widths, strict=True)
    return " ".join(f"{text!s:<{-width}}" if width < 0 else f"{text!s:>{width}}" for text, width in pairs)


@contextmanager
def model_server() -> Iterator[int]:
    """The model in a process of its own; its port."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.terminate()


def cell(system: str, port: int, turns: int, sessions: int = 1, latency_ms: int = 0) -> dict[str, float]:
    """One measurement."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [system, port, turns, sessions, latency_ms, folder]
        command = [sys.executable, "-m", "benchmarks.cell", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{system} at {turns} turns failed:\n{done.stderr}")
        measured: dict[str, float] = json.loads(done.stdout)
        return measured


def main() -> None:
    """Measure, and print a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", default="10,100,500,2000")
    parser.add_argument("--sessions", default="100")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with model_server() as port:
        print(
            line(
                "turns",
                "sessions",
                "system",
                "CPU ms/turn",
                "x floor",
                "disk B/turn",
                "sessions/s",
                "KiB/session",
            )
        )
        plan = [(int(n), 1, 0) for n in options.turns.split(",") if n]
        plan += [(10, int(n), 50) for n in options.sessions.split(",") if n]
        for turns, sessions, latency_ms in plan:
            floor_ms = 0.0
            for system in SYSTEMS:
                row = cell(system, port, turns, sessions, latency_ms)
                cpu_ms = row["cpu_ms_per_turn"]
                floor_ms = cpu_ms if system == FLOOR else floor_ms
                ratio = cpu_ms / floor_ms if floor_ms else 0.0
                rows.append({"turns": turns, "sessions": sessions, "system": system, "ratio": ratio, **row})
                figures = (f"{cpu_ms:.3f}", f"{ratio:.2f}", f"{row['disk_bytes_per_turn']:.0f}")
                rest = (f"{row['sessions_per_s']:.1f}", f"{row['rss_kib_per_session']:.1f}")
                print(line(turns, sessions, system, *figures, *rest), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
