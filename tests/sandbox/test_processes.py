"""A process tree ends with its call: at its end, its timeout, its silence, its flood, its cancellation."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.protocol.fence import FLOOD_BYTES, KEPT_BYTES, Launch, Undone
from holdfast.sandbox import guard as guarding
from holdfast.sandbox import process, trees, waiting
from holdfast.sandbox.guard import guard
from holdfast.sandbox.process import Processes, clean_environment
from holdfast.sandbox.proxy import ROOT
from holdfast.testing.clock import never_over

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks at processes through /proc")

KEY, OTHER_KEY = f"test-{os.getpid()}:t1.c1", f"test-{os.getpid()}:t1.c2"
INNER_KEY = f"test-{os.getpid()}:inner"
PATIENCE_S = 120.0
GRANDCHILDREN = (
    "sleep 300 & setsid sleep 300 & "
    "(setsid nohup sh -c 'trap \"\" TERM; sleep 300; sleep 300' &) ; echo started; "
)


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = Processes()
    yield made
    await made.aclose()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Also a test that fails leaves no process behind."""
    yield
    trees.end_trees({KEY, OTHER_KEY, INNER_KEY})


def launch(command: str, cwd: Path, **changes: object) -> Launch:
    plain = Launch(
        ("/bin/sh", "-c", command), str(cwd), KEY, clean_environment(os.environ), 20.0, 20.0, never_over
    )
    return msgspec.structs.replace(plain, **changes)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - no event tells of other processes
            await asyncio.sleep(0.02)


