"""Swaps what is in a workspace for links that lead out of it, in one step and as fast as a process of its own can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

_SWAP = """
import ctypes, os, signal, sys, time
exchange, cwd = ctypes.CDLL(None).renameat2, -100
pairs = [(os.fsencode(here), os.fsencode(away), to) for here, away, to in zip(*[iter(sys.argv[1:])] * 3)]
going, count, parent = [True], 0, os.getppid()
signal.signal(signal.SIGTERM, lambda *_: going.clear())
for _, away, to in pairs:
    os.symlink(to, away)
print("begun", flush=True)
while going:
    for here, away, to in pairs:
        count += exchange(cwd, here, cwd, away, 2) == 0
    if not count % 512:
        if os.getppid() != parent:
            break
        for here, away, to in pairs:  # a tool that replaces the name replaces the link
            if not os.path.islink(here) and not os.path.islink(away):
                os.replace(away, here)
                os.symlink(to, away)
        time.sleep(0.004)  # all is in place, so that some calls succeed however fast the machine is
print(count)
"""


class Swaps(msgspec.Struct):
    """How many there were; known at the end."""

    count: int = 0


@contextmanager
def swapping(*pairs: tuple[Path, Path]) -> Iterator[Swaps]:
    """Turn each first path into a link to the second one and back, again and again.

    The link is kept in the folder of the first path, under its name with `.link` behind it.
    """
    names = [name for here, outside in pairs for name in (str(here), f"{here}.link", str(outside))]
    swaps = Swaps()
    process = subprocess.Popen([sys.executable, "-S", "-c", _SWAP, *names], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        yield swaps
    finally:
        process.terminate()
        swaps.count = int(process.stdout.read())
        process.stdout.close()
        assert process.wait() == 0
