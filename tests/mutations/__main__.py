"""Breaks one promise at a time in a copy of the tree and runs the tests nearest to it: `python -m tests.mutations`.

    python -m tests.mutations [WORD...]     only those whose name or file holds one of the words

Ends with 1 when tests did not notice, or when a row of the table no longer fits the code.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.mutations.bench import Bench, Mutation, misfit
from tests.mutations.table import MUTATIONS


def main(words: list[str]) -> int:
    """Try out the mutations; print what became of each."""
    chosen = [
        each for each in MUTATIONS if not words or any(word in f"{each.name} {each.file}" for word in words)
    ]
    misfits = [f"{each.name}: {told}" for each in chosen if (told := misfit(each))]
    print(*misfits, sep="\n", end="\n" if misfits else "")
    if misfits or not chosen:
        return 1
    with tempfile.TemporaryDirectory(prefix="holdfast-mutations-") as folder:
        return _try_out(Bench(Path(folder)), chosen)


def _try_out(bench: Bench, chosen: list[Mutation]) -> int:
    sound = bench.run(name for each in chosen for name in each.tests.split())
    if sound.how != "passed":
        print(f"{sound.output}\nWithout any mutation the tests {sound.how}.")
        return 1
    unnoticed = 0
    for number, each in enumerate(chosen, 1):
        how, output = bench.try_out(each)
        is_noticed = how == "failed"
        unnoticed += not is_noticed
        print(
            f"{number:3}/{len(chosen)} {'noticed' if is_noticed else how.upper():8} {each.name} ({each.file})",
            flush=True,
        )
        if how == "broken":
            print(output)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} were noticed.")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