def wait(is_so: Callable[[], bool]) -> None:
    """Wait for a fact where there is no loop."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def left_over() -> set[int]:
    return trees.members({KEY})


@pytest.mark.requirement("L1", "C8")
async def test_a_command_gives_its_output_and_its_exit_code(processes: Processes, tmp_path: Path) -> None:
    heard: list[str] = []
    ended = await processes.run(launch("echo out; echo err >&2; pwd; exit 3", tmp_path), heard.append)
    assert (ended.how, ended.exit_code) == ("exited", 3)
    assert ended.output == f"out\nerr\n{tmp_path}\n" == "".join(heard)


@pytest.mark.requirement("L1", "C8")
async def test_at_the_timeout_the_whole_tree_is_killed_also_what_left_its_session(
    processes: Processes, tmp_path: Path, skip_ahead: Callable[[float], None]
) -> None:
    limits = {"timeout_s": 1_000.0, "idle_s": 9_000.0}
    ended = await processes.run(
        launch(GRANDCHILDREN + "sleep 300", tmp_path, **limits), lambda _: skip_ahead(1_000.0)
    )
    assert ended.how == "timeout"
    assert ended.output.startswith("started\n")  # a shell may add that a child was killed
    assert left_over() == set()


WAITING = (
    "for i in $(seq 20); do (sleep 300 || echo waiting >> log; echo next >> log) & "
    "if [ $i -le 4 ]; then (while /bin/true; do :; done; echo forking >> log) & fi; "
    "(setsid sh -c 'sleep 300; echo away >> log' &) ; done; echo started; "
    "sleep 300 || echo first >> log; echo last >> log"
)
"""Many shells, each with a next command that is due as soon as what it waits for is gone. Only a few fork without
end: more of them would leave no time to anything else on a busy machine."""


@pytest.mark.requirement("L1", "C8")
@pytest.mark.parametrize("how", ["timeout", "cancelled", "from outside"])
async def test_no_shell_of_a_command_that_is_ended_begins_its_next_command(
    processes: Processes, tmp_path: Path, skip_ahead: Callable[[float], None], how: str
) -> None:
    is_started = asyncio.Event()
    limits = {"timeout_s": 1_000.0, "idle_s": 9_000.0}
    call = asyncio.create_task(processes.run(launch(WAITING, tmp_path, **limits), lambda _: is_started.set()))
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    match how:
        case "timeout":
            skip_ahead(1_000.0)
            assert (await call).how == "timeout"
        case "cancelled":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        case _:
            await processes.end([KEY])
            await call
    assert left_over() == set()
    assert not (tmp_path / "log").exists(), (tmp_path / "log").read_text()


@pytest.mark.requirement("C8")
async def test_what_a_command_left_in_the_background_begins_no_next_command_either(
    processes: Processes, tmp_path: Path
) -> None:
    background = WAITING.partition("; sleep 300 ||")[0]
    assert (await processes.run(launch(background, tmp_path), lambda _: None)).how == "exited"
    assert left_over() == set()
    assert not (tmp_path / "log").exists(), (tmp_path / "log").read_text()


@pytest.mark.requirement("C8")
async def test_a_tree_is_ended_also_where_a_look_at_it_takes_longer_than_its_end_may(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_started = asyncio.Event()
    command = launch(GRANDCHILDREN + "sleep 300", tmp_path)
    call = asyncio.create_task(processes.run(command, lambda _: is_started.set()))
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    ticks = itertools.count(step=60)
    monkeypatch.setattr(trees.time, "monotonic", lambda: next(ticks))
    trees.end_trees({KEY})
    monkeypatch.undo()
    assert (await call).exit_code == -signal.SIGKILL  # what was killed may take a moment to be gone
    assert left_over() == set()


HEADLESS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
print("started", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.requirement("C8")
async def test_a_process_whose_first_thread_has_ended_counts_until_its_last_one_has(
    processes: Processes, tmp_path: Path
) -> None:
    argv = (sys.executable, "-I", "-S", "-c", HEADLESS)
    is_started = asyncio.Event()
    call = asyncio.create_task(processes.run(launch("", tmp_path, argv=argv), lambda _: is_started.set()))
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    (pid,) = left_over()
    await until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text())
    assert left_over() == {pid}
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert left_over() == set()


@pytest.mark.requirement("C8")
async def test_when_a_command_ends_what_it_left_in_the_background_ends_too(
    processes: Processes, tmp_path: Path
) -> None:
    ended = await processes.run(launch(GRANDCHILDREN, tmp_path), lambda _: None)
    assert (ended.how, ended.exit_code) == ("exited", 0)
    assert ended.output.startswith("started\n")
    assert left_over() == set()


@pytest.mark.requirement("L1")
async def test_silence_ends_a_command_and_output_keeps_it_alive(
    processes: Processes, tmp_path: Path, skip_ahead: Callable[[float], None]
) -> None:
    """After each line most of the time goes by that silence may take, after the last one more."""

    def hear(line: str) -> None:
        asyncio.get_running_loop().call_soon(skip_ahead, 2_000.0 if line.endswith("4\n") else 900.0)

    talks = "for i in 1 2 3 4; do echo $i; sleep 0.01; done; sleep 300"
    ended = await processes.run(launch(talks, tmp_path, idle_s=1_000.0, timeout_s=90_000.0), hear)
    assert (ended.how, ended.output) == ("idle", "1\n2\n3\n4\n")
    assert left_over() == set()


@pytest.mark.requirement("L2-06", "C8")
async def test_cancelling_a_call_ends_its_tree(processes: Processes, tmp_path: Path) -> None:
    is_started = asyncio.Event()
    call = asyncio.create_task(
        processes.run(launch(GRANDCHILDREN + "sleep 300", tmp_path), lambda _: is_started.set())
    )
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert left_over() == set()


@pytest.mark.requirement("L7", "L1")
async def test_what_the_check_of_a_cancelled_call_began_is_ended(
    processes: Processes, tmp_path: Path
) -> None:
    heard: list[str] = []

    def check() -> int:
        heard.append("begun")
        running.cancel()
        return sys.maxsize

    def put_right() -> Undone:
        heard.append("ended")
        return Undone()

    told = launch("sleep 60", tmp_path, check=check, put_right=put_right)
    running = asyncio.create_task(processes.run(told, lambda _: None))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == ["begun", "ended"]


async def test_fifty_megabytes_of_output_end_well_in_bounded_memory(
    processes: Processes, tmp_path: Path
) -> None:
    # What masks a long output takes the same memory for each.
    await processes.run(launch(f"head -c {3 * KEPT_BYTES} /dev/zero", tmp_path), lambda _: None)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = 50 << 20
    command = f"echo first; head -c {size} /dev/zero | tr '\\0' x; echo; echo last"
    ended = await processes.run(launch(command, tmp_path), lambda _: None)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert (ended.how, ended.exit_code) == ("exited", 0)
    assert ended.output_bytes == len("first\n") + size + len("\nlast\n")
    assert ended.output.startswith("first\n")
    assert ended.output.endswith("x\nlast\n")
    assert "bytes of output not kept" in ended.output
    assert len(ended.output) < 2 * KEPT_BYTES + (1 << 18)
    assert grown_kib < 32 << 10


@pytest.mark.requirement("L7")
async def test_an_endless_output_is_ended(processes: Processes, tmp_path: Path) -> None:
    ended = await processes.run(launch("yes", tmp_path), lambda _: None)
    assert ended.how == "flood"
    assert ended.output_bytes > FLOOD_BYTES
    assert left_over() == set()


@pytest.mark.requirement("C12", "C8")
async def test_a_command_sees_a_clean_environment(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-tools")
    monkeypatch.setenv("LC_TIME", "C")
    ended = await processes.run(launch("env", tmp_path), lambda _: None)
    names = {line.partition("=")[0] for line in ended.output.splitlines()}
    assert {"PATH", "LC_TIME", trees.VARIABLE} <= names
    assert not any("KEY" in name or "TOKEN" in name for name in names)


@pytest.mark.requirement("L7")
async def test_output_that_is_no_text_is_shown_with_replacements(
    processes: Processes, tmp_path: Path
) -> None:
    heard: list[str] = []
    ended = await processes.run(launch("printf 'a\\377\\303\\251'", tmp_path), heard.append)
    assert ended.output == "a\ufffdé" == "".join(heard)


@pytest.mark.requirement("L7")
async def test_what_cannot_be_started_raises_and_leaves_nothing_open(
    processes: Processes, tmp_path: Path
) -> None:
    await processes.run(launch("true", tmp_path), lambda _: None)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for broken in (launch("true", tmp_path / "gone"), launch("", tmp_path, argv=("/no/such/program",))):
        with pytest.raises(FileNotFoundError):
            await processes.run(broken, lambda _: None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.requirement("C8")
async def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before, processes = children.read_text(), Processes()
    await processes.run(launch("true", tmp_path), lambda _: None)
    assert children.read_text() != before
    await processes.aclose()
    assert children.read_text() == before


@pytest.mark.requirement("S7")
async def test_who_watches_a_command_has_a_clean_environment_too(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands without a sandbox can read it."""
    monkeypatch.setenv("SOME_API_KEY", bait := "bait-" + "of-a-key")
    ended = await processes.run(launch("cat /proc/$PPID/environ", tmp_path), lambda _: None)
    assert "PATH=" in ended.output
    assert bait not in ended.output


