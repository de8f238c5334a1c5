"""A command inside bubblewrap: what it cannot do, what it can, and how a backend that keeps nothing out is found."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Fence, Finding, Launch
from holdfast.sandbox import bubblewrap, guard, process, trees
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.probing import interpreter
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from tests.sandbox.killing import kill_all_who_watch

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

KEY = f"test-{os.getpid()}:walls"
BAIT = "a-bait-that-nobody-may-read"
LIMIT_S = 60.0


class Scene:
    """A workspace with files of every kind, and files beside it."""

    def __init__(self, folder: Path) -> None:
        self.outside, self.workspace = folder / "outside", folder / "workspace"
        for path in (self.outside / "bait", self.workspace / ".env", self.workspace / "conf" / "id_rsa"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(BAIT)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        (self.workspace / "link").symlink_to(self.outside)
        self.fence = Fence(
            writable=(str(self.workspace),),
            readable=interpreter(),
            private=(str(Path.home()),),
            masked=tuple(str(self.workspace / path) for path in (".env", "conf/id_rsa")),
            protected=tuple(str(self.workspace / ".git" / name) for name in ("hooks", "config")),
            file_bytes=1 << 20,
        )

    def launch(self, command: str, **changes: object) -> Launch:
        """How to run a command of bash in the workspace."""
        argv = ("/bin/bash", "-c", command)
        environ = clean_environment(os.environ) | {"BAIT": BAIT}
        plain = Launch(
            argv, str(self.workspace), KEY, environ, LIMIT_S, LIMIT_S, never_over, fence=self.fence
        )
        return replace(plain, **changes)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def ran(processes: Processes, scene: Scene, command: str) -> Ended:
    return await processes.run(scene.launch(command), lambda _: None)


FORBIDDEN: Mapping[str, str] = {
    "read a file outside": "cat ../outside/bait",
    "read through a link": "cat link/bait",
    "read through the first process": "cat /proc/1/root/{outside}/bait",
    "read through the folder of the first process": "cat /proc/1/cwd/../outside/bait",
    "write outside": "echo x > {outside}/written",
    "write through a link": "echo x > link/written",
    "write to the system": "echo x > /usr/written",
    "read a masked file": "cat .env",
    "read a masked file in a folder": "cat conf/id_rsa",
    "move the folder of a masked file away": "mv conf away && cat away/id_rsa",
    "remove a masked file": "rm -f .env && test ! -e .env",
    "link a masked file to another name": "ln .env copy && cat copy",
    "make a hook of git": "echo 'true' > .git/hooks/pre-commit",
    "change git's configuration": "git config core.fsmonitor ./x",
    "move the folder of git away": "mv .git away && mkdir -p .git/hooks && touch .git/hooks/pre-commit",
    "replace the hooks by a link": "rm -rf .git/hooks && ln -s /tmp .git/hooks",
    "read the password file": "cat /etc/shadow | grep .",
    "change a setting of the kernel": "echo x > /proc/sys/kernel/core_pattern",
    "see another process": "cat /proc/{pid}/environ | grep -a PATH",
    "signal another process": "kill -0 {pid}",
    "connect to this machine": "exec 3<> /dev/tcp/127.0.0.1/{port}",
    "connect to a local socket": "{python} -c \"import socket; socket.socket(socket.AF_UNIX).connect('{socket}')\"",
    "connect to an abstract socket":
        "{python} -c \"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}')\"",
    "look up a name": "getent hosts example.com",
    "make namespaces": "unshare -r true",
    "make a namespace while forking": "{python} -c \"import ctypes, os, sys; "
        "pid = ctypes.CDLL(None).syscall({clone}, 0x10000011, 0, 0, 0, 0); "
        "os._exit(0) if not pid else sys.exit(pid < 0)\"",
    "mount": "mount -t tmpfs none /tmp",
    "write a long file": "head -c 3000000 /dev/zero > long && test $(wc -c < long) -eq 3000000",
    "see a home": "test -e ~/.ssh -o -e ~/.bashrc -o -e ~/.profile",
    "see the system's run folder": "ls /run || ls /var/run",
    "find a disk": "ls /dev/sd* /dev/vd* /dev/nvme*",
}  # fmt: skip
"""What a command tries, which would end with exit code 0."""

HONEST: Mapping[str, str] = {
    "commit": "echo x > a.txt && git add a.txt && git -c user.email=a@b -c user.name=n commit -qm one",
    "write to /tmp": "f=$(mktemp) && echo x > $f && cat $f",
    "use its home": "mkdir -p ~/.cache/tool && touch ~/.cache/tool/x",
    "substitute a process": "diff <(echo a) <(echo a)",
    "work with processes":
        "{python} -c \"import multiprocessing as m; assert m.Pool(2).map(abs, [1, -2]) == [1, 2]\"",
    "run tests": "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test_x(self): 0\\n' > test_x.py && "
        "{python} -m unittest -q",
    "serve itself": "{python} -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname())\"",
    "rename and remove": "mkdir -p d/e && touch d/e/f && mv d g && rm -r g",
    "see its own processes": "sleep 5 & test $(ls -d /proc/[0-9]* | wc -l) -gt 2 && kill %1",
    "read the system": "cat /etc/os-release > /dev/null && ls /usr/bin > /dev/null",
    "start in the background": "(setsid sleep 300 &) ; true",
}  # fmt: skip
"""What must succeed: otherwise people switch the sandbox off."""


@pytest.mark.requirement("L2", "L12", "L11")
async def test_a_command_does_nothing_outside_of_its_fence(
    processes: Processes, scene: Scene, tmp_path: Path
) -> None:
    local, name = tmp_path / "socket", f"holdfast-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as by_name,
    ):
        by_path.bind(str(local))
        by_path.listen()
        by_name.bind("\0" + name)
        by_name.listen()
        places = {"outside": scene.outside, "pid": os.getpid(), "port": server.getsockname()[1],
                  "python": sys.executable, "socket": local, "name": name,
                  "clone": {"x86_64": 56, "aarch64": 220}[platform.machine()]}  # fmt: skip
        done = []
        for what, command in FORBIDDEN.items():
            ended = await ran(processes, scene, command.format(**places))
            if not ended.exit_code or BAIT in ended.output:
                done.append((what, ended.output))
    assert not done
    assert [path.name for path in scene.outside.iterdir()] == ["bait"]
    assert (scene.workspace / "conf" / "id_rsa").read_text() == (scene.workspace / ".env").read_text() == BAIT
    assert not (scene.workspace / ".git" / "hooks" / "pre-commit").exists()


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
async def test_without_its_fence_the_same_command_does_what_is_forbidden(scene: Scene) -> None:
    """So the attempts above fail for the fence, and not for themselves."""
    processes = Processes()
    for what in ("read a file outside", "read through a link", "read a masked file", "make a hook of git"):
        ended = await processes.run(scene.launch(FORBIDDEN[what], fence=None), lambda _: None)
        assert not ended.exit_code, what
    await processes.aclose()


@pytest.mark.requirement("L2")
async def test_where_there_is_a_sandbox_nothing_runs_without_a_fence(
    processes: Processes, scene: Scene
) -> None:
    with pytest.raises(SandboxUnavailable, match="has no fence"):
        await processes.run(scene.launch("touch a.txt", fence=None), lambda _: None)
    assert not (scene.workspace / "a.txt").exists()


@pytest.mark.requirement("L2", "S14")
async def test_a_command_sees_no_variable_but_its_own_also_not_of_its_starter(
    processes: Processes, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "another-bait")
    ended = await ran(
        processes, scene, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    )
    assert f"BAIT={BAIT}" in ended.output
    assert "another-bait" not in ended.output
    assert "--ro-bind" not in ended.output


@pytest.mark.requirement("L11")
async def test_a_process_that_takes_too_much_memory_is_refused_it(processes: Processes, scene: Scene) -> None:
    scene.fence = replace(scene.fence, memory_bytes=200 << 20)
    ended = await ran(processes, scene, f"{sys.executable} -c 'bytearray(300 << 20)'")
    assert ended.exit_code
    assert "MemoryError" in ended.output


@pytest.mark.requirement("L2")
async def test_what_has_a_fence_does_not_run_where_nothing_keeps_it_inside(scene: Scene) -> None:
    processes = Processes()
    with pytest.raises(SandboxUnavailable) as told:
        await ran(processes, scene, "touch a.txt")
    assert "this process has none" in told.value.message
    assert not (scene.workspace / "a.txt").exists()


@pytest.mark.requirement("L2")
async def test_a_folder_with_a_secret_in_a_protected_one_cannot_be_changed(
    processes: Processes, scene: Scene
) -> None:
    place = scene.workspace / ".vscode" / "deep"
    place.mkdir(parents=True)
    (place / ".env").write_text(BAIT)
    scene.fence = replace(
        scene.fence, masked=(str(place / ".env"),), protected=(str(scene.workspace / ".vscode"),)
    )
    ended = await ran(processes, scene, "cat .vscode/deep/.env; echo x > .vscode/deep/tasks.json")
    assert "Read-only file system" in ended.output
    assert BAIT not in ended.output
    assert [each.name for each in place.iterdir()] == [".env"]


@pytest.mark.requirement("L2")
async def test_a_folder_that_a_person_lets_commands_change_need_not_be_there(
    processes: Processes, scene: Scene
) -> None:
    """An example is a cache that nothing has made yet."""
    missing = str(scene.outside / "cache")
    scene.fence = replace(scene.fence, writable=(*scene.fence.writable, missing))
    ended = await ran(processes, scene, f"echo begun; echo x > {missing}/y")
    assert (ended.output.split("\n")[0], bool(ended.exit_code)) == ("begun", True)
    (scene.outside / "cache").mkdir()
    assert (await ran(processes, scene, f"echo x > {missing}/y")).exit_code == 0
    assert (scene.outside / "cache" / "y").read_text() == "x\n"


@pytest.mark.requirement("L2")
async def test_what_lies_in_a_masked_folder_is_masked_with_it(processes: Processes, scene: Scene) -> None:
    """A link to a folder may have the name of a secret: `.env -> .git`."""
    inside = [str(scene.workspace / "conf" / name) for name in ("id_rsa", "hooks", "more")]
    (scene.workspace / "conf" / "hooks").mkdir()
    scene.fence = replace(
        scene.fence,
        masked=(str(scene.workspace / "conf"), *inside[:1]),
        protected=tuple(inside[1:2]),
        writable=(*scene.fence.writable, inside[2]),
    )
    ended = await ran(processes, scene, "echo begun; cat conf/id_rsa || ls conf/hooks")
    assert ended.output.startswith("begun\n")
    assert ended.exit_code
    assert BAIT not in ended.output


@pytest.mark.requirement("L2", "S14")
@pytest.mark.parametrize("kind", ["writable", "protected", "pinned", "masked"])
async def test_a_folder_that_became_a_link_meanwhile_shows_nothing(
    processes: Processes, scene: Scene, kind: str
) -> None:
    """A program in the background swaps a folder for a link after the fence was built. Inside, an empty folder lies
    where the link leads, as the home does."""
    (scene.outside / "deep").mkdir()
    swapped = scene.workspace / "swapped"
    swapped.symlink_to(os.path.relpath(scene.outside, scene.workspace))
    named = {
        "writable": {"writable": (str(scene.workspace), str(swapped))},
        "protected": {"protected": (str(swapped),)},
        "pinned": {"protected": (str(swapped / "deep"),)},
        "masked": {"masked": (str(swapped / "deep"),)},
    }
    scene.fence = replace(scene.fence, private=(str(scene.outside),), **named[kind])
    with contextlib.suppress(SandboxUnavailable):
        ended = await ran(processes, scene, f"ls {scene.outside}; echo x > {scene.outside}/written")
        assert "bait" not in ended.output
    assert not (scene.outside / "written").exists()


# --- is it a sandbox at all ---------------------------------------------------------------------


def fake(folder: Path, text: str) -> Bubblewrap:
    """A program that claims to be bwrap."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return Bubblewrap(str(program))


