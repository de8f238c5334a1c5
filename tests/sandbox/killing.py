"""A call of another process, whose driver, keeper and guard are killed together: nobody is left who ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.sandbox import trees

_DRIVER = """
import asyncio, sys
from holdfast.protocol.fence import Fence, Launch
from holdfast.sandbox import {backend}
from holdfast.sandbox.process import Processes

async def main():
    folder, key = sys.argv[1:]
    argv, environ = ("/bin/bash", "-c", "env -i setsid sleep 1000 & echo up; wait"), {{"PATH": "/usr/bin:/bin"}}
    fence = Fence(writable=(folder,))
    launch = Launch(argv, folder, key, environ, 60, 60, lambda: sys.maxsize, fence=fence)
    await Processes({backend}.make()).run(launch, lambda text: print(text, flush=True))

asyncio.run(main())
"""


def kill_all_who_watch(backend: str, folder: Path, key: str) -> set[int]:
    """Begin a call and kill all who could end it. Return the processes that it had by then."""
    words = [sys.executable, "-c", _DRIVER.format(backend=backend), str(folder), key]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "up\n"
        (keeper,) = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        (guard,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        inside = trees.members([key])
        for pid in map(int, (driver.pid, keeper)):  # neither may end the call when it loses the others
            os.kill(pid, signal.SIGSTOP)
        for pid in map(int, (guard, keeper, driver.pid)):
            os.kill(pid, signal.SIGKILL)
    return inside
