"""What a start costs: CPU time of whole processes that import something and end, with compiled modules at hand.

The modules are compiled into a folder of their own first, whatever the environment says about that: so a command
costs what it does on a machine on which it has run before.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROUNDS = 9
BARE = "python"
STARTS = {
    BARE: ("-c", "pass"),
    "import holdfast": ("-c", "import holdfast"),
    "holdfast --help": ("-m", "holdfast", "--help"),
    "holdfast --version": ("-m", "holdfast", "--version"),
    "import aiohttp": ("-c", "import aiohttp"),
}


def cpu_s(arguments: tuple[str, ...], environ: dict[str, str]) -> float:
    """User and system time of one process, from its start to its end."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measured() -> Iterator[dict[str, float | str]]:
    """The least and the median of several starts of each."""
    with tempfile.TemporaryDirectory() as compiled:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = compiled
        for name, arguments in STARTS.items():
            cpu_s(arguments, environ)
            took = [1000 * cpu_s(arguments, environ) for _ in range(ROUNDS)]
            yield {"system": name, "cpu_ms": min(took), "cpu_ms_median": statistics.median(took)}
