"""A command under Landlock: what it cannot do, what it can, and what is made right afterwards."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Fence, Launch
from holdfast.sandbox import landlock, landlock_rights, own_folder, probing, seccomp, trees
from holdfast.sandbox.landlock import Landlock
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from tests.sandbox.killing import kill_all_who_watch

MADE = landlock.make()
pytestmark = pytest.mark.skipif(not isinstance(MADE, Landlock), reason="needs Landlock")

KEY = f"test-{os.getpid()}:landlock"
BAIT = "a-bait-that-nobody-may-read"
LIMIT_S = 60.0
CALL = "from ctypes import *; r = CDLL(None).syscall(c_long({}), *[c_long(each) for each in ({})])"
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0)


class Scene:
    """A workspace, and files beside it."""

    def __init__(self, folder: Path) -> None:
        self.outside, self.workspace = folder / "outside", folder / "workspace"
        for path in (self.outside / "bait", self.workspace / "a.txt"):
            path.parent.mkdir(parents=True)
            path.write_text(BAIT)
        (self.workspace / "link").symlink_to(self.outside)
        self.fence = Fence(
            writable=(str(self.workspace),),
            readable=probing.interpreter(),
            private=(str(Path.home()),),
            files={str(Path.home() / ".gitconfig"): "[user]\n\tname = Ann\n\temail = ann@example.com\n"},
            file_bytes=1 << 20,
        )

    def launch(self, command: str, key: str = KEY) -> Launch:
        """How to run a command of bash in the workspace."""
        argv, environ = ("/bin/bash", "-c", command), clean_environment(os.environ) | {"SEEN": "yes"}
        return Launch(argv, str(self.workspace), key, environ, LIMIT_S, LIMIT_S, never_over, fence=self.fence)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    assert isinstance(MADE, Landlock)
    processes = Processes(MADE)
    yield processes
    await processes.aclose()


async def ran(processes: Processes, scene: Scene, command: str) -> Ended:
    return await processes.run(scene.launch(command), lambda _: None)


def own_folders() -> list[Path]:
    """What calls of these tests have for themselves."""
    name = Path(own_folder.new_name(KEY, ())).name.rpartition("-")[0]
    return [*Path(own_folder.new_name(KEY, ())).parent.glob(f"{name}-*")]


FORBIDDEN: Mapping[str, str] = {
    "read a file outside": "cat ../outside/bait",
    "read through a link": "cat link/bait",
    "read through another process": "cat /proc/{pid}/root{outside}/bait || cat /proc/{pid}/cwd/x",
    "list what is outside": "ls ../outside",
    "write outside": "echo x > {outside}/written",
    "write through a link": "echo x > link/written",
    "move something in": "mv ../outside/bait bait",
    "link something in": "ln ../outside/bait bait && cat bait",
    "cut a file short": "truncate -s 0 ../outside/bait",
    "write to the system": "echo x > /usr/written",
    "write for all": "echo x > /tmp/holdfast-written",
    "read the passwords": "cat /etc/shadow | grep .",
    "change a setting of the kernel": "echo x > /proc/sys/kernel/core_pattern",
    "see the variables of Holdfast": "cat /proc/{pid}/environ | grep -a .",
    "see the arguments of Holdfast": "cat /proc/{pid}/cmdline | grep -a .",
    "see the memory of Holdfast": "cat /proc/{pid}/maps | grep .",
    "signal Holdfast": "kill -0 {pid}",
    "signal its guard": "kill -STOP $PPID",
    "change Holdfast's limits": "prlimit --pid {pid} --core=0:0",
    "make Holdfast nicer": "renice -n 19 -p {pid}",
    "connect to this machine": "exec 3<> /dev/tcp/127.0.0.1/{port}",
    "listen": "{python} -c 'import socket; socket.create_server((\"\", 0))'",
    "send a datagram": "{python} -c 'import socket; socket.socket(type=2).sendto(b\"x\", (\"192.0.2.1\", 9))'",
    "connect to a local socket":
        "{python} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{socket}\")'",
    "connect to an abstract socket":
        "{python} -c 'import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + \"{name}\")'",
    "send to a local socket from one of a pair":
        "{python} -c 'import socket; a, b = socket.socketpair(type=2); a.connect(\"{socket}\")'",
    "ask about routes": "{python} -c 'import socket; socket.socket(16, 3, 0)'",
    "make namespaces": "unshare -r true",
    "make a namespace while forking":
        "{python} -c '" + CALL.format(CLONE, "0x10000011, 0, 0, 0, 0") + "; raise SystemExit(r < 0)'",
    "change the root": "{python} -c 'import os; os.chroot(\".\")'",
    "give a file away": "chown 12345 ../outside/bait",
    "change its group": "chgrp 12345 ../outside/bait",
    "set an attribute": "{python} -c 'import os; os.setxattr(\"{outside}/bait\", \"user.x\", b\"x\")'",
    "share memory as System V does":
        "{python} -c '" + CALL.format({"x86_64": 29}.get(platform.machine(), 194), "1234, 4096, 0o1600")
        + "; raise SystemExit(r < 0)'",
    "write a long file": "head -c 3000000 /dev/zero > long && test $(wc -c < long) -eq 3000000",
    "list all homes": "ls ~{user} /home/*",
}  # fmt: skip
"""What a command tries, which would end with exit code 0."""

HONEST: Mapping[str, str] = {
    "commit": "git init -q r && cd r && echo x > a && git add a && git commit -qm one && git log | grep -q Ann",
    "write a temporary file": "f=$(mktemp) && echo x > $f && cat $f",
    "use its home": "mkdir -p ~/.cache/tool && touch ~/.cache/tool/x",
    "substitute a process": "diff <(echo a) <(echo a)",
    "read a document": "cat <<< abc",
    "run tests": "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test_x(self): 0\\n' > test_x.py && "
        "{python} -m unittest -q",
    "use threads and pairs of sockets": "{python} -c 'import asyncio; asyncio.run(asyncio.to_thread(print))'",
    "change modes and times": "touch t && chmod 700 t && test -x t && touch -d 2001-01-01 t && ln t u",
    "pack and unpack": "mkdir p && touch p/x && tar cf p.tar p && rm -r p && tar xf p.tar && cp -a p q",
    "rename and remove": "mkdir -p d/e h && touch d/e/f && mv d/e h && rm -r d h",
    "read the system": "cat /etc/os-release /proc/meminfo /etc/passwd > /dev/null && ls /usr/bin > /dev/null",
    "write to devices": "echo x > /dev/null && head -c 9 /dev/urandom > random",
    "time out": "timeout 0.1 sleep 5 || test $? = 124",
    "start in the background": "(setsid sleep 300 &) ; true",
    "see a variable": "test $SEEN = yes",
}  # fmt: skip
"""What must succeed: otherwise people switch the sandbox off."""


@pytest.mark.parametrize("word", ["sh", "/bin/sh"])
async def test_a_program_is_found_by_its_name_where_python_cannot_be_read(
    processes: Processes, scene: Scene, word: str
) -> None:
    alone = Fence(writable=scene.fence.writable)
    launch = replace(scene.launch(""), argv=(word, "-c", "echo found"), fence=alone)
    assert (await processes.run(launch, lambda _: None)).output == "found\n"
    with pytest.raises(FileNotFoundError):
        await processes.run(replace(launch, argv=("no-such-program",)), lambda _: None)


@pytest.mark.requirement("L2", "L12", "L11")
async def test_a_command_does_nothing_outside_of_its_fence(
    processes: Processes, scene: Scene, tmp_path: Path
) -> None:
    local, name = tmp_path / "socket", f"holdfast-test-landlock-{os.getpid()}"
    before = (scene.outside / "bait").stat()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as by_path,
        socket.socket(socket.AF_UNIX) as by_name,
    ):
        by_path.bind(str(local))
        by_name.bind("\0" + name)
        by_name.listen()
        places = {"outside": scene.outside, "pid": os.getpid(), "port": server.getsockname()[1], "name": name,
                  "python": sys.executable, "socket": local, "user": Path.home().name}  # fmt: skip
        done = []
        for what, command in FORBIDDEN.items():
            ended = await ran(processes, scene, command.format(**places))
            if not ended.exit_code or BAIT in ended.output:
                done.append((what, ended.output))
    assert not done
    assert [path.name for path in scene.outside.iterdir()] == ["bait"]
    after = (scene.outside / "bait").stat()
    assert (after.st_ctime_ns, after.st_nlink, after.st_size) == (before.st_ctime_ns, 1, before.st_size)
    assert not Path("/tmp/holdfast-written").exists()


@pytest.mark.requirement("L2")
async def test_honest_work_succeeds_inside(processes: Processes, scene: Scene) -> None:
    failed = []
    for what, command in HONEST.items():
        ended = await ran(processes, scene, command.format(python=sys.executable))
        if ended.exit_code:
            failed.append((what, ended.output))
    assert not failed
    assert not trees.members({KEY})


@pytest.mark.requirement("L2")
async def test_root_has_no_capability_inside_and_gets_none_back(processes: Processes, scene: Scene) -> None:
    found = (
        await ran(processes, scene, "grep -E '^Cap|NoNewPrivs' /proc/self/status; exec cat /proc/self/status")
    ).output
    sets = {line.partition(":")[0]: line.split()[-1] for line in found.splitlines() if line.startswith("Cap")}
    bounds = sets.pop("CapBnd")
    assert {int(each, 16) for each in sets.values()} == {0}
    assert not int(bounds, 16) or os.geteuid()
    assert "NoNewPrivs:\t1" in found


@pytest.mark.requirement("L2", "S14")
async def test_a_program_finds_no_open_file_but_its_own(processes: Processes, scene: Scene) -> None:
    """The rules and the folders of the fence are open while it is made."""
    found = (await ran(processes, scene, "exec ls -l /proc/self/fd")).output
    assert {line.split(" -> ")[0].split()[-1] for line in found.splitlines() if " -> " in line} == {
        "0",
        "1",
        "2",
        "3",
    }


@pytest.mark.requirement("L2")
async def test_its_home_and_temporary_folder_are_its_own_and_end_with_it(
    processes: Processes, scene: Scene
) -> None:
    heard: list[list[Path]] = []
    told = "stat -c %a ~ $TMPDIR; cat ~/.gitconfig; touch $TMPDIR/y; mkdir ~/a; touch ~/a/z; chmod 0 ~/a"
    ended = await processes.run(scene.launch(told), lambda _: heard.append(own_folders()))
    assert ended.output.startswith("700\n700\n[user]")
    assert len(heard[0]) == 1
    assert not own_folders()


async def test_what_the_fence_shows_of_the_home_is_found_in_its_own_one(
    processes: Processes, scene: Scene, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "tools" / "bin").mkdir(parents=True)
    (home / "tools" / "bin" / "x").write_text("useful")
    scene.fence = replace(
        scene.fence, private=(str(home),), files={}, readable=(*scene.fence.readable, str(home / "tools"))
    )
    ended = await ran(
        processes, scene, f"cat ~/tools/bin/x; ls -A ~; cat {home}/tools/bin/x; ls {home} || echo hidden"
    )
    assert ended.output.startswith("usefultools\nuseful")
    assert ended.output.endswith("hidden\n")


@pytest.mark.requirement("L2", "S14")
async def test_what_is_masked_in_a_folder_that_can_be_read_is_left_out(
    processes: Processes, scene: Scene
) -> None:
    (scene.outside / "deep").mkdir()
    for name in ("deep/secret", "deep/other"):
        (scene.outside / name).write_text(name)
    scene.fence = replace(
        scene.fence,
        readable=(*scene.fence.readable, str(scene.outside)),
        masked=(str(scene.outside / "deep" / "secret"),),
    )
    ended = await ran(
        processes, scene, "cat ../outside/bait ../outside/deep/other; cat ../outside/deep/secret"
    )
    assert ended.output.startswith(f"{BAIT}deep/other")
    assert "Permission denied" in ended.output


@pytest.mark.requirement("L2")
async def test_folders_of_the_home_that_lie_in_each_other_are_both_found_there(
    processes: Processes, scene: Scene
) -> None:
    home, inner = scene.outside, scene.outside / "deep" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text(BAIT)
    readable = (*scene.fence.readable, str(inner), str(home / "deep"), str(inner / "file"))
    scene.fence = replace(scene.fence, private=(str(home),), files={}, readable=readable)
    assert (await ran(processes, scene, "cat ~/deep/inner/file")).output == BAIT
    assert sorted(home.rglob("*")) == [home / "bait", home / "deep", inner, inner / "file"]


@pytest.mark.requirement("L11")
async def test_a_call_with_too_many_processes_ends_and_says_so(processes: Processes, scene: Scene) -> None:
    scene.fence = replace(scene.fence, processes=20)
    ended = await ran(processes, scene, "for i in $(seq 40); do (sleep 300 &) ; done; sleep 300")
    assert ended.how == "processes"
    assert not trees.members({KEY})


@pytest.mark.requirement("L11")
async def test_a_process_that_takes_too_much_memory_is_refused_it(processes: Processes, scene: Scene) -> None:
    scene.fence = replace(scene.fence, memory_bytes=200 << 20)
    ended = await ran(processes, scene, f"{sys.executable} -c 'bytearray(300 << 20)'")
    assert ended.exit_code
    assert "MemoryError" in ended.output


@pytest.mark.requirement("L2", "S14")
async def test_a_folder_that_became_a_link_meanwhile_is_not_followed(
    processes: Processes, scene: Scene
) -> None:
    swapped = scene.workspace / "swapped"
    swapped.symlink_to(scene.outside)
    scene.fence = replace(scene.fence, writable=(str(scene.workspace), str(swapped)))
    with pytest.raises(Exception, match="the workspace changed"):
        await ran(processes, scene, "cat swapped/bait")


@pytest.mark.requirement("L2")
async def test_a_folder_with_a_hidden_file_may_have_more_names_than_files_may_be_open(
    processes: Processes, scene: Scene
) -> None:
    """Each is allowed by itself then."""
    shown = scene.workspace.with_name("shown")
    shown.mkdir()
    for number in range(300):
        (shown / str(number)).touch()
    scene.fence = replace(
        scene.fence, readable=(*scene.fence.readable, str(shown)), masked=(str(shown / "7"),)
    )
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        ended = await ran(processes, scene, f"cat {shown}/299 && ! cat {shown}/7")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (ended.exit_code, "Permission denied" in ended.output) == (0, True)


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.test_landlock import Scene, Processes, MADE
async def main():
    scene = Scene(Path(sys.argv[1]))
    launch = scene.launch("touch ~/x; echo up; sleep 300", sys.argv[2])
    await Processes(MADE).run(launch, lambda text: print(text, end="", flush=True))
asyncio.run(main())
"""


