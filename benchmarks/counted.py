"""One session, and how many functions are called for it: prints one JSON object.

`python -m benchmarks.counted SYSTEM PORT TURNS FOLDER`, where SYSTEM is holdfast or floor-grouped: warms up, so that
what a process does once is done (making the first snapshot, looking up a model), sees a session of so many turns
through, and counts another one. Functions of Python and of C are counted, in all threads. With the variable UNCOUNTED
nothing is, so that somebody outside may count the instructions of the process: those of both sessions.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from pathlib import Path

from benchmarks.cell import worker

WARM_TURNS = 60


class Calls:
    """Counts the calls in this thread and in all that are started later, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self._numbers = itertools.count()
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    def _count(self, frame: object, event: str, _: object) -> None:
        if self.is_on and event in ("call", "c_call"):
            next(self._numbers)

    def total(self) -> int:
        """How many there were."""
        self.is_on = False
        return next(self._numbers)


async def count(system: str, port: int, turns: int, folder: Path) -> int:
    """The calls of the session; 0 when nobody counts."""
    calls = None if "UNCOUNTED" in os.environ else Calls()
    async with worker(system, port, 0, folder) as work:
        await work(WARM_TURNS, "warm")
        await work(turns, "as-long")
        if calls:
            calls.is_on = True
        assert await work(turns, "counted") == turns
        return calls.total() if calls else 0


def main() -> None:
    """Run the measurement that the arguments name."""
    system, port, turns, folder = sys.argv[1:]
    print(json.dumps({"calls": asyncio.run(count(system, int(port), int(turns), Path(folder)))}))


if __name__ == "__main__":
    main()
