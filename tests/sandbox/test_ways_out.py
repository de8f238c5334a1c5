"""Real programs in each sandbox, with a way out through the proxy: what they reach, and what becomes of the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.protocol.fence import Fence, Finding, Launch, Sandbox
from holdfast.sandbox import bubblewrap, landlock, probing
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.sandbox.proxy import BROKEN
from holdfast.testing.clock import never_over
from tests.tools.web_server import Heard, WebServer, response, web_server

LIMIT_S = 60.0
MADE = {"bubblewrap": bubblewrap.make, "landlock": landlock.make}
RATHER_ONE = pytest.mark.parametrize(
    "sandbox", ["bubblewrap", pytest.param("landlock", marks=pytest.mark.long)], indirect=True
)
"""What the proxy does by itself is shown every day with one sandbox."""


@pytest.fixture(params=MADE)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made = MADE[request.param]()
    if isinstance(made, Finding):
        pytest.skip(f"needs {request.param}: {made.fault}")
    return made


@pytest.fixture
async def processes(sandbox: Sandbox) -> AsyncIterator[Processes]:
    processes = Processes(sandbox)
    yield processes
    await processes.aclose()


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        served.answers["/"] = response("hello", "text/plain")
        yield served


def launch(folder: Path, command: str, *hosts: str) -> Launch:
    fence = Fence(
        writable=(str(folder),), readable=probing.interpreter(), private=(str(Path.home()),), hosts=hosts
    )
    argv, environ = ("/bin/bash", "-c", command), clean_environment(os.environ)
    return Launch(
        argv, str(folder), f"test-{os.getpid()}:way", environ, LIMIT_S, LIMIT_S, never_over, fence=fence
    )


async def ran(
    processes: Processes,
    folder: Path,
    command: str,
    *hosts: str,
    hear: Callable[[str], None] = lambda _: None,
) -> Ended:
    return await processes.run(launch(folder, command, *hosts), hear)


def proxies() -> set[int]:
    """The pids of the proxies below this process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            pid = int(path.parent.name)
            if b"proxy_child.py" in path.read_bytes() and os.getpid() in above(pid):
                found.add(pid)
    return found


def above(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


@pytest.mark.requirement("H4", "C12", "L2")
async def test_programs_reach_a_listed_server_and_nothing_else(
    processes: Processes, server: WebServer, tmp_path: Path
) -> None:
    here = f"127.0.0.1:{server.port}"
    fetch = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())"
    command = f"""
        curl -sS {server.url("/")}; echo
        /usr/bin/env python3 -c '{fetch}' {server.url("/")}
        curl -sSp {server.url("/")}; echo
        curl -sS http://127.0.0.1:1/ || echo refused
        getent hosts example.com || echo no names
    """
    ended = await ran(processes, tmp_path, command, here)
    said = ended.output
    assert said.startswith("hello\nb'hello'\nhello\n")
    assert "127.0.0.1:1 is not listed in [network] allow" in said
    assert said.endswith("no names\n")
    # Each is listed when its connection has ended, so a later one may come first.
    assert sorted((each.method, each.where, each.verdict) for each in ended.requests.exchanges) == [
        ("CONNECT", here, "allowed"),
        ("GET", "http://127.0.0.1:1/", "refused"),
        ("GET", server.url("/"), "allowed"),
        ("GET", server.url("/"), "allowed"),
    ]


@RATHER_ONE
@pytest.mark.requirement("H4")
@pytest.mark.parametrize("turns", [0, 2])
async def test_a_cut_counts_also_while_the_way_out_is_being_made(
    processes: Processes, server: WebServer, tmp_path: Path, turns: int
) -> None:
    call = launch(tmp_path, f"curl -sS {server.url('/')}", f"127.0.0.1:{server.port}")
    running = asyncio.create_task(processes.run(call, lambda _: None))
    for _ in range(turns):
        await asyncio.sleep(0)
    processes.cut(call.key)
    ended = await running
    assert ended.exit_code
    assert "hello" not in ended.output
    assert not server.heard
    assert not [*processes._ways, *processes._cut], "a server of many calls would keep each"