@pytest.mark.requirement("L2", "H1")
async def test_who_takes_over_from_a_killed_driver_removes_what_its_calls_had_for_themselves(
    processes: Processes, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", KILLED, str(tmp_path), KEY]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as driver:  # noqa: ASYNC220
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"up\n"
        driver.kill()
    assert len(own_folders()) == 1
    await processes.end([KEY])
    assert not own_folders()


# --- is it a sandbox at all ---------------------------------------------------------------------


@pytest.mark.requirement("L2")
async def test_the_backend_of_this_machine_keeps_its_fence() -> None:
    assert isinstance(MADE, Landlock)
    found = await MADE.probe()
    assert (found.backend, found.fault, found.hint) == ("landlock", "", "")
    assert landlock.make() is MADE  # which is probed once


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("abi", "fault"),
    [(5, "connect to an abstract socket|signal a process outside"), (3, "signal a process outside")],
)
async def test_a_kernel_that_lacks_something_does_not_count(abi: int, fault: str) -> None:
    """What counts is what a program can do, and not the version."""
    found = await Landlock(abi).probe()
    assert found.fault.startswith("It let a program do what its fence forbids")
    assert any(each in found.fault for each in fault.split("|"))
    assert "6.12" in found.hint


@pytest.mark.requirement("L2")
async def test_nothing_begins_where_the_fence_cannot_be_made(processes: Processes, scene: Scene) -> None:
    scene.fence = replace(scene.fence, files={str(Path.home() / "no" / "folder"): "x"})
    with pytest.raises(
        SandboxUnavailable, match=r"its sandbox could not be made \(No such file or directory\)"
    ):
        await ran(processes, scene, "touch made")
    assert not (scene.workspace / "made").exists()


