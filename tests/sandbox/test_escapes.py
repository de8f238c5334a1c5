"""No process outlives its call: also one that forks twice, leaves the session and clears its environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.protocol.fence import Launch
from holdfast.sandbox import trees
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks at processes through /proc")

KEY = f"test-{os.getpid()}:t1.c1"
ESCAPING = Path(__file__).with_name("escaping.py")
PATIENCE_S = 120.0
LIMIT_S = 1_000.0
ENDLESS = "while :; do sleep 1; done"


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = Processes()
    yield made
    await made.aclose()


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """The file in which escaped processes leave their pids. None outlives its test."""
    file = tmp_path / "pids"
    yield file
    for pid in escaped(file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def escaping(pids: Path, times: int = 1) -> str:
    """The command that lets so many processes escape."""
    return f"{sys.executable} -I -S {ESCAPING} {pids}; " * times + "echo away; "


def launch(command: str) -> Launch:
    environ = clean_environment(os.environ)
    return Launch(("/bin/sh", "-c", command), "/", KEY, environ, LIMIT_S, LIMIT_S, never_over)


def escaped(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def lives(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - no event tells of other processes
            await asyncio.sleep(0.02)


async def begun(processes: Processes, command: str, word: str = "away") -> asyncio.Task[Ended]:
    """A running call that has said this word."""
    has_spoken = asyncio.Event()
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        if word in "".join(heard):
            has_spoken.set()

    call = asyncio.create_task(processes.run(launch(command), hear))
    await asyncio.wait_for(has_spoken.wait(), PATIENCE_S)
    return call


@pytest.mark.requirement("C8")
async def test_a_process_that_escapes_ends_with_its_call(processes: Processes, pids: Path) -> None:
    ended = await processes.run(launch(escaping(pids, times=3)), lambda _: None)
    assert (ended.how, ended.exit_code, ended.output) == ("exited", 0, "away\n")
    assert len(escaped(pids)) == 3
    assert not any(map(lives, escaped(pids)))


@pytest.mark.requirement("C8", "L1")
async def test_a_process_that_escapes_ends_at_the_timeout_of_its_call(
    processes: Processes, pids: Path, skip_ahead: Callable[[float], None]
) -> None:
    call = await begun(processes, escaping(pids) + f"exec env -i /bin/sh -c '{ENDLESS}'")
    skip_ahead(LIMIT_S)
    assert (await call).how == "timeout"
    assert len(escaped(pids)) == 1
    assert not any(map(lives, escaped(pids)))


@pytest.mark.requirement("C8", "L2-06")
async def test_a_process_that_escapes_ends_when_its_call_is_cancelled(
    processes: Processes, pids: Path
) -> None:
    call = await begun(processes, escaping(pids) + ENDLESS)
    assert all(map(lives, escaped(pids)))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(escaped(pids)) == 1
    assert not any(map(lives, escaped(pids)))


DRIVER = """
import asyncio, sys
from holdfast.protocol.fence import Launch
from holdfast.sandbox.process import Processes
async def main():
    launch = Launch(("/bin/sh", "-c", sys.argv[2]), "/", sys.argv[1], {"PATH": "/bin"}, 300.0, 300.0, lambda: 9**12)
    await Processes().run(launch, lambda text: print(text, end="", flush=True))
asyncio.run(main())
"""


async def driver_of(command: str) -> asyncio.subprocess.Process:
    """A process that has begun to run the command for the key."""
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, KEY, command, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert driver.stdout is not None
    assert await asyncio.wait_for(driver.stdout.readline(), PATIENCE_S) == b"away\n"
    return driver


@pytest.mark.requirement("C8", "H1")
async def test_a_process_that_escapes_ends_when_the_driver_is_killed(pids: Path) -> None:
    driver = await driver_of(escaping(pids) + ENDLESS)
    assert [lives(pid) for pid in escaped(pids)] == [True]
    driver.kill()
    await driver.wait()
    await until(lambda: not any(map(lives, escaped(pids))))
    await until(lambda: not trees.members({KEY}))


@pytest.mark.requirement("C8", "H1")
@pytest.mark.parametrize("rest", [ENDLESS, f"exec env -i /bin/sh -c '{ENDLESS}'"])
async def test_who_takes_over_from_a_frozen_driver_ends_what_escaped_it(
    processes: Processes, pids: Path, rest: str
) -> None:
    """Also where no process is left that carries the key in its environment."""
    driver = await driver_of(escaping(pids) + rest)
    driver.send_signal(signal.SIGSTOP)
    try:
        await processes.end([KEY])
        assert [lives(pid) for pid in escaped(pids)] == [False]
        assert trees.members({KEY}) == set()
    finally:
        driver.kill()
        await driver.wait()


@pytest.mark.requirement("C8")
async def test_a_command_that_kills_its_guard_takes_what_escaped_with_it(
    processes: Processes, pids: Path
) -> None:
    ended = await processes.run(launch(escaping(pids) + "kill -9 $PPID; " + ENDLESS), lambda _: None)
    assert (ended.how, ended.exit_code) == ("exited", -9)
    assert [lives(pid) for pid in escaped(pids)] == [False]
    assert trees.members({KEY}) == set()


@pytest.mark.requirement("C8", "L1")
async def test_a_command_that_freezes_its_guard_is_ended_all_the_same(
    processes: Processes, pids: Path, skip_ahead: Callable[[float], None]
) -> None:
    call = await begun(processes, escaping(pids) + "kill -STOP $PPID; echo frozen; " + ENDLESS, "frozen")
    skip_ahead(LIMIT_S)
    assert (await call).how == "timeout"
    assert [lives(pid) for pid in escaped(pids)] == [False]
    assert trees.members({KEY}) == set()


@pytest.mark.requirement("C8", "H1")
async def test_a_call_goes_on_and_ends_whole_when_the_keeper_is_killed(
    processes: Processes, pids: Path
) -> None:
    go_on = pids.with_name("go-on")
    command = escaping(pids) + f"until [ -e {go_on} ]; do sleep 0.05; done; echo on; exit 3"
    call = await begun(processes, command)
    assert processes._keeper is not None
    processes._keeper.process.kill()
    processes._keeper.process.wait()
    go_on.touch()
    ended = await call
    assert (ended.how, ended.exit_code, ended.output) == ("exited", 3, "away\non\n")
    assert [lives(pid) for pid in escaped(pids)] == [False]


@pytest.mark.requirement("C8")
async def test_a_command_finds_no_signal_blocked_or_ignored_whatever_its_driver_does() -> None:
    """Under nohup, SIGHUP is ignored; a job in the background of a shell ignores SIGINT."""
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)}
    processes = Processes()
    try:
        ended = await processes.run(launch("grep -E 'Sig(Blk|Ign)' /proc/self/status"), lambda _: None)
    finally:
        await processes.aclose()
        for number, handler in ignored.items():
            signal.signal(number, handler)
    masks = [int(line.split()[1], 16) for line in ended.output.splitlines()]
    inner = 1 << 31 | 1 << 32  # 32 and 33 are the C library's own
    assert [mask & ~inner for mask in masks] == [0, 0]