@pytest.mark.requirement("L2")
async def test_the_backend_of_this_machine_keeps_its_fence(processes: Processes) -> None:
    made = bubblewrap.make()
    assert isinstance(made, Bubblewrap)
    found = await made.probe()
    assert (found.backend, found.fault, found.hint) == ("bubblewrap", "", "")
    assert found.leaves_open
    assert bubblewrap.make() is made  # which is probed once


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('while [ "$1" != -- ]; do shift; done; shift; exec "$@"', "do what its fence forbids: read a file outside,"),
        ("exit 0", "It ended without an error, and did not run a program."),
        ("echo 'no namespaces here' >&2; exit 1", "could not run a program: no namespaces here."),
        ("echo a b; echo 'no root.'; echo; exit 1", "It could not run a program: no root."),
        ("yes | head -n 9000; exit 1", "It could not run a program: y."),
        ('echo \'{"bait": "x", "done": [], "failed": []}\'', "could not run a program"),
        ("kill -9 $$", "It was ended by signal 9."),
    ],
    ids=["runs its argument", "does nothing", "is broken", "says it before", "says much", "lies", "is killed"],
)  # fmt: skip
async def test_a_backend_that_keeps_nothing_out_does_not_count(tmp_path: Path, text: str, fault: str) -> None:
    found = await fake(tmp_path, text).probe()
    assert fault in found.fault
    assert ("AppArmor" in found.hint) == ("could not run" in fault)
    assert found.hint
    assert "\n" not in found.fault
    assert found.fault.endswith(".")


