"""Commands that stop themselves at a moment that a test names, and are woken or killed there."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.edge.machine import CUSTOMIZED, Machine

SESSION = "test:sleeper"
PATIENCE_S = 120.0
LEASE_MS = 3_000
"""The lease of a process that goes on with its own session: longer than a moment of work, on any machine."""
SHORT_LEASE = {"LEASE_MS": str(LEASE_MS), "PYTHONPATH": str(CUSTOMIZED)}
LOST_MS = 1_500
"""The lease of a process that loses it: long enough to reach the moment at which it sleeps."""
NEXT = {"LAPSE_S": "0.1", "PYTHONPATH": str(CUSTOMIZED)}
"""A process that takes the session over looks often."""


@contextmanager
def asleep(machine: Machine, at: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has stopped itself there."""
    command = ("run", "go", "-s", SESSION, "--autonomy", "full", "--stream-json", *arguments)
    with stopped(machine, at, *command, **environ) as process:
        yield process


@contextmanager
def stopped(machine: Machine, at: str, *command: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has stopped itself there."""
    with machine.start(*command, SLEEPS_AT=at, **{**SHORT_LEASE, **environ}) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while state_of(process.pid) != "T":
                assert process.poll() is None, machine.said.read_text()
                assert time.monotonic() < deadline, f"it is not asleep but {state_of(process.pid)}"
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def state_of(pid: int) -> str:
    """As the kernel tells it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wake(process: subprocess.Popen[str]) -> int:
    """Let it go on, to its end."""
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=PATIENCE_S)
    return process.returncode


def content(path: Path) -> str:
    """Return the content of the file; empty while the file does not exist."""
    return path.read_text() if path.exists() else ""


def until(look: Callable[[], str]) -> str:
    """Look until there is something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def sleep_past_the_lease() -> None:
    """Wait until a lease that is held now has lapsed, if nobody renews it."""
    until_s = time.monotonic() + LEASE_MS / 1000
    while time.monotonic() < until_s:
        time.sleep(0.1)