async def test_closing_ends_what_still_runs(tmp_path: Path) -> None:
    processes, is_started = Processes(), asyncio.Event()
    call = asyncio.create_task(
        processes.run(launch("echo; exec sleep 300", tmp_path), lambda _: is_started.set())
    )
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    await processes.aclose()
    assert left_over() == set()
    assert (await call).exit_code == -signal.SIGKILL


@pytest.mark.requirement("H1", "C8")
async def test_who_takes_over_ends_what_carries_the_calls_key(processes: Processes, tmp_path: Path) -> None:
    orphan = await asyncio.create_subprocess_exec(
        "sleep", "300", env={trees.VARIABLE: KEY}, start_new_session=True
    )
    other = await asyncio.create_subprocess_exec("sleep", "300", env={trees.VARIABLE: OTHER_KEY})
    await processes.end([KEY])
    assert await asyncio.wait_for(orphan.wait(), PATIENCE_S) < 0
    assert other.returncode is None
    other.kill()
    await other.wait()


DRIVER = """
import asyncio, sys
from holdfast.protocol.fence import Launch
from holdfast.sandbox.process import Processes
async def main():
    launch = Launch(("/bin/sh", "-c", sys.argv[2]), "/", sys.argv[1], {}, 300.0, 300.0, lambda: 9**12)
    await Processes().run(launch, lambda text: print(text, end="", flush=True))
asyncio.run(main())
"""


@pytest.mark.requirement("H1", "C8")
@pytest.mark.parametrize("how", ["SIGKILL", "in a group with its keeper's relatives"])
async def test_when_the_driver_is_killed_its_tools_go_too(how: str) -> None:
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, INNER_KEY, GRANDCHILDREN + "sleep 300",
        stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert driver.stdout is not None
    assert await asyncio.wait_for(driver.stdout.readline(), PATIENCE_S) == b"started\n"
    assert len(trees.members({INNER_KEY})) >= 4
    if how == "SIGKILL":
        driver.kill()
    else:
        os.killpg(driver.pid, 9)
    await driver.wait()
    await until(lambda: not trees.members({INNER_KEY}))


@pytest.mark.requirement("H1", "C8")
@pytest.mark.parametrize("before", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
async def test_a_driver_inside_a_tool_takes_its_own_tools_with_it(
    processes: Processes, tmp_path: Path, before: str
) -> None:
    argv = (sys.executable, "-c", before + DRIVER, INNER_KEY, GRANDCHILDREN + "sleep 300")
    is_started = asyncio.Event()
    call = asyncio.create_task(processes.run(launch("", tmp_path, argv=argv), lambda _: is_started.set()))
    await asyncio.wait_for(is_started.wait(), PATIENCE_S)
    assert trees.members({INNER_KEY})
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not trees.members({INNER_KEY}))


