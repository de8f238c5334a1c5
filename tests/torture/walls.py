"""Rounds in which every command runs in a sandbox, while secret files of the workspace come and go.

Whatever belongs to a command is killed or frozen at a random moment: `bwrap`, what runs inside, the guard, keeper,
proxy and the driver. Nothing may be left afterwards, neither a process nor a mount, a socket, a private folder, a
group of processes nor an empty file, and nothing may have run outside of the sandbox.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from holdfast.testing.model_replies import Rendered, Reply, ReplyCall
from holdfast.testing.model_server import Received
from tests.edge.machine import descendants
from tests.torture.evidence import EFFECTS, OPEN_FILES, Evidence, Fault, bodies, journal
from tests.torture.judge import judge
from tests.torture.scene import Said, Scene, SceneServer, scene
from tests.torture.world import Record, World

BAIT = "a-bait-that-nobody-may-read"
KEPT = {
    ".git/config": "[core]\n\tbare = false\n",
    ".git/hooks/pre-commit": "#!/bin/sh\nexit 0\n",
    ".vscode/tasks.json": '{"tasks": []}\n',
    "sub/.envrc": "export KEPT=1\n",
    ".holdfast/config.toml": "# nothing\n",
}
"""Controlling files that commands try to change, and that must be as they were in the end."""
UNFENCED = "unfenced.log"
_COMING = ("conf/.env", "conf/deep/id_rsa", ".env.local", "x.pem", ".ssh/config", ".envrc")
"""Secret and controlling files that come and go."""
_TRY = "try.sh"
"""The script of the workspace that tries what is forbidden: no gate reads it."""
_TRIES = f"""
grep -q {BAIT} HIDDEN ../outside 2> /dev/null && echo read >> {UNFENCED}
for each in {" ".join(KEPT)}; do echo '# bad' >> $each; done 2> /dev/null
mv .git/hooks .git/moved 2> /dev/null; rm -rf .vscode 2> /dev/null; ln -s / sub/link 2> /dev/null
kill -0 "$1" 2> /dev/null && echo seen >> {UNFENCED}
curl -sf -m 2 --noproxy '*' "http://127.0.0.1:$3/" && echo sent >> {UNFENCED}
curl -s -m 2 "http://127.0.0.1:$3/" > /dev/null
case $2 in
0) ;;
"""
_LEAVES = (
    "(setsid sleep 300 &)",
    "(setsid bash -c 'setsid sleep 300 & setsid sleep 300 &' &)",
    "(trap '' TERM HUP INT; exec -a other env -i sleep 300) &",
    "for i in 1 2 3 4 5 6 7 8 9; do (setsid env -i sleep 300 &); done",
    "timeout 0.2 bash -c 'f() { f & }; f; sleep 0.1'",
)
"""What a command may leave behind."""


@dataclass(frozen=True)
class WallsScene(Scene):
    """A scene in a sandbox."""

    backend: str = "bubblewrap"

    @property
    def config(self) -> str:
        """The user file."""
        return f'{super().config}[sandbox]\nmode = "{self.backend}"\n[network]\nallow = ["127.0.0.1:PORT"]\n'

    def furnish(self, folder: Path) -> None:
        """What lies in the workspace at first, and beside it."""
        super().furnish(folder)
        for path in ("workspace/.env", "outside"):
            (folder / path).write_text(BAIT)
        cases = (f"{number}) {text} ;;\n" for number, text in enumerate(_LEAVES, 1))
        # Landlock lets a command read the secret files of its workspace; their values are masked.
        tries = _TRIES.replace("HIDDEN", ".env" if self.backend == "bubblewrap" else "")
        (folder / "workspace" / _TRY).write_text(f"{tries}{''.join(cases)}esac\n")
        subprocess.run(["git", "init", "-q", folder / "workspace"], check=True)
        for path, text in KEPT.items():
            (folder / "workspace" / path).parent.mkdir(exist_ok=True)
            (folder / "workspace" / path).write_text(text)


def walls_scene(seed: int, backend: str = "bubblewrap") -> WallsScene:
    """The scene of a seed."""
    plain = scene(seed)
    fields = {name: getattr(plain, name) for name in Scene.__dataclass_fields__}
    chance = random.Random(f"walls {seed}")
    return WallsScene(
        **{**fields, "turns": chance.randint(4, 8), "budget": "", "max_turns": 0, "parks": False},
        backend=backend,
    )


def land_scene(seed: int) -> WallsScene:
    """The scene of a seed, in the sandbox that needs no namespaces."""
    return walls_scene(seed, "landlock")


class WallsServer(SceneServer):
    """Its commands try what is forbidden, and leave processes behind. They also read a page of it by the proxy."""

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        """As `SceneServer.answer`."""
        if request.path == "/":
            return Reply(text=""), Rendered(200, "text/plain", b"a page")
        return super().answer(request)

    def said(self, number: int, body: bytes) -> Said:
        """As `SceneServer.said`."""
        said = super().said(number, body)
        calls = zip(said.calls, said.marks, strict=True)
        return Said(
            said.text, tuple(self._harder(call, mark, number) for call, (mark, _) in calls), said.marks
        )

    def _harder(self, call: ReplyCall, mark: str, number: int) -> ReplyCall:
        if call.name in ("read_file", "list_dir"):
            command = f"echo {mark} begun >> {EFFECTS}; sleep 0.1; echo {mark} ended >> {EFFECTS}"
            call = ReplyCall("shell", {"command": command})
        if call.name != "shell":
            return call
        leaves = random.Random(f"walls {self.scene.seed} {number}").randint(0, len(_LEAVES))
        port = self.url.rpartition(":")[2]
        command = f"bash {_TRY} {os.getpid()} {leaves} {port} > /dev/null; {call.arguments['command']}"
        return replace(call, arguments={"command": command})


@contextmanager
def coming_and_going(workspace: Path, seed: int) -> Iterator[None]:
    """Make, remove and rename secret files, until it is over."""
    is_over, chance = threading.Event(), random.Random(f"files {seed}")

    def work() -> None:
        while not is_over.wait(chance.uniform(0, 0.01)):
            path = workspace / chance.choice(_COMING)
            with suppress(OSError):
                if chance.random() < 0.5:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("not empty")
                elif chance.random() < 0.5:
                    path.unlink()
                elif path.stat().st_size:  # else it is there for a mount only, and would stay
                    path.rename(path.with_name("plain"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def hit(world: World, record: Record) -> None:
    """Kill or freeze something of the command that begins, a moment later. What freezes ends with its driver."""
    if (
        record.get("type") != "ToolCallStarted"
        or record.get("name") != "shell"
        or world.chance.random() < 0.4
    ):
        return
    driver, delay_s = world.driver, world.chance.uniform(0, 0.25)
    which, freezes = world.chance.random(), world.chance.random() < 0.3

    def strike() -> None:
        time.sleep(delay_s)
        below = descendants(driver)
        if not below:
            return
        pid = below[int(which * len(below))]
        with suppress(OSError):
            os.kill(pid, signal.SIGSTOP if freezes else signal.SIGKILL)
            world.blows += 1
        if freezes:
            time.sleep(delay_s)
            with suppress(OSError):
                os.kill(driver, signal.SIGKILL)
            time.sleep(1)
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)  # a keeper; nobody needs to end it

    threading.Thread(target=strike).start()


def traces() -> set[str]:
    """What sandboxes may leave on a machine: mounts, private folders and groups of processes."""
    found = {line for line in Path("/proc/mounts").read_text().splitlines() if "holdfast" in line}
    for top in {tempfile.gettempdir(), "/tmp", "/dev/shm", "/var/tmp"}:
        found |= {
            str(path) for path in Path(top).glob("*holdfast*") if not path.name.startswith("holdfast-test")
        }
    return found | {str(path) for path in Path("/sys/fs/cgroup").glob("**/*holdfast*")}


def lasting(before: set[str]) -> set[str]:
    """What is new among these, and stays: the rounds beside this one make and remove their own."""
    found = traces() - before
    for _ in range(100):
        if not found:
            break
        time.sleep(0.1)
        found &= traces()
    return found


def judge_walls(evidence: Evidence, before: set[str], backend: str = "bubblewrap") -> Iterator[Fault]:
    """What the judge of all sessions says, and what only a sandbox can do wrong."""
    workspace = evidence.workspace
    log = workspace / UNFENCED
    if log.exists():
        yield Fault("leaked", f"a command was not in its fence: {log.read_text().split()}")
    for path in workspace.rglob("*"):
        is_ours = ".git" in path.parts or path.name in (EFFECTS, OPEN_FILES)
        if not is_ours and path.is_file() and not path.stat().st_size:
            yield Fault("left", f"an empty file is left: {path}")
    for path in evidence.home.rglob("*"):
        if path.is_socket():
            yield Fault("left", f"a socket is left: {path}")
    for path, text in KEPT.items():
        if not (workspace / path).is_file() or (workspace / path).read_text() != text:
            yield Fault("damaged", f"a protected file is not as it was: {path}")
    for path in (evidence.home / "aside").glob("*"):
        yield Fault("left", f"a trace of a command is left: {path}")
    for trace in lasting(before):
        yield Fault("left", f"a mount, a folder or a group is left: {trace}")
    for body in bodies(journal(evidence.home), "ToolCallStarted"):
        if body["name"] == "shell" and body.get("walled", {}).get("backend") != backend:
            yield Fault("leaked", f"a command began outside of a sandbox: {body}")
    for path in (".git", "conf", ".ssh", ".vscode", "sub", ".holdfast"):
        shutil.rmtree(workspace / path, ignore_errors=True)
    for name in (".env", "plain", UNFENCED, _TRY, *_COMING):
        (workspace / name).unlink(missing_ok=True)
    for path in workspace.rglob("*.put-aside*"):  # `.envrc` came while a command ran
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    yield from judge(evidence)  # which takes what is left for the work of the session