PAST = """
import socket, sys
one, asked = socket.socket(), b"GET / HTTP/1.0\\r\\n\\r\\n"
one.settimeout(2)
if sys.argv[1] == "first packet":
    one.sendto(asked, 0x20000000, ("127.0.0.1", int(sys.argv[2])))
else:
    one.connect(("127.0.0.1", int(sys.argv[2])))
    one.send(asked)
print(one.recv(999))
"""


@pytest.mark.requirement("H4", "C12", "L2")
@pytest.mark.parametrize(
    "ask",
    [
        "curl -sS --noproxy '*' --max-time 2 http://127.0.0.1:{port}/",
        "exec 3<> /dev/tcp/127.0.0.1/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 2 cat <&3",
        "/usr/bin/env python3 past.py connect {port}",
        "/usr/bin/env python3 past.py 'first packet' {port}",
    ],
)
async def test_no_connection_leads_past_the_proxy_to_a_listed_server(
    processes: Processes, server: WebServer, tmp_path: Path, ask: str
) -> None:
    (tmp_path / "past.py").write_text(PAST)
    ended = await ran(processes, tmp_path, ask.format(port=server.port), f"127.0.0.1:{server.port}")
    assert "hello" not in ended.output
    assert server.heard == []
    assert "allowed" not in {each.verdict for each in ended.requests.exchanges}


SERVE = """
import socket, sys
server = socket.socket()
for serve in (lambda: server.bind(("127.0.0.1", 0)), lambda: server.listen(), lambda: server.accept()):
    try:
        serve()
    except PermissionError:
        print("refused")
"""


async def test_without_a_network_of_its_own_a_program_cannot_wait_for_connections(
    processes: Processes, sandbox: Sandbox, tmp_path: Path
) -> None:
    if sandbox.backend == "bubblewrap":
        pytest.skip("needs a sandbox in the network of the machine")
    (tmp_path / "serve.py").write_text(SERVE)
    ended = await ran(processes, tmp_path, "/usr/bin/env python3 serve.py", "a.example")
    assert ended.output.split() == ["refused"] * 3


MODES = """
import os, socket, subprocess, sys
for is_blocking, is_inheritable in ((True, False), (False, True)):
    one = socket.socket()
    one.setblocking(is_blocking)
    one.set_inheritable(is_inheritable)
    one.connect(("127.0.0.1", 3128))
    print(os.get_blocking(one.fileno()), os.get_inheritable(one.fileno()), one.family.name, one.getpeername()[0])
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
try:
    socket.socket(fileno=os.dup(0)).connect(("127.0.0.1", 3128))
except OSError as error:
    print(type(error).__name__)
"""


async def test_a_connection_that_the_proxy_makes_is_what_the_program_asked_for(
    processes: Processes, sandbox: Sandbox, tmp_path: Path
) -> None:
    if sandbox.backend == "bubblewrap":
        pytest.skip("there the program makes it itself")
    (tmp_path / "modes.py").write_text(MODES)
    ended = await ran(processes, tmp_path, "/usr/bin/env python3 modes.py", "a.example")
    assert ended.output.splitlines() == [
        "True False AF_INET 127.0.0.1",
        "False True AF_INET 127.0.0.1",
        "OSError",
    ]


def bare_repository(folder: Path) -> Path:
    """Make a repository with one file that can be served as files."""
    source, bare = folder / "source", folder / "bare.git"
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    source.mkdir()
    (source / "a.txt").write_text("one")
    for words in (
        ("init", "-q"),
        ("add", "."),
        (*who, "commit", "-qm", "one"),
        ("clone", "-q", "--bare", ".", bare),
    ):
        subprocess.run(["git", "-C", source, *words], check=True)
    subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
    return bare


@RATHER_ONE
async def test_a_program_with_a_network_ends_when_nobody_reads(processes: Processes, tmp_path: Path) -> None:
    ended = await ran(processes, tmp_path, "set -o pipefail; yes | head -n 1; echo $?", "127.0.0.1:1")
    assert ended.output.split() == ["y", "141"]