@pytest.mark.requirement("H1")
async def test_a_keeper_that_was_killed_is_replaced(processes: Processes, tmp_path: Path) -> None:
    await processes.run(launch("true", tmp_path), lambda _: None)
    first = processes._keeper
    assert first is not None
    first.process.kill()
    first.process.wait()
    assert (await processes.run(launch("echo on", tmp_path), lambda _: None)).output == "on\n"
    assert processes._keeper is not None
    assert processes._keeper.process.pid != first.process.pid


async def test_many_commands_at_once_do_not_disturb_each_other(processes: Processes, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(
                processes.run(
                    launch(f"sleep 0.1; echo {shlex.quote(str(n))}", tmp_path, key=f"k{n}"), lambda _: None
                )
            )
            for n in range(12)
        ]
    assert [run.result().output for run in runs] == [f"{n}\n" for n in range(12)]


REQUEST = {
    "until_ms": sys.maxsize, "name": "hf-test", "argv": ["/bin/sleep", "300"], "cwd": "/", "env": {"PATH": "/bin"},
    "has_stdin": False, "has_stderr": False, "pass_fds": [], "given": {}, "opened": {}, "limits": {}, "held": None,
    "rights": None, "covered": [], "processes": 0, "memory": 0,
}  # fmt: skip
"""What a guard is asked."""


@pytest.mark.requirement("C8", "L1")
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_guard_that_was_frozen_before_it_had_its_name_starts_nothing_when_its_driver_is_gone(
    tmp_path: Path, is_gone: bool
) -> None:
    """The next driver could not find it, and may be at work."""
    here, there = socket.socketpair()
    request = {**REQUEST, "argv": ["/bin/sh", "-c", "touch ran"], "cwd": str(tmp_path)}
    here.sendall(json.dumps(request).encode() + b"\n")
    if is_gone:
        here.close()
    pid = os.fork()
    if not pid:
        here.close()
        guard(there, [os.open(os.devnull, os.O_WRONLY)], [])
    there.close()
    os.waitpid(pid, 0)
    here.close()
    assert (tmp_path / "ran").exists() is not is_gone


@pytest.mark.requirement("C8", "L1")
def test_a_guard_whose_driver_is_gone_right_before_the_start_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program that began and was ended at once may have done something, while the next driver is at work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "posix_spawnp", lambda *_, **__: pytest.fail("It was started."))
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(guarding._TooLate):
        guarding._started(REQUEST, [os.open(os.devnull, os.O_WRONLY)], [reading])
    os.close(reading)


@pytest.mark.requirement("C8", "L2")
def test_a_guard_whose_call_fails_after_its_first_process_began_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = socket.socketpair()
    told, telling = os.pipe()
    here.sendall(json.dumps(REQUEST).encode() + b"\n")
    if not (pid := os.fork()):
        start = guarding._started

        def started(*arguments: Any) -> tuple[int, tuple[int, int]]:
            root, _ = start(*arguments)
            os.write(telling, b"%d" % root)
            return root, (told, telling)

        def let_in(*_: Any) -> None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        monkeypatch.setattr(guarding, "_started", started)
        monkeypatch.setattr(guarding, "_let_in", let_in)
        guard(there, [os.open(os.devnull, os.O_WRONLY)], [])
    there.close()
    root = int(os.read(told, 20))
    with here, here.makefile() as said:
        assert [*said] == [f'["failed", {errno.ESTALE}]\n']
    os.waitpid(pid, 0)
    assert not Path(f"/proc/{root}").exists()
    for fd in (told, telling):
        os.close(fd)


@pytest.mark.requirement("C8")
def test_a_keeper_ends_with_its_driver_also_if_another_process_has_its_socket() -> None:
    """As one that the driver forked, and that lives on."""
    driver = os.posix_spawn("/bin/true", ["true"], {})
    door, given = socket.socketpair()
    words = [sys.executable, "-I", "-S", process._KEEPER, ROOT, str(driver)]
    with door, given, subprocess.Popen(words, stdin=given.fileno(), cwd="/") as keeper:
        try:
            assert keeper.wait(30) == 0
        finally:
            keeper.kill()
    os.waitpid(driver, 0)


