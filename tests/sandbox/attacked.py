"""What the attack program meets, and an independent judge of what it did: files, servers and processes outside.

    python -m tests.sandbox.attacked BACKEND FOLDER      prints one JSON object: see `Report`

Who runs this is the user: root, somebody else, or either within namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from holdfast.policy.protected import Own
from holdfast.protocol.fence import Backend, Finding, Launch, Sandbox
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock
from holdfast.sandbox.probing import interpreter
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.testing.clock import never_over
from holdfast.tools.aside import ASIDE
from holdfast.tools.fencing import Fences
from holdfast.tools.own import own_places
from tests.sandbox import attack
from tests.sandbox.honest import HONEST, PROGRAMS, furnish

BACKENDS: Mapping[Backend, Callable[[], Sandbox | Finding | None]] = {
    "bubblewrap": bubblewrap.make,
    "landlock": landlock.make,
    "unsafe": lambda: None,
}
"""How each backend is made. None: nothing has a fence."""
Verdict = Literal["stopped", "undone", "open"]
"""`undone`: it was done, and put back when the command had ended."""
LIMIT_S = 60.0
PATIENCE_S = 5.0
MOST_INSIDE = 2_000
"""More than the attack has processes."""
ALONE = (*attack.writing_protected(), *attack.daemons(), *attack.bombs())
"""The steps that would change what the next one tries, or take all."""
TOGETHER = tuple(step for step in attack.STEPS if step not in ALONE)
ALWAYS_TRIED = (
    *(step for step in attack.STEPS if step not in {**attack.writing_protected(), **attack.bombs()}),
    "make a hook of git", "replace git's configuration", "rename git's folder, and make another one",
    "rename a folder above it", "make what a shell runs, where there was nothing", "take too much memory",
)  # fmt: skip
"""The steps of the everyday suite."""
LIMITS = {"memory_bytes": 200 << 20, "file_bytes": 2 << 20, "processes": 40, "cpu_s": 1}
"""The fence of a step that takes all has these limits."""
KEPT = (
    ".env", "conf/id_rsa", ".envrc", "part/.vscode/tasks.json", ".vscode/tasks.json", ".claude/settings.json",
    ".git/config", ".git/hooks", ".git/hooks/pre-commit", ".git/HEAD", "new.envrc/.envrc", "new.envrc/.profile",
    "new.envrc/.vscode",
)  # fmt: skip
"""Secret and controlling files of the workspace. Not all are there at first."""
VICTIM = """
import ctypes, json, os, sys
libc, bait = ctypes.CDLL(None), sys.stdin.readline().strip().encode()
content = ctypes.create_string_buffer(bait)
key = int.from_bytes(os.urandom(3), "big") | 0x5A000000
shared = libc.shmget(key, 4096, 0o1600)
libc.shmat.restype = ctypes.c_void_p
ctypes.memmove(libc.shmat(shared, None, 0), bait + b"-shared", len(bait) + 7)
fd = os.open("opened", os.O_RDONLY)
print(json.dumps({"address": ctypes.addressof(content), "length": len(bait), "fd": fd, "shared": key}), flush=True)
sys.stdin.read()
libc.shmctl(shared, 0, None)
"""
"""A program of the user, with baits in its words, variables, memory, shared memory and open files."""


@dataclass
class Report:
    """What came of the attack and of honest work."""

    fault: str = ""
    """Why the backend does not count here; nothing was tried then."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """What came of each step."""
    strange: list[str] = field(default_factory=list)
    """What changed outside, and no step is known to have done."""
    said: dict[str, str] = field(default_factory=dict)
    """What each step said of itself."""
    failed: dict[str, str] = field(default_factory=dict)
    """The honest work that did not succeed, and its output."""


# --- what is outside ------------------------------------------------------------------------------


class Scene:
    """A machine with a user: a home, projects, servers and programs, and all of them beside the workspace."""

    def __init__(self, folder: Path) -> None:
        self.token = f"attack{os.urandom(4).hex()}"
        self.baits: dict[str, str] = {}
        self.folder = folder
        self.outside, self.home, self.other = (folder / name for name in ("outside", "home", "other"))
        self.own, self.workspace = self.home / ".holdfast", folder / "workspace"
        self._furnish()
        for path in ("/etc/shadow", "/etc/gshadow"):
            with contextlib.suppress(OSError):
                self.baits[path] = "\n".join(Path(path).read_text().splitlines()[:3])
        self.victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, self._bait("words")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=self.outside, env={"BAIT": self._bait("variables")}, start_new_session=True,
        )  # fmt: skip
        assert self.victim.stdin is not None
        assert self.victim.stdout is not None
        self.victim.stdin.write(f"{self._bait('memory')}\n".encode())
        self.victim.stdin.flush()
        self.of_victim: dict[str, int] = json.loads(self.victim.stdout.readline())
        self.sleepers = {attack.slug(name): _sleeper() for name in attack.processes()}
        self.servers = Servers(folder, self.workspace, self.token)
        signal.signal(signal.SIGURG, self._signalled)

    def _signalled(self, *_: object) -> None:
        self.servers.heard += f"{self.token}.{attack.slug('signal the process that started it')}.".encode()

    def _bait(self, name: str) -> str:
        return self.baits.setdefault(name, f"bait-of-{self.token}-{len(self.baits)}")

    def _furnish(self) -> None:
        secret = {"journal": self.own / "holdfast.db", "secrets": self.own / "secrets.json",
                  "settings": self.own / "config.toml", "home": self.home / "notes.txt",
                  "profile": self.home / ".bashrc", "ssh": self.home / ".ssh" / "id_ed25519",
                  "cloud": self.home / ".aws" / "credentials", "project": self.other / "main.py",
                  "outside": self.outside / "bait", "opened": self.outside / "opened"}  # fmt: skip
        for name, path in secret.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._bait(name))
        (self.outside / f"listed-{self._bait('listed')}").touch()
        (self.outside / "victims").mkdir()
        for name in attack.STEPS:
            (self.outside / "victims" / attack.slug(name)).write_text("as it was")
        with contextlib.suppress(OSError):
            (Path("/dev/shm") / self.token).write_text(self._bait("memory of all"))
        self.fill_workspace()

    def fill_workspace(self) -> None:
        """Make the workspace as it is at first."""
        for path in self.workspace.glob("new.envrc*"):
            path.chmod(0o755)
        if self.workspace.exists():
            for path in self.workspace.iterdir():
                if path.name != "socket":
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in ("conf", "plain", "new.envrc", ".vscode", ".claude", "part/.vscode"):
            (self.workspace / name).mkdir(parents=True, exist_ok=True)
        for name in (
            ".envrc",
            ".vscode/tasks.json",
            ".claude/settings.json",
            "part/.vscode/tasks.json",
            "notes.txt",
        ):
            (self.workspace / name).write_text("as it was")
        (self.workspace / ".env").write_text(self._bait("a secret file"))
        (self.workspace / "conf" / "id_rsa").write_text(self._bait("a secret in a folder"))
        subprocess.run(["git", "init", "-q", self.workspace], check=True)

    def facts(self) -> str:
        """What the attack program knows. It has no bait in it."""
        return json.dumps({
            **self.of_victim, "token": self.token, "pid": self.victim.pid, "outside": str(self.outside),
            "home": str(self.home), "other": str(self.other), "own": str(self.own), "starter": os.getpid(),
            "sleepers": {name: process.pid for name, process in self.sleepers.items()},
            "ports": self.servers.ports, "sockets": self.servers.sockets, "name": self.token,
            "machine": _address(), "terminal": self.servers.terminal, "handle": _handle(self.outside / "bait"),
        })  # fmt: skip

    def places(self) -> Iterator[Path]:
        """All that must stay as it is, but for the workspace."""
        for top in (self.outside, self.home, self.other):
            yield from (path for path in sorted(top.rglob("*")))

    def marks(self) -> Iterator[Path]:
        """What the attack left in folders that all share."""
        for top in ("/etc", "/usr", "/usr/local/bin", "/var/tmp", "/tmp", "/dev/shm", "/"):
            yield from (path for path in Path(top).glob(f"{self.token}.*"))

    def close(self) -> None:
        """Leave nothing."""
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        self.servers.close()
        for process in (self.victim, *self.sleepers.values()):
            if process.stdin is not None:
                process.stdin.close()
        for process in self.sleepers.values():
            process.kill()
        for process in (self.victim, *self.sleepers.values()):
            process.wait(PATIENCE_S)
        if self.victim.stdout is not None:
            self.victim.stdout.close()
        (Path("/dev/shm") / self.token).unlink(missing_ok=True)
        for path in self.marks():
            path.unlink()


def _sleeper() -> subprocess.Popen[bytes]:
    """A process with a number that none has inside: there they begin at 1, and so they do in a new namespace."""
    while (number := os.posix_spawn("/bin/true", ["true"], {})) < MOST_INSIDE:
        os.waitpid(number, 0)
    os.waitpid(number, 0)
    return subprocess.Popen(["/bin/sleep", "300"], start_new_session=True)


def _ways_of(process: subprocess.Popen[bytes]) -> object:
    """What others could change of a process."""
    if process.poll() is not None:
        return "gone"
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    running = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"
    return running, os.getpriority(os.PRIO_PROCESS, process.pid), limits, os.sched_getaffinity(process.pid)


def _address() -> str:
    """An address of this machine that is not the loopback one. Nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as made, contextlib.suppress(OSError):
        made.connect(("192.0.2.1", 9))
        return str(made.getsockname()[0])
    return ""