@RATHER_ONE
async def test_git_clones_over_http(processes: Processes, server: WebServer, tmp_path: Path) -> None:
    bare, inside = bare_repository(tmp_path), tmp_path / "workspace"
    for path in bare.rglob("*"):
        if path.is_file():
            server.answers[f"/bare.git/{path.relative_to(bare)}"] = response(path.read_bytes(), "")
    inside.mkdir()
    command = f"git clone -q {server.url('/bare.git')} copy && cat copy/a.txt"
    ended = await ran(processes, inside, command, f"127.0.0.1:{server.port}")
    assert (ended.exit_code, ended.output) == (0, "one")


async def test_a_call_without_hosts_needs_no_proxy(processes: Processes, tmp_path: Path) -> None:
    before = proxies()
    ended = await ran(processes, tmp_path, "env | grep -i _proxy=")
    assert (ended.exit_code, ended.output) == (1, "")
    assert proxies() == before


@RATHER_ONE
async def test_calls_side_by_side_use_one_proxy_and_keep_their_own_hosts(
    processes: Processes, server: WebServer, tmp_path: Path
) -> None:
    before = proxies()
    command = f"curl -sS -o /dev/null -w '%{{http_code}}' {server.url('/')}"
    listed = [f"127.0.0.1:{server.port}", "b.example"] * 3
    ended = await asyncio.gather(*(ran(processes, tmp_path, command, host) for host in listed))
    assert [each.output for each in ended] == ["200", "403"] * 3
    assert len(proxies() - before) == 1


@RATHER_ONE
async def test_a_killed_proxy_fails_the_request_and_the_next_call_has_another_one(
    processes: Processes, server: WebServer, tmp_path: Path
) -> None:
    before = proxies()

    async def kill(heard: Heard, writer: asyncio.StreamWriter) -> None:
        for pid in proxies() - before:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(LIMIT_S)

    server.answers["/kill"] = kill
    listed = f"127.0.0.1:{server.port}"
    command = f"curl -sS {server.url('/kill')}; curl -sS {server.url('/')}; echo over"
    ended = await ran(processes, tmp_path, command, listed)
    assert ended.output.count("curl: ") == 2
    assert ended.output.endswith("over\n")
    assert [each.why for each in ended.requests.exchanges] == [BROKEN]
    assert (await ran(processes, tmp_path, f"curl -sS {server.url('/')}", listed)).output == "hello"


@RATHER_ONE
async def test_the_proxy_imports_nothing_that_a_command_could_have_written(
    processes: Processes, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, escaped = tmp_path / "workspace", tmp_path / "escaped"
    workspace.mkdir()
    for name in ("ipaddress", "msgspec", "asyncio", "holdfast"):
        (workspace / f"{name}.py").write_text(f"open({str(escaped)!r}, 'w')")
    monkeypatch.syspath_prepend(workspace)  # as `python -m holdfast` does
    monkeypatch.chdir(workspace)
    ended = await ran(processes, workspace, f"curl -sS {server.url('/')}", f"127.0.0.1:{server.port}")
    assert (ended.output, escaped.exists()) == ("hello", False)


@RATHER_ONE
async def test_a_proxy_leaves_no_core_and_takes_no_word_of_its_environment(
    processes: Processes, server: WebServer, tmp_path: Path
) -> None:
    before, limits = proxies(), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        await ran(processes, tmp_path, f"curl -sS {server.url('/')}", f"127.0.0.1:{server.port}")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    (pid,) = proxies() - before
    assert resource.prlimit(pid, resource.RLIMIT_CORE)[0] in (0, 1)
    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-I", b"-S"]


@RATHER_ONE
async def test_nothing_of_a_proxy_is_left_after_its_runtime(
    sandbox: Sandbox, server: WebServer, tmp_path: Path
) -> None:
    before = proxies()
    processes = Processes(sandbox)
    await ran(processes, tmp_path, f"curl -sS {server.url('/')}", f"127.0.0.1:{server.port}")
    assert len(proxies() - before) == 1
    await processes.aclose()
    assert proxies() == before


DRIVER = """
import asyncio, json, sys
from holdfast.protocol.fence import Fence, Finding, Launch, Sandbox
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.process import Processes

async def main():
    backend, folder, host = sys.argv[1:]
    command = f"curl -sS http://{host}/; echo; exec sleep 60"
    fence = Fence(writable=(folder,), hosts=(host,))
    argv, environ = ("/bin/bash", "-c", command), {"PATH": "/usr/bin:/bin"}
    launch = Launch(argv, folder, "killed:way", environ, 60, 60, lambda: sys.maxsize, fence=fence)
    await Processes(globals()[backend].make()).run(launch, lambda text: print(text, flush=True))

asyncio.run(main())
"""


@RATHER_ONE
async def test_a_proxy_ends_with_a_driver_that_is_killed(
    sandbox: Sandbox, server: WebServer, tmp_path: Path
) -> None:
    before = proxies()
    driver = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        DRIVER,
        sandbox.backend,
        str(tmp_path),
        f"127.0.0.1:{server.port}",
        stdout=asyncio.subprocess.PIPE,
    )
    assert driver.stdout is not None
    assert await driver.stdout.readline() == b"hello\n"
    mine = proxies() - before
    assert len(mine) == 1
    watched = [os.pidfd_open(pid) for pid in mine]
    driver.kill()
    await driver.wait()
    loop = asyncio.get_running_loop()
    for fd in watched:
        gone = asyncio.Event()
        loop.add_reader(fd, gone.set)
        async with asyncio.timeout(5):
            await gone.wait()
        loop.remove_reader(fd)
        os.close(fd)
    assert [path.name for path in tmp_path.iterdir()] == []