class LostAtLast:
    """Mounts that somebody replaces right before the program ends."""

    fd = -1

    def wait_s(self) -> float:
        return PATIENCE_S

    def lost(self, *, is_last: bool = False) -> str:
        return "/ws/.env" if is_last else ""


@pytest.mark.requirement("L2")
def test_a_guard_looks_once_more_when_the_program_has_ended() -> None:
    """Between two looks, a program may read a file that was replaced, and end."""
    here, there = socket.socketpair()
    if not (pid := os.fork()):
        wakes = waiting.wakes()
        root = os.posix_spawn("/bin/true", ["true"], {})
        inside = guarding._Inside([], -1, 9, LostAtLast())  # type: ignore[arg-type]
        guarding._watch(root, there, [], wakes, inside, is_alone=False)
        os._exit(0)
    there.close()
    with here, here.makefile() as said:
        assert json.loads(said.readline()) == ["replaced", "/ws/.env"]
    os.waitpid(pid, 0)


@pytest.mark.requirement("C8", "L1")
@pytest.mark.parametrize("others", [0, 1], ids=["the only call", "beside another one"])
def test_what_a_killed_guard_leaves_is_gone_when_the_keeper_closes_the_call(others: int) -> None:
    """The driver counts on that: it may find nothing more by itself."""
    keeper = process._start_keeper()
    calls = []
    try:
        for number in range(others + 1):
            here, there = socket.socketpair()
            with there, Path(os.devnull).open("wb") as nothing:
                socket.send_fds(keeper.door, [b"+"], [there.fileno(), nothing.fileno()])
            sleeping = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do setsid sleep 300 & done; wait"]
            asked = {**REQUEST, "argv": sleeping, "name": f"hf-{number}", "env": {trees.VARIABLE: KEY}}
            here.sendall(json.dumps(asked).encode() + b"\n")
            calls.append(here)
        wait(lambda: len(left_over()) == 9 * (others + 1))
        guards = Path(f"/proc/{keeper.process.pid}/task/{keeper.process.pid}/children").read_text().split()
        os.kill(int(guards[0]), signal.SIGKILL)
        calls[0].settimeout(PATIENCE_S)
        assert calls[0].recv(1) == b""
        assert len(left_over()) == 9 * others
    finally:
        for here in calls:
            here.close()
        keeper.dismiss()
    assert not left_over()


@pytest.mark.requirement("L1", "L2")
async def test_a_tree_that_cannot_be_ended_counts_as_running_and_nothing_is_undone_under_it(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(process, "_HOPE_S", 0.1)
    monkeypatch.setattr(trees, "end_trees", lambda _: False)
    undone: list[str] = []

    def put_right() -> Undone:
        undone.append("undone")
        return Undone()

    command = "kill -STOP $PPID; touch stopped; exec sleep 60"
    ended = await processes.run(launch(command, tmp_path, timeout_s=0.5, put_right=put_right), lambda _: None)
    assert (tmp_path / "stopped").exists()
    assert (ended.how, undone) == ("left", [])
    monkeypatch.undo()
    assert trees.end_trees({KEY})


@pytest.mark.requirement("C8", "L2")
async def test_a_call_that_is_cancelled_again_while_it_ends_is_wound_up_all_the_same(
    processes: Processes, tmp_path: Path
) -> None:
    righted = asyncio.Event()
    loop = asyncio.get_running_loop()

    def put_right() -> Undone:
        time.sleep(0.2)
        loop.call_soon_threadsafe(righted.set)
        return Undone()

    call = asyncio.create_task(
        processes.run(launch("sleep 300", tmp_path, put_right=put_right), lambda _: None)
    )
    await until(lambda: bool(left_over()))
    for _ in range(5):
        call.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert righted.is_set()


@pytest.mark.requirement("L2", "C8")
async def test_the_folder_of_its_own_goes_however_deep_it_is_and_after_what_was_put_right(
    processes: Processes, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    own, heard = tmp_path / "own", []
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(own)], check=True))

    def put_right() -> Undone:
        heard.append(own.exists())
        raise ValueError("a fault")

    deep = "import os\nfor _ in range(3_000): os.mkdir('abc'); os.chdir('abc')\nos.chmod('.', 0)"
    script = f'mkdir own; cd own; touch x; mkdir -p closed/b; chmod 0 closed; {sys.executable} -c "{deep}"'
    told = msgspec.structs.replace(launch(script, tmp_path, put_right=put_right), own_folder=str(own))
    with pytest.raises(ValueError, match="a fault"):
        await processes.run(told, lambda _: None)
    assert (heard, own.exists()) == ([True], False)
