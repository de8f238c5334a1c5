"""No program is started once the time in which it may be is over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import Fenced
from holdfast.protocol.fence import Launch
from holdfast.protocol.ports import Check
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.testing.clock import never_over

KEY = f"test-{os.getpid()}:late"


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = Processes()
    yield made
    await made.aclose()


def touches(file: str, cwd: Path, check: Check) -> Launch:
    command = ("/bin/sh", "-c", f"touch {file}")
    return Launch(command, str(cwd), KEY, clean_environment(os.environ), 20.0, 20.0, check)


@pytest.mark.requirement("C11", "H5")
async def test_a_program_whose_lease_is_over_is_not_started(processes: Processes, tmp_path: Path) -> None:
    def over() -> int:
        raise Fenced("The lease is over.")

    with pytest.raises(Fenced, match="The lease is over"):
        await processes.run(touches("never", tmp_path, over), lambda _: None)
    await processes.run(touches("after", tmp_path, never_over), lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["after"]


@pytest.mark.requirement("C11", "H5")
async def test_who_starts_the_program_looks_once_more_and_is_not_late(
    processes: Processes, tmp_path: Path
) -> None:
    """What starts it is frozen, as everything may be, from before the lease ends until after it."""
    await processes.run(touches("before", tmp_path, never_over), lambda _: None)
    keeper = keeper_of(os.getpid())
    os.kill(keeper, signal.SIGSTOP)
    until_ms = SYSTEM_CLOCK.uptime_ms() + 100
    starting = asyncio.create_task(processes.run(touches("late", tmp_path, lambda: until_ms), lambda _: None))
    while SYSTEM_CLOCK.uptime_ms() <= until_ms:  # noqa: ASYNC110 - time is what is waited for
        await asyncio.sleep(0.02)
    os.kill(keeper, signal.SIGCONT)
    with pytest.raises(Fenced, match="before the program could be started"):
        await starting
    assert [path.name for path in tmp_path.iterdir()] == ["before"]


def keeper_of(driver: int) -> int:
    """The pid of the one keeper that serves the process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"keeper_child.py") for word in words) and str(driver).encode() in words:
            found.append(int(entry.name))
    (keeper,) = found
    return keeper