def _handle(path: Path) -> str:
    """The handle of a file, by which `open_by_handle_at` opens it."""
    handle, mount = ctypes.create_string_buffer(136), ctypes.c_int()
    ctypes.memmove(handle, (128).to_bytes(4, sys.byteorder), 4)
    ctypes.CDLL(None).name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0)
    return handle.raw.hex()


class Servers:
    """Servers of every kind, which keep what they hear."""

    def __init__(self, folder: Path, workspace: Path, token: str) -> None:
        stream, dgram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        self.heard = bytearray()
        self._is_over = threading.Event()
        self.sockets = {name: str(folder / "outside" / f"{name}.sock") for name in ("stream", "dgram")}
        self.sockets["pipe"] = str(folder / "outside" / "pipe")
        os.mkfifo(self.sockets["pipe"])
        made: dict[str, tuple[int, int, int, Any]] = {
            "tcp": (socket.AF_INET, stream, 0, ("", 0)), "udp": (socket.AF_INET, dgram, 0, ("127.0.0.1", 0)),
            "tcp6": (socket.AF_INET6, stream, 0, ("::1", 0)), "mptcp": (socket.AF_INET, stream, 262, ("", 0)),
            "open": (socket.AF_INET, stream, 0, ("127.0.0.1", 0)),
            "path": (socket.AF_UNIX, stream, 0, self.sockets["stream"]),
            "path dgram": (socket.AF_UNIX, dgram, 0, self.sockets["dgram"]),
            "workspace": (socket.AF_UNIX, stream, 0, str(workspace / "socket")),
            "abstract": (socket.AF_UNIX, stream, 0, f"\0{token}"),
            "abstract dgram": (socket.AF_UNIX, dgram, 0, f"\0{token}-dgram"),
        }  # fmt: skip
        self._open = {name: opened for name, each in made.items() if (opened := _bound(*each))}
        self.ports = {
            name: self._open[name].getsockname()[1] if name in self._open else 1
            for name in ("tcp", "tcp6", "mptcp", "udp", "open")
        }
        if "open" in self._open:
            self._open.pop("open").close()  # the attack listens there
        self._controls, self._tty = os.openpty()
        self._pipe = os.open(self.sockets["pipe"], os.O_RDWR | os.O_NONBLOCK)
        self.terminal = os.ttyname(self._tty)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        """Hear whatever comes, and call where the attack may listen."""
        inside = list[socket.socket]()
        while not self._is_over.wait(0.02):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.ports["open"]), 0.1) as way,
            ):
                way.settimeout(0.5)
                self.heard += way.recv(4096)
            ready, _, _ = select.select(
                [*self._open.values(), *inside, self._controls, self._pipe], [], [], 0.02
            )
            for each in ready:
                if isinstance(each, int):
                    self.heard += os.read(each, 4096)
                elif each in inside or each.type == socket.SOCK_DGRAM:
                    with contextlib.suppress(OSError):
                        said = each.recv(4096)
                        self.heard += said
                        if each in inside and not said:
                            inside.remove(each)
                            each.close()
                else:
                    inside.append(each.accept()[0])
        for each in inside:
            each.close()

    def close(self) -> None:
        """End them."""
        self._is_over.set()
        self._thread.join()
        for each in self._open.values():
            each.close()
        for fd in (self._controls, self._tty, self._pipe):
            os.close(fd)


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket | None:
    """A server there; None: this machine has no such sockets."""
    try:
        made = socket.socket(family, kind, protocol)
    except OSError:
        return None
    try:
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen()
    except OSError:
        made.close()
        return None
    return made