@RATHER_ONE
async def test_a_call_that_is_cancelled_closes_its_way(
    processes: Processes, server: WebServer, tmp_path: Path
) -> None:
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def hold(heard: Heard, writer: asyncio.StreamWriter) -> None:
        has_begun.set()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        has_ended.set()

    server.answers["/hold"] = hold
    work = asyncio.create_task(
        ran(processes, tmp_path, f"curl -sSN {server.url('/hold')}", f"127.0.0.1:{server.port}")
    )
    await has_begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    async with asyncio.timeout(5):
        await has_ended.wait()


CROWD = """
import socket, sys
held = []
for number in range(int(sys.argv[1])):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", 3128))
    held.append(one)
print(len(held))
"""


@RATHER_ONE
@pytest.mark.long
async def test_fifty_calls_at_once_reach_their_servers_beside_one_that_opens_too_many_connections(
    processes: Processes, sandbox: Sandbox, server: WebServer, tmp_path: Path
) -> None:
    listed = f"127.0.0.1:{server.port}"
    # Under landlock, a program waits until the proxy has a place for its connection.
    number = 3_000 if sandbox.backend == "bubblewrap" else 300
    (tmp_path / "crowd.py").write_text(CROWD)
    command = f"/usr/bin/env python3 crowd.py {number}; curl -sS {server.url('/')}"
    crowd = asyncio.create_task(ran(processes, tmp_path, command, listed))
    ended = await asyncio.gather(
        *(ran(processes, tmp_path, f"curl -sS {server.url('/')}", listed) for _ in range(50))
    )
    assert [each.output for each in ended] == ["hello"] * 50
    assert (await crowd).output == f"{number}\nhello"


@RATHER_ONE
@pytest.mark.long
@pytest.mark.parametrize("whom", [0, 1, 2], ids=["proxy", "guard of the proxy", "keeper"])
async def test_after_a_kill_the_next_call_reaches_its_server_and_in_the_end_nothing_is_left(
    sandbox: Sandbox, server: WebServer, tmp_path: Path, whom: int
) -> None:
    processes, seen = Processes(sandbox), set[int]()
    listed, command = f"127.0.0.1:{server.port}", f"curl -sS {server.url('/')}"
    for _ in range(3):
        assert (await ran(processes, tmp_path, command, listed)).output == "hello"
        for pid in proxies():
            seen.add(os.pidfd_open(pid))
            os.kill([pid, *above(pid)][whom], signal.SIGKILL)
        await asyncio.sleep(0.5)
    assert (await ran(processes, tmp_path, command, listed)).output == "hello"
    seen.update(map(os.pidfd_open, proxies()))
    await processes.aclose()
    assert seen
    for fd in seen:
        assert select.select([fd], [], [], 5)[0] == [fd]
        os.close(fd)