@pytest.mark.parametrize(
    ("program", "why"),
    [("./no-such-program", FileNotFoundError), ("./a.txt", PermissionError), ("\0", OSError)],
)
async def test_what_cannot_become_a_program_is_said_as_without_a_sandbox(
    processes: Processes, scene: Scene, program: str, why: type[OSError]
) -> None:
    with pytest.raises(why):
        await processes.run(replace(scene.launch(""), argv=(program,)), lambda _: None)
    assert not own_folders()


# --- how its processes end ----------------------------------------------------------------------

MOMENTARY = r"""
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    time_t until = time(0) + 20;
    for (int chain = 0; chain < 32; chain++) {
        if (fork()) continue;
        for (int turns = 1; time(0) < until; turns++) {
            if (fork()) _exit(0);
            if (turns % 50 == 0) close(open("beat", O_WRONLY | O_CREAT | O_TRUNC, 0600));
        }
        _exit(0);
    }
}
"""


@pytest.fixture
def momentary(scene: Scene) -> Path:
    """That program."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("needs a compiler")
    program = scene.workspace / "momentary"
    subprocess.run([compiler, "-xc", "-", "-o", str(program)], input=MOMENTARY.encode(), check=True)
    return program


@pytest.mark.requirement("L2", "L11")
async def test_processes_that_are_there_for_a_moment_only_end_with_their_call(
    processes: Processes, scene: Scene, momentary: Path
) -> None:
    """Each forks, and ends at once. A look at all processes takes longer, and would always find another one."""
    scene.fence = replace(scene.fence, processes=1000)
    ended = await ran(processes, scene, f"{momentary}; until [ -e beat ]; do sleep 0.01; done; echo done")
    assert ended.output == "done\n"
    beat = scene.workspace / "beat"
    last = beat.stat().st_mtime_ns
    await asyncio.sleep(0.1)
    assert beat.stat().st_mtime_ns == last
    assert not trees.members({KEY})


def in_a_fork(work: Callable[[int], object]) -> object:
    """What this returns in a process of its own, which gets a descriptor of this one."""
    me, (reading, writing) = os.pidfd_open(os.getpid()), os.pipe()
    if not (child := os.fork()):
        os.write(writing, repr(work(me)).encode())
        os._exit(0)
    os.close(writing)
    os.close(me)
    with os.fdopen(reading, encoding="utf-8") as said:
        text = said.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.mark.requirement("L2")
def test_a_guard_can_signal_only_its_tree_and_knows_whether_that_is_so() -> None:
    """Otherwise a signal to all would end every process of the user."""

    def tried(handled: tuple[int, ...], *, is_gone: bool = False) -> Callable[[int], object]:
        def work(other: int) -> object:
            if is_gone:
                child = os.fork()
                if not child:
                    os._exit(0)
                other = os.pidfd_open(child)
                os.waitpid(child, 0)
            return landlock_rights.signals_below_only({"handled": handled}, other)

        return work

    assert in_a_fork(tried((1, 1, 0b11))) == "True"
    assert in_a_fork(tried((1, 1, 0b01))) == "False", "a kernel that knows no scope for signals"
    assert in_a_fork(tried((1, 1))) == "False"
    assert in_a_fork(tried((1, 1, 0b11), is_gone=True)) == "False", "nobody is there to try it with"


@pytest.mark.requirement("L2")
def test_all_that_landlock_knows_is_refused_and_no_rule_lets_a_program_make_or_control_devices(
    scene: Scene,
) -> None:
    kept = Landlock(7).launch(scene.launch("true"), scene.fence).rights
    assert kept is not None
    assert kept.handled == ((1 << 16) - 1, 0b11, 0b11)
    rules = [*kept.shown, *kept.paths]
    assert len(rules) > 20
    assert not [path for path, rights in rules if rights & (1 << 6 | 1 << 11)]
    devices = {path for path, rights in rules if rights & 1 << 15}
    assert devices == {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}


@pytest.mark.requirement("L2")
async def test_a_file_in_place_of_a_folder_of_the_system_can_be_used_as_a_file(
    processes: Processes, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    sandbox = Landlock(7)
    rules = [*sandbox._of_system(scene.fence), (str(changed), 0b1101)]
    monkeypatch.setattr(sandbox, "_of_system", lambda _: rules)
    changed.rmdir()
    changed.write_text("a file\n")
    processes.confine(sandbox)
    ended = await ran(processes, scene, f"cat {changed}")
    assert (ended.exit_code, ended.output) == (0, "a file\n")


@pytest.mark.requirement("L2")
async def test_a_program_has_no_capability_and_can_get_none(processes: Processes, scene: Scene) -> None:
    ended = await ran(processes, scene, "exec grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status")
    found = {line[:7]: line.split()[-1] for line in ended.output.splitlines()}
    assert len(found) == 5
    bounds = found.pop("CapBnd:")
    assert {*found.values()} == {"0" * 16}
    assert os.geteuid() or bounds == "0" * 16  # nobody but root can make them narrower


@pytest.mark.requirement("L2")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_capabilities_that_a_program_would_inherit_go_with_the_others() -> None:
    def work(_: int) -> object:
        libc, number = landlock_rights._libc(), seccomp.capset()
        mine = int(status()["CapPrm"], 16)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        sets = (ctypes.c_uint32 * 6)(*[mine & 0xFFFFFFFF] * 3, *[mine >> 32] * 3)
        landlock_rights._ask(libc.syscall, number, ctypes.addressof(header), ctypes.addressof(sets))
        landlock_rights._ask(libc.prctl, 47, 2)  # PR_CAP_AMBIENT_RAISE of CAP_CHOWN
        before = int(status()["CapAmb"], 16)
        landlock_rights._leave_capabilities(libc, number)
        return before, {name: int(each, 16) for name, each in status().items()}

    def status() -> dict[str, str]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return {line.partition(":")[0]: line.split()[-1] for line in lines if line.startswith("Cap")}

    assert in_a_fork(work) == str((1, dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)))


CONFINED = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.test_landlock import MADE, Processes, Scene, ran
async def main():
    processes = Processes(MADE)
    print((await ran(processes, Scene(Path(sys.argv[1])), "exec grep CapEff /proc/self/status")).output, end="")
    await processes.aclose()
asyncio.run(main())
"""


