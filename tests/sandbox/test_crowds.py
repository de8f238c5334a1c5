"""Many commands at once in bubblewrap, and commands of many processes: each ends whole, at its limit."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Fence, Finding, Launch
from holdfast.sandbox import bubblewrap, landlock, trees
from holdfast.sandbox.probing import interpreter
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.within import how_ended

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

PATIENCE_S = 60.0


def launch(workspace: Path, command: str, name: str, timeout_s: float = PATIENCE_S) -> Launch:
    (workspace / ".env").touch()
    fence = Fence((str(workspace),), interpreter(), masked=(str(workspace / ".env"),))
    argv, environ = ("/bin/bash", "-c", command), clean_environment(os.environ)
    key = f"test-{os.getpid()}:{name}"
    return Launch(argv, str(workspace), key, environ, timeout_s, PATIENCE_S, never_over, fence=fence)


@pytest.mark.long
@pytest.mark.requirement("L2", "C8")
async def test_fifty_commands_at_once_end_whole_each_in_its_fence(
    processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("x")
    command = "(setsid sleep 300 &); cat .env; echo ran"
    launches = [launch(tmp_path, command, str(number)) for number in range(50)]
    ended = await asyncio.gather(*(processes.run(each, lambda _: None) for each in launches))
    assert {each.output for each in ended} == {"cat: .env: Permission denied\nran\n"}
    assert trees.members({each.key for each in launches}) == set()
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


@pytest.mark.requirement("L11")
async def test_a_command_may_have_as_many_processes_as_its_fence_says_and_no_more(
    processes: Processes, tmp_path: Path
) -> None:
    command = "for i in $(seq {}); do sleep {} & done; wait; echo waited"
    for count, pause_s, how in ((15, 0.2, "exited"), (40, 100, "processes")):
        call = launch(tmp_path, command.format(count, pause_s), "some")
        assert call.fence is not None
        call = replace(call, fence=replace(call.fence, processes=20))
        ended = await processes.run(call, lambda _: None)
        assert (ended.how, ended.output == "waited\n") == (how, how == "exited")
        assert trees.members({call.key}) == set()


MEMORY = """
import mmap, os, sys, time
kind, count = sys.argv[1], int(sys.argv[2])
if kind == "hidden":
    import ctypes
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
taken = bytearray(b"x") * (60 << 20)
if kind == "shared":
    other = mmap.mmap(-1, count * (60 << 20))
    for at in range(0, len(other), 4096): other[at] = 1
if kind == "file":
    with open("large", "wb") as file: file.truncate(count * (60 << 20))
    other = mmap.mmap(os.open("large", os.O_RDONLY), 0, prot=mmap.PROT_READ)
    sum(other[at] for at in range(0, len(other), 4096))
alone = kind in ("shared", "file")
for _ in range(0 if alone else count - 1):
    if not os.fork():
        if kind in ("own", "hidden"):
            for at in range(0, len(taken), 4096): taken[at] = 2
        time.sleep(0.5)
        os._exit(0)
time.sleep(0.4)
for _ in range(0 if alone else count - 1): os.wait()
print("done", flush=True)
"""


@pytest.mark.requirement("L11", "L2")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize(
    ("kind", "count", "how"),
    [
        ("own", 3, "exited"),
        ("own", 12, "memory"),
        ("forked", 12, "exited"),
        ("shared", 10, "memory"),
        ("hidden", 12, "memory"),
    ],
)
async def test_all_processes_of_a_command_together_have_a_limit_of_memory(
    tmp_path: Path, backend: str, kind: str, count: int, how: str
) -> None:
    """What a process has from the one that forked it counts once, as long as neither changes it."""
    made = {"bubblewrap": bubblewrap.make, "landlock": landlock.make}[backend]()
    if isinstance(made, Finding):
        pytest.skip(made.fault)
    (tmp_path / "take.py").write_text(MEMORY)
    call = launch(tmp_path, f"exec {sys.executable} take.py {kind} {count}", f"takes {backend}")
    assert call.fence is not None
    fence = replace(call.fence, masked=(), memory_bytes=100 << 20)
    processes = Processes(made)
    ended = await processes.run(replace(call, fence=fence), lambda _: None)
    await processes.aclose()
    assert (ended.how, ended.output) == (how, "done\n" if how == "exited" else "")
    if how == "memory":
        assert "what [sandbox] memory allows" in how_ended(ended)
    assert trees.members({call.key}) == set()


@pytest.mark.requirement("L11")
async def test_the_kernel_too_limits_the_processes_of_a_command_with_their_threads(
    processes: Processes, tmp_path: Path
) -> None:
    """It stops what is faster than a guard, and does not bind root."""
    call = launch(tmp_path, "ulimit -Hu", "limited")
    assert call.fence is not None
    call = replace(call, fence=replace(call.fence, processes=20))
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    least = 80 if most == resource.RLIM_INFINITY else min(most, 80)
    assert (await processes.run(call, lambda _: None)).output == f"{least}\n"


@pytest.mark.requirement("L11")
async def test_a_command_that_uses_too_much_processor_time_is_ended(
    processes: Processes, tmp_path: Path
) -> None:
    call = launch(tmp_path, "while :; do :; done", "busy")
    assert call.fence is not None
    ended = await processes.run(replace(call, fence=replace(call.fence, cpu_s=1)), lambda _: None)
    assert (ended.how, ended.exit_code) == ("exited", 152)


def cpu_limit_of_guard(key: str) -> str:
    """What the kernel says about the guard of a call that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "comm").read_text().strip() == trees.guard_name(key):
                lines = (folder / "limits").read_text().splitlines()
                return next(line.split()[3] for line in lines if line.startswith("Max cpu time"))
    return "no guard"


@pytest.mark.requirement("L11", "L2")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_the_limit_of_processor_time_binds_a_command_and_not_its_guard(
    tmp_path: Path, backend: str
) -> None:
    """A guard looks for processes as long as its command runs."""
    made = {"bubblewrap": bubblewrap.make, "landlock": landlock.make}[backend]()
    if isinstance(made, Finding):
        pytest.skip(made.fault)
    processes, seen = Processes(made), list[str]()
    call = launch(tmp_path, "ulimit -Ht; sleep 0.3", f"watched {backend}")
    assert call.fence is not None
    call = replace(call, fence=replace(call.fence, masked=(), cpu_s=1_000))
    ended = await processes.run(call, lambda _: seen.append(cpu_limit_of_guard(call.key)))
    await processes.aclose()
    assert (ended.output, seen) == ("1001\n", ["unlimited"])


@pytest.mark.long
@pytest.mark.requirement("L2", "C8", "L11")
@pytest.mark.parametrize(
    "command",
    [
        "f() { (f &) ; }; for i in $(seq 50); do (f &); done; sleep 300",
        f"{sys.executable} -c 'import os, time; [os.fork() or time.sleep(300) for _ in range(1000)]'; sleep 300",
        "f() { sleep 0.3; f & f & wait; }; f & wait",
    ],
    ids=["each forks one and exits", "a thousand that stay", "always twice as many"],
)
async def test_processes_without_end_end_their_call(
    processes: Processes, tmp_path: Path, command: str
) -> None:
    call = launch(tmp_path, command, "bomb")
    ended = await processes.run(call, lambda _: None)
    assert ended.how == "processes"
    assert trees.members({call.key}) == set()
