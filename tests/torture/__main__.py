"""Runs rounds of torture and prints the table.

python -m tests.torture                                       all of it
python -m tests.torture --kind kill --seed 17 --rounds 1      one round again; its folder stays, with a verdict
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import get_args

from tests.torture.evidence import Kind
from tests.torture.rounds import KINDS, Result, play

ALL = {
    "kill": 400,
    "stop": 180,
    "clock": 100,
    "speak": 60,
    "long-kill": 100,
    "long-stop": 40,
    "long-clock": 20,
    "long-speak": 20,
    "long-view": 60,
    "hands-kill": 120,
    "hands-stop": 60,
    "hands-clock": 40,
    "hands-speak": 20,
    "hands-fight": 40,
    "walls-kill": 60,
    "walls-stop": 20,
    "land-kill": 60,
    "land-stop": 20,
}
"""The rounds of each kind that the whole suite has; each has its seed, from 0 on. In some a command ends before the
moment to be stopped at comes: there are 150 stops and more."""

_HEADS: dict[str, str] = {
    "lost": "lost",
    "doubled": "doubled",
    "unreported": "unreported",
    "code": "wrong codes",
    "hang": "hangs",
    "left": "left over",
    "damaged": "damaged",
    "leaked": "leaked",
}


def played(kind: str, seeds: Iterable[int], *, jobs: int = 0, keeps: bool = False) -> Generator[Result]:
    """The rounds with these seeds, so many at once; by default one for each core."""
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(play, kind, seed, keeps=keeps) for seed in seeds]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def table(results: Iterable[Result]) -> str:
    """What came of the rounds, a kind a line."""
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(result.kind, []).append(result)
    rows = [("kind", "trials", "blows", *(_HEADS[name] for name in get_args(Kind)), "seconds a trial")]
    for kind, found in kinds.items():
        faults = Counter(fault.kind for result in found for fault in result.faults)
        slow = f"{sum(result.took_s for result in found) / len(found):.1f}"
        counts = (
            len(found),
            sum(result.blows for result in found),
            *(faults[name] for name in get_args(Kind)),
        )
        rows.append((kind, *map(str, counts), slow))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def told(result: Result) -> str:
    """One round with faults, and how to have it again."""
    lines = [
        f"python -m tests.torture --kind {result.kind} --seed {result.seed} --rounds 1   ({result.folder})"
    ]
    return "\n".join([*lines, *(f"    {fault.kind}: {fault.what}" for fault in result.faults)])


def main() -> int:
    """Play, and print; 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the next have the next ones")
    parser.add_argument(
        "--rounds", type=int, default=0, help="of each kind; 0: as many as the whole suite has"
    )
    parser.add_argument("--jobs", type=int, default=0, help="rounds at once; 0: one for each core")
    given = parser.parse_args()
    results: list[Result] = []
    try:
        for kind in ALL if given.kind == "all" else (given.kind,):
            count = given.rounds or ALL.get(kind, 1)
            seeds = range(given.seed, given.seed + count)
            with closing(played(kind, seeds, jobs=given.jobs, keeps=count == 1)) as playing:
                for result in playing:
                    results.append(result)
                    if result.faults or count == 1:
                        sys.stdout.write(told(result) + "\n")
                        sys.stdout.flush()
    except KeyboardInterrupt:  # the table is of those that were played
        sys.stdout.write("Interrupted.\n")
    sys.stdout.write(table(results) + "\n")
    return int(any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