@pytest.mark.requirement("L2", "L11")
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_root_that_lacks_capabilities_has_this_sandbox_too(tmp_path: Path, repository: Path) -> None:
    """As in a container with `--cap-drop ALL`. Without CAP_SETPCAP, nobody can narrow what programs may get."""
    lacks = ["setpriv", "--bounding-set", "-setpcap", "--inh-caps", "-setpcap"]
    words = [*lacks, sys.executable, "-c", CONFINED, str(tmp_path)]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CapEff:", "0" * 16], done.stdout


@pytest.mark.requirement("L2")
async def test_a_program_begins_with_default_signals_in_a_session_of_its_own(
    processes: Processes, scene: Scene
) -> None:
    program = "import os, signal as s; print(os.getsid(0) == os.getpid(), s.pthread_sigmask(s.SIG_BLOCK, ()))"
    status = replace(scene.launch(""), argv=("/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"))
    ended = await processes.run(status, lambda _: None)
    assert [line.split()[1] for line in ended.output.splitlines()] == ["0" * 16] * 2
    asked = replace(scene.launch(""), argv=(sys.executable, "-c", program))
    assert (await processes.run(asked, lambda _: None)).output == "True set()\n"


@pytest.mark.requirement("C12", "L2")
def test_the_own_folder_of_a_call_is_where_no_command_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is left in the background could put something else in its place."""
    with monkeypatch.context() as patched:  # TMPDIR in the workspace of another session
        patched.setattr(tempfile, "tempdir", str(tmp_path))
        assert not Path(own_folder.new_name(KEY, ())).is_relative_to(tmp_path)
    base = tempfile.gettempdir()
    for writable in ((str(tmp_path),), (base,)):
        name = own_folder.new_name(KEY, writable)
        assert not any(Path(name).is_relative_to(each) for each in writable)
    with pytest.raises(SandboxUnavailable, match="a folder of its own"):
        own_folder.new_name(KEY, ("/",))


@pytest.mark.requirement("C12", "L2")
def test_a_folder_that_is_there_already_does_not_become_the_own_one_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    made = {"own": str(tmp_path / "own"), "folders": ["home"], "files": {}, "links": {}}
    with pytest.raises(FileExistsError):
        landlock_rights._furnished(made)
    assert not [*(tmp_path / "own").iterdir()]


@pytest.mark.requirement("H1", "L2")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_looks_like_the_own_folder_of_a_call_and_belongs_to_another_user_stays(tmp_path: Path) -> None:
    for name, user in (("mine", os.getuid()), ("theirs", 54321)):
        made = Path(own_folder.new_name(f"{KEY}-{name}", ()))
        (made / "home").mkdir(parents=True)
        os.chown(made, user, -1)
        own_folder.remove_left([f"{KEY}-{name}"])
        assert made.exists() is (name == "theirs")
    os.chown(made, os.getuid(), -1)
    own_folder.remove(str(made))
    (tmp_path / "theirs" / "x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    own_folder.remove(str(tmp_path / "link"))
    assert (tmp_path / "theirs" / "x").exists()


@pytest.mark.requirement("H4")
def test_a_program_begins_also_where_the_proxy_has_just_ended() -> None:
    """Then each of its connections fails."""
    way, gone = socket.socketpair()
    gone.close()
    listener = os.open(os.devnull, os.O_RDONLY)
    landlock_rights._give(listener, way)
    assert way.fileno() < 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(listener)


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("path", ["link/own", "own"])
def test_nothing_is_made_behind_a_link_on_the_way_to_the_own_folder(tmp_path: Path, path: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / path.partition("/")[0]).symlink_to(target)
    made = {"own": str(tmp_path / path), "folders": ["home"], "files": {"file": "x"}, "links": {}}
    with pytest.raises(OSError, match=r"exists|symbolic links"):
        landlock_rights._furnished(made)
    assert not [*target.iterdir()]


@pytest.mark.requirement("C12", "L2")
def test_nothing_is_made_behind_a_link_in_the_own_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    made = {
        "own": str(tmp_path / "own"),
        "folders": [],
        "files": {},
        "links": {"a": str(target), "a/b/c": "x"},
    }
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        landlock_rights._furnished(made)
    assert not [*target.iterdir()]


@pytest.mark.requirement("C12", "L2")
async def test_beside_something_hidden_a_link_gives_no_right_to_what_it_leads_to(
    processes: Processes, scene: Scene, tmp_path: Path
) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "hidden").write_text(BAIT)
    (shown / "plain").write_text("plain\n")
    (shown / "out").symlink_to(scene.outside / "bait")
    (shown / "inner").symlink_to("plain")
    scene.fence = replace(
        scene.fence, readable=(*scene.fence.readable, str(shown)), masked=(str(shown / "hidden"),)
    )
    ended = await ran(processes, scene, f"cd {shown}; cat inner; cat out hidden {scene.outside}/bait")
    assert ended.output.startswith("plain\n")
    assert BAIT not in ended.output
    system = tmp_path / "etc"
    (system / "below").mkdir(parents=True)
    (system / "secret").touch()
    (system / "away").symlink_to(scene.outside)
    assert [*landlock.parts(str(system), [str(system / "secret")])] == [str(system / "below")]


@pytest.mark.requirement("L11")
def test_where_too_few_files_may_be_open_the_probe_says_so() -> None:
    program = (
        "import asyncio; from holdfast.sandbox import landlock, probing; "
        "print(asyncio.run(probing.attempt(landlock.make(), landlock.LETS)))"
    )
    argv = ("sh", "-c", 'ulimit -n 14; exec "$0" -c "$1"', sys.executable, program)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("The limit of open files (`ulimit -n 14`) may be why.\n")


@pytest.mark.requirement("L2")
async def test_a_program_is_found_behind_folders_of_the_path_that_cannot_be_read(
    processes: Processes, scene: Scene
) -> None:
    for folder in (scene.outside, scene.workspace / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "uname").write_text("#!/bin/sh\necho found\n")
        (folder / "uname").chmod(0o755)
    (scene.workspace / "elsewhere").symlink_to(scene.outside)
    launch = scene.launch("uname; echo $PATH")
    search = {"PATH": f"{scene.outside}:{scene.workspace}/elsewhere:bin:{scene.workspace}/bin:/usr/bin:/bin"}
    ended = await processes.run(replace(launch, env=launch.env | search), lambda _: None)
    assert ended.output == f"found\nbin:{scene.workspace}/bin:/usr/bin:/bin\n"
    alone = replace(launch, env=launch.env | {"PATH": str(scene.outside)})
    assert (await processes.run(alone, lambda _: None)).output == f"Linux\n{os.defpath}\n"


@pytest.mark.requirement("L2")
async def test_a_program_is_found_behind_a_link_to_one_that_is_not_shown(
    processes: Processes, scene: Scene
) -> None:
    """As where a virtual environment is active whose Python lies in a home."""
    hidden, first, later = (
        scene.workspace.parent / name for name in ("hidden", "workspace/a", "workspace/b b")
    )
    for folder, says in ((hidden, "hidden"), (later, "later $0 $1")):
        folder.mkdir()
        for name in ("python", "uname"):
            (folder / name).write_text(f'#!/bin/sh\necho "{says}"\n')
            (folder / name).chmod(0o755)
    first.mkdir()
    (first / "python").symlink_to(hidden / "python")
    (first / "alone").symlink_to(hidden / "uname")
    (first / "uname").symlink_to("/usr/bin/uname")
    launch = scene.launch("python '1 2'; env python 3; uname; alone; ls $TMPDIR/../bin; which -a python")
    search = {"PATH": f"{first}:{later}:/usr/bin:/bin"}
    ended = await processes.run(replace(launch, env=launch.env | search), lambda _: None)
    *told, own, _, _ = ended.output.splitlines()
    assert told[:3] == [f"later {later}/python 1 2", f"later {later}/python 3", "Linux"]
    assert (told[3].endswith("alone: Permission denied"), told[4]) == (True, "python")
    assert own.endswith("/bin/python")
    (first / "python").unlink()
    (first / "python").symlink_to(later / "uname")
    ended = await processes.run(replace(launch, env=launch.env | search), lambda _: None)
    assert ended.output.startswith(f"later {first}/python 1 2\n")


@pytest.mark.requirement("L2", "H1")
def test_what_has_no_variables_is_found_when_driver_keeper_and_guard_were_killed(tmp_path: Path) -> None:
    key = f"{KEY}-killed"
    kill_all_who_watch("landlock", tmp_path, key)
    assert trees.members([key])
    trees.end_trees([key])
    assert not trees.members([key])
    own_folder.remove_left([key])


async def test_a_program_keeps_the_tag_of_its_call(processes: Processes, scene: Scene) -> None:
    lower = (
        "import resource\nfor most in (1, resource.RLIM_INFINITY):\n"
        "    try: resource.setrlimit(10, (most, most))\n    except ValueError: print('refused')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\nprint(resource.getrlimit(10))\n"
    )
    (scene.workspace / "lower.py").write_text(lower)
    ended = await ran(processes, scene, f"{sys.executable} lower.py; ulimit -x")
    tag = trees.tag(KEY)
    assert ended.output.splitlines() == ["refused", "refused", str((tag, tag)), str(tag)]