@pytest.mark.requirement("L2")
async def test_a_backend_that_cannot_be_started_does_not_count(tmp_path: Path) -> None:
    found = await Bubblewrap(str(tmp_path / "bwrap")).probe()
    assert found.fault == "It could not be started: No such file or directory."


def test_where_bwrap_is_not_installed_the_finding_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = bubblewrap.make()
    assert isinstance(found, Finding)
    assert found.fault == "bwrap is not installed."
    assert "apt install bubblewrap" in found.hint


@pytest.mark.requirement("L2")
async def test_a_command_that_has_ended_needs_no_look_at_all_processes(
    processes: Processes, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, package, begin = (
        tmp_path / "looks",
        tmp_path / "root/holdfast",
        "def _kill_tree(root: int) -> None:\n",
    )
    shutil.copytree(Path(guard.__file__).parent, package / "sandbox")
    (package / "__init__.py").touch()
    told = package / "sandbox/guard.py"
    source = told.read_text()
    assert begin in source
    told.write_text(source.replace(begin, f"{begin}    open({str(looks)!r}, 'a').write('x')\n"))
    monkeypatch.setattr(process, "ROOT", str(package.parent))
    for _ in range(10):
        assert (await ran(processes, scene, "true")).exit_code == 0
    assert not looks.exists() or len(looks.read_text()) <= 1  # the kernel may be slow once


@pytest.mark.requirement("L2")
async def test_a_program_has_no_capability_and_can_get_none(processes: Processes, scene: Scene) -> None:
    ended = await ran(processes, scene, "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status")
    assert {line.split()[-1] for line in ended.output.splitlines()} == {"0" * 16}


CONTROLS = ("/proc/sysrq-trigger", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("path", CONTROLS)
def test_what_shows_or_controls_the_kernel_is_hidden_on_a_machine_that_has_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """This machine may lack it."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", lambda _: True)
        made = Bubblewrap("bwrap")
    words = made.launch(scene.launch("true"), scene.fence).given[100].decode().split("\0")
    assert words[words.index("/proc") : words.index(path) + 1][-3:] == ["--ro-bind", "/dev/null", path]


@pytest.mark.requirement("L2", "H1")
def test_a_command_ends_by_itself_when_driver_keeper_and_guard_were_killed(tmp_path: Path) -> None:
    key = f"{KEY}-killed"
    inside = kill_all_who_watch("bubblewrap", tmp_path, key)
    until = time.monotonic() + 5
    while (left := trees.members([key])) and time.monotonic() < until:
        time.sleep(0.01)
    trees.end_trees([key])
    assert inside
    assert not left
