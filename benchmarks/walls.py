"""What a sandbox adds to a command: `true` in each, without one, under a bare `bwrap`; and how long a fence takes.

Wall time (the median of a turn), and the CPU time of everything that was started, the best of several turns.
`python -m benchmarks walls` prints the table.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.protocol.fence import Fence, Finding, Launch
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces

TURNS, EACH = 6, 20
LIMIT_S = 60.0
SIZES = (10_000, 100_000)
FILES_EACH = 50
_LOOP = """
import ctypes, os, resource, statistics, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
took_s, times = [], int(sys.argv[1])
for _ in range(times):
    began_s = time.perf_counter()
    subprocess.run(sys.argv[2:], check=True)
    took_s.append(time.perf_counter() - began_s)
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(statistics.median(took_s), (used.ru_utime + used.ru_stime) / times)
"""
_BARE = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")

Row = dict[str, float | str]


def cpu_s() -> float:
    """The CPU time of this process and of those that ended below it."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def bare(program: str, argv: Sequence[str]) -> tuple[float, float]:
    """Return the wall time of a command under `bwrap` alone, and its CPU time."""
    words = [program, *_BARE, "--", *argv]
    # A process of its own: it inherits what `bwrap` leaves, which does not wait for the processes inside.
    told = subprocess.run([sys.executable, "-c", _LOOP, str(EACH), *words], check=True, capture_output=True)
    wall_s, used_s = map(float, told.stdout.split())
    return wall_s, used_s


async def commands(folder: Path) -> list[Row]:
    """A command in each way, in turns, so that a busy moment hits all of them; the best turn of each."""
    made = {"bubblewrap": bubblewrap.make(), "landlock": landlock.make()}
    found = {name: each for name, each in made.items() if not isinstance(each, Finding)}
    argv = ("/bin/bash", "-c", "true")
    plain = Launch(
        argv, str(folder), "benchmark", clean_environment(os.environ), LIMIT_S, LIMIT_S, never_over
    )
    fenced = replace(plain, fence=Fence((str(folder),), private=(str(Path.home()),)))
    program = shutil.which("bwrap")
    best = dict.fromkeys(("without a sandbox", *found), (LIMIT_S, LIMIT_S))
    if program is not None:
        best["under a bare bwrap"] = min(bare(program, argv) for _ in range(TURNS))
    for _ in range(TURNS):
        for name in ("without a sandbox", *found):
            processes, took_s = Processes(found.get(name)), []
            began_cpu_s = cpu_s()
            for _ in range(EACH):
                began_s = time.perf_counter()
                await processes.run(fenced if name in found else plain, lambda _: None)
                took_s.append(time.perf_counter() - began_s)
            await processes.aclose()  # so that what its guards used can be counted
            turn = statistics.median(took_s), (cpu_s() - began_cpu_s) / EACH
            best[name] = min(best[name][0], turn[0]), min(best[name][1], turn[1])
    return [
        {
            "what": f"`true` {'in ' if name in found else ''}{name}",
            "wall_ms": 1000 * wall_s,
            "cpu_ms": 1000 * used_s,
        }
        for name, (wall_s, used_s) in best.items()
    ]


def fences(folder: Path, files: int) -> Iterator[Row]:
    """The first fence of a workspace with so many files, and the next ones."""
    workspace, home = folder / f"workspace{files}", folder / "home"
    for number in range(files // FILES_EACH):
        below = workspace / f"a{number // FILES_EACH}" / f"b{number}"
        below.mkdir(parents=True)
        for each in range(FILES_EACH):
            (below / f"file{each}.py").touch()
    time.sleep(0.2)  # a folder that just changed is not remembered
    made = Fences(OwnPlaces((str(home / ".holdfast"),)), str(home))
    for what in ("first", "next"):
        began_s, began_cpu_s = time.perf_counter(), cpu_s()
        made.fence(str(workspace), Walls("bubblewrap"))
        yield {
            "what": f"the {what} fence of {files:,} files",
            "wall_ms": 1000 * (time.perf_counter() - began_s),
            "cpu_ms": 1000 * (cpu_s() - began_cpu_s),
        }


def measured() -> Iterator[Row]:
    """All rows; none of commands where there is no bwrap."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(commands(Path(folder)))
        for files in SIZES:
            yield from fences(Path(folder), files)