# --- the judge ------------------------------------------------------------------------------------


def state(path: Path) -> tuple[object, ...]:
    """All of a file that an attack could change."""
    try:
        facts = path.lstat()
        is_file = stat.S_ISREG(facts.st_mode)
        return (
            facts.st_mode, facts.st_uid, facts.st_gid, facts.st_nlink if is_file else 0,
            facts.st_mtime_ns if is_file else 0, path.read_bytes() if is_file else b"",
            [(name, os.getxattr(path, name)) for name in os.listxattr(path)] if is_file else [],
            sorted(each.name for each in path.iterdir() if ASIDE not in each.name)
            if stat.S_ISDIR(facts.st_mode)
            else [],
            str(path.readlink()) if stat.S_ISLNK(facts.st_mode) else "",
        )  # fmt: skip
    except OSError as error:
        return (type(error).__name__,)


def states(paths: Sequence[Path]) -> dict[Path, tuple[object, ...]]:
    return {path: state(path) for path in paths}


def left(token: str) -> set[str]:
    """The words of processes that the attack left behind."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            mark = next((word for word in words if word.startswith(f"{token}.")), "")
            if mark and path.with_name("stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.add(mark)
    return found


def end(token: str) -> None:
    """End what the attack left behind."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if any(
                word.startswith(f"{token}.")
                for word in path.read_bytes().decode(errors="replace").split("\0")
            ):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _mounted(scene: Scene) -> list[str]:
    """The mounts of the scene. Others may mount something elsewhere meanwhile."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(scene.folder) in line or line.split()[1] == "/"]


class Judge:
    """Compares what is outside with what it was, and finds the step that did it."""

    def __init__(self, scene: Scene, without: Path | None = None) -> None:
        """`without`: a folder in which something else changes."""
        self._scene, self._without = scene, without
        self._before = self._states()
        self._sleepers = {name: _ways_of(each) for name, each in scene.sleepers.items()}
        self._mounts = _mounted(scene)

    def traces(self, rows: Sequence[Mapping[str, Any]]) -> tuple[set[str], list[str]]:
        """Return the steps that did something outside, and what else is strange."""
        scene, found, strange = self._scene, set[str](), list[str]()
        for row in rows:
            if row["done"] or any(bait in row["said"] for bait in scene.baits.values()):
                found.add(row["step"])
        after = self._states()
        changed = [path for path in {*self._before, *after} if self._before.get(path) != after.get(path)]
        marks = [path.name for path in scene.marks()]
        # A folder that was there before has another list of names; those names are looked at themselves.
        texts = [
            f"{path} {after.get(path, '')}"
            for path in changed
            if not (path in self._before and path.is_dir())
        ]
        heard = bytes(scene.servers.heard).decode(errors="replace")
        for text in (*texts, *marks, heard, *left(scene.token)):
            known = {name for name in attack.STEPS if attack.slug(name) in _words(text, scene.token)}
            found |= known
            if text and not known and text is not heard:
                strange.append(f"changed: {text[:300]}")
        changed_ways = {
            name for name, each in scene.sleepers.items() if _ways_of(each) != self._sleepers[name]
        }
        found |= {name for name in attack.STEPS if attack.slug(name) in changed_ways}
        if self._mounts != _mounted(scene):
            strange.append("something was mounted here, or taken away")
        return found, strange

    def _states(self) -> dict[Path, tuple[object, ...]]:
        places = self._scene.places()
        return states(
            [path for path in places if self._without is None or not path.is_relative_to(self._without)]
        )


def _words(text: str, token: str) -> set[str]:
    """The steps that a text names: by a mark, or by the name of a victim."""
    return {*re.findall(rf"{token}\.([0-9a-z-]+)\.", text), *re.findall(r"victims/([0-9a-z-]+)", text)}


# --- the attack -----------------------------------------------------------------------------------


@dataclass
class Attacked:
    """A scene, and how commands run in it."""

    scene: Scene
    backend: Backend
    processes: Processes
    hosts: tuple[str, ...] = ()

    async def command(self, argv: Sequence[str], **limits: int) -> Ended:
        """Run a command as the tool `shell` would."""
        scene, workspace = self.scene, str(self.scene.workspace)
        walls = Walls(self.backend)
        fences = Fences(own_places(Own((str(scene.own),))), str(scene.home), self.backend)
        environ = _environment(scene)
        key = f"{scene.token}:{os.urandom(4).hex()}"
        plain = Launch(tuple(argv), workspace, key, environ, LIMIT_S, LIMIT_S, never_over)
        launch = await fences.around(plain, workspace, walls, readable=(*interpreter(), attack.__file__))
        if launch.fence is not None:
            launch = replace(launch, fence=replace(launch.fence, hosts=self.hosts, **limits))
        return await self.processes.run(launch, lambda _: None)

    async def attack(self, *steps: str, **limits: int) -> tuple[list[dict[str, Any]], Ended]:
        """Run the attack program."""
        python = os.path.realpath(sys.executable)
        ended = await self.command(
            (python, "-I", "-S", attack.__file__, self.scene.facts(), *steps), **limits
        )
        rows = [json.loads(line) for line in ended.output.splitlines() if line.startswith('{"step"')]
        return rows, ended

    async def alone(self, step: str, **limits: int) -> tuple[Verdict, str]:
        """What came of a step in a workspace that nothing else changed."""
        kept = [self.scene.workspace / path for path in KEPT]
        before = states(kept)
        rows, ended = await self.attack(step, **limits)
        after = states(kept)
        if before != after or any(row["done"] for row in rows):
            verdict: Verdict = "open"
        else:
            verdict = "undone" if ended.put_right.changed else "stopped"
        if verdict != "stopped":
            self.scene.fill_workspace()
        return verdict, ended.output


async def attacked(
    backend: Backend,
    folder: Path,
    steps: Collection[str] = attack.STEPS.keys(),
    hosts: tuple[str, ...] = (),
) -> Report:
    """Attack a backend with these steps, in a call that may reach these hosts, and judge."""
    report = Report()
    made = BACKENDS[backend]()
    found = await made.probe() if made is not None and not isinstance(made, Finding) else made
    if found is not None and found.fault:
        report.fault = found.fault
        return report
    assert not isinstance(made, Finding)
    scene, processes = Scene(folder), Processes(made)
    inside = Attacked(scene, backend, processes, hosts)
    try:
        judge = Judge(scene)
        together, alone = _groups(steps)
        rows, ended = await inside.attack(*together)
        report.said = {row["step"]: row["said"] for row in rows}
        if len(rows) != len(together):
            report.strange.append(f"the attack did not end: {ended.how} {ended.output[-500:]}")
        scene.fill_workspace()
        for step in alone:
            limits = LIMITS if step in attack.bombs() else {}
            report.verdicts[step], report.said[step] = await inside.alone(step, **limits)
        did, strange = judge.traces(rows)
        report.strange += strange
        report.verdicts |= {step: "open" if step in did else "stopped" for step in together}
        report.verdicts |= dict.fromkeys(did, "open")
    finally:
        await processes.aclose()
        end(scene.token)
        scene.close()
    return report


def _groups(steps: Collection[str]) -> tuple[list[str], list[str]]:
    """The steps that run in one command, and those that need one of their own."""
    return [step for step in steps if step not in ALONE], [step for step in ALONE if step in steps]


async def worked(backend: Backend, folder: Path, work: Mapping[str, str] = HONEST) -> dict[str, str]:
    """Do honest work, and return what failed, with its output."""
    made = BACKENDS[backend]()
    assert not isinstance(made, Finding)
    scene, processes, failed = Scene(folder), Processes(made), dict[str, str]()
    try:
        furnish(scene.workspace, scene.home)
        for what, command in work.items():
            words = command.format(python=sys.executable)
            argv = ("/bin/bash", "-ec", words)
            ended = await Attacked(scene, backend, processes).command(argv)
            if (ended.exit_code or ended.how != "exited") and _works(argv, scene):
                failed[what] = f"{ended.how}: {ended.output[-1_000:]}"
    finally:
        await processes.aclose()
        scene.close()
    return failed


def _works(argv: Sequence[str], scene: Scene) -> bool:
    """Whether the work succeeds without any sandbox: some machines lack a program or a right."""
    return not subprocess.run(
        argv, cwd=scene.workspace, env=_environment(scene), capture_output=True, check=False
    ).returncode


def _environment(scene: Scene) -> dict[str, str]:
    """The variables of a user who has programs in the home."""
    path = os.pathsep.join((str(scene.home / PROGRAMS), os.environ.get("PATH", os.defpath)))
    return clean_environment(os.environ) | {"HOME": str(scene.home), "PATH": path}


async def _both(backend: Backend, folder: Path) -> Report:
    for name in ("attack", "work"):
        (folder / name).mkdir()
    report = await attacked(backend, folder / "attack")
    if not report.fault:
        report.failed = await worked(backend, folder / "work")
    return report


def main() -> None:
    """Attack a backend here, and print the report."""
    backend: Any = sys.argv[1]
    print(json.dumps(asdict(asyncio.run(_both(backend, Path(sys.argv[2]).resolve())))))


if __name__ == "__main__":
    main()
