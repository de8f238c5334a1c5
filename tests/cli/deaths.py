"""Commands that die: a process that kills itself with SIGKILL right before the N-th of its steps on the disk."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.cli.root import run
from holdfast.storage import writes

_STEPS = ("fsync", "rename", "unlink", "rmdir", "fchmod", "mkdir")
"""Calls of `os` that change what is on the disk, or make it durable."""


def dies_at(step: int, folder: Path, environ: Mapping[str, str], *arguments: str) -> int | None:
    """Run a command in a process that dies before that step. Return its exit code; None if it died."""

    def command() -> int:
        os.chdir(folder)
        os.environ.update(environ)
        return run(arguments)

    return dies_in(step, command)


def dies_in(step: int, work: Callable[[], int]) -> int | None:
    """Do work in a process that dies before that step. Return its exit code; None if it died."""
    pid = os.fork()
    if pid == 0:
        try:
            with open(os.devnull, "r+") as nowhere:  # noqa: PTH123
                for stream in (0, 1, 2):
                    os.dup2(nowhere.fileno(), stream)
            sys.stdin = sys.stdout = sys.stderr = open(os.devnull, "w+")  # noqa: PTH123, SIM115
            _count(step)
            os._exit(work())
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    return os.waitstatus_to_exitcode(status)


def _count(last: int) -> None:
    """Count the steps of this process, and die before the last one. Two steps are a commit's: before and after it."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            step()
            return call(*arguments, **named)

        return counting

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))
    writes.commit = counted(writes.commit)
