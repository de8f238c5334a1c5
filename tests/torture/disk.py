"""A disk that fails: one command meets a failing call on a file of its home, and a judge looks at what is left.

python -m tests.torture.disk                              every call of every stage, in every way: about an hour
python -m tests.torture.disk --stage run --way eio --k 17     one round again; its folder stays

A round copies a prepared home, runs one command in a process of its own in which the k-th call fails, then goes on
without the fault as a person would, to the end. `disk_judge` says what must hold then.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.storage.power import built_shim
from tests.torture.disk_judge import (
    DONE,
    SESSION,
    STORAGE,
    WAITS,
    Ran,
    Room,
    judge,
    rest_of,
    right_code,
    types,
)

TASK, PART = "Do it all.", "a part\n" * 40
MANY = "seq 1 9000; echo once >> effects.log; chmod 600 effects.log"
"""A command that has an effect, prints so much that it becomes a blob, and needs approval."""
REPLIES = (
    Reply(tool_calls=(ReplyCall("write_file", {"path": "part.txt", "content": PART}),)),
    Reply(tool_calls=(ReplyCall("shell", {"command": MANY}),)),
    Reply(tool_calls=(ReplyCall("edit_file", {"path": "part.txt", "old": PART, "new": "whole\n"}),)),
    Reply(text="All is done."),
)
RUN = ("run", TASK, "-s", SESSION, "-m", "openai:gpt-test", "--stream-json")
RESUME = ("resume", SESSION, "--stream-json")
LOOK = ("show", SESSION)
COMPACT = ("compact", SESSION)
RESTORE = (*COMPACT, "--undo")
APPROVE = ("approve",)
"""And the id of what is asked for."""
PATIENCE_S = 120
"""Longer than a round takes on a slow machine: it only ends what hangs."""


class Way(NamedTuple):
    """How calls fail."""

    error: int
    kinds: int
    """1: calls that write, 2: that read, 3: both."""
    stays: bool
    """Whether all later ones fail too."""


WAYS = {
    "eio": Way(errno.EIO, 3, False),
    "dead": Way(errno.EIO, 3, True),
    "enospc": Way(errno.ENOSPC, 1, False),
    "full": Way(errno.ENOSPC, 1, True),
}
STAGES = ("run", "approve", "resume", "model taken over", "tool taken over", "compact", "restore")
"""Which command meets the fault: the first one, the answer to its question, the one that goes on from there, the one
that takes over from a process that died while a model or a tool was at work, and those that compact the view and
bring it back."""


class Result(NamedTuple):
    """What came of a round."""

    stage: str
    way: str
    k: int
    met: str
    """The call that failed first; empty when none did."""
    code: int
    """The exit code of the command that met the failure."""
    faults: tuple[str, ...]
    folder: Path

    @property
    def again(self) -> str:
        """The command that plays it once more."""
        return f"python -m tests.torture.disk --stage '{self.stage}' --way {self.way} --k {self.k}"


# --- processes ----------------------------------------------------------------------------------


_PARENT = """
import ctypes, importlib, json, os, resource, signal, sys, time
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
from holdfast.cli.root import run
shim = ctypes.CDLL(os.environ.pop("LD_PRELOAD"))
for line in sys.stdin:
    asked = json.loads(line)
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(asked["cwd"])
        for at, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), at)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(asked["environ"])
        home, first, last, error, kinds, log = asked["arm"]
        if log:
            longs = [ctypes.c_long(first), ctypes.c_long(last)]
            shim.disk_arm(home.encode(), *longs, error, kinds, log.encode())
        code = 70
        try:
            code = run(asked["words"])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(asked["patience_s"])
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - began]), flush=True)
"""
"""Loads all that the command needs once; each command is a fork of it, and so a process of its own."""

_LOADED = "import sys; from holdfast.cli.root import run; run(sys.argv[1:]); print(*sys.modules, sep='\\n')"


class Commands:
    """Runs commands, one after another, each in its own process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.jsonl")
            script.write_text('{"text": "x"}\n')
            words = ["run", "x", "-m", f"script:{script}", "--home", folder + "/home"]
            done = subprocess.run(
                [sys.executable, "-c", _LOADED, *words],
                capture_output=True,
                text=True,
                check=True,
                env=environ,
            )
        wanted = [name for name in done.stdout.splitlines() if name.split(".")[0] in _LOADS]
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, "LD_PRELOAD": str(built_shim())},
        )

    def run(self, room: Room, words: Sequence[str], arm: Arm | None = None) -> Ran:
        """Run the command to its end."""
        out, err = room.folder / "out", room.folder / "err"
        asked = {
            "words": list(words),
            "cwd": str(room.workspace),
            "out": str(out),
            "err": str(err),
            "environ": {"HOLDFAST_HOME": str(room.home)},
            "arm": [str(room.home), *(arm or NO_ARM)],
            "patience_s": PATIENCE_S,
        }
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(asked) + "\n")
        self._parent.stdin.flush()
        code, took_s = json.loads(self._parent.stdout.readline())
        return Ran(
            tuple(words), code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"), took_s
        )

    def close(self) -> None:
        """End the parent of all commands."""
        self._parent.communicate()


_LOADS = (
    "holdfast",
    "asyncio",
    "sqlite3",
    "aiohttp",
    "msgspec",
    "rich",
    "typer",
    "click",
    "jsonschema_rs",
    "json",
)


class Arm(NamedTuple):
    """Which calls fail in a command."""

    first: int
    last: int
    error: int
    kinds: int
    log: str


NO_ARM = Arm(0, 0, 0, 0, "")


class Server:
    """The model, in a thread: what it answers follows from what it is asked, so that nothing depends on its past."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = ModelServer(REPLIES, choose="turn", kept_requests=1_000_000)
        asyncio.run_coroutine_threadsafe(self._server.__aenter__(), self._loop).result()
        self.url = self._server.openai_url

    def take(self) -> list[bytes]:
        """The bodies that came since this was asked last."""

        async def taken() -> list[bytes]:
            bodies = [request.body for request in self._server.requests]
            self._server.requests.clear()
            return bodies

        return asyncio.run_coroutine_threadsafe(taken(), self._loop).result()

    def close(self) -> None:
        """Stop it."""
        asyncio.run_coroutine_threadsafe(self._server.__aexit__(None, None, None), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


# --- rounds -------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """What a stage begins with: a folder to copy, what was done to make it, and the command that is to fail."""

    folder: Path
    ran: tuple[Ran, ...]
    served: tuple[bytes, ...]
    words: tuple[str, ...]
    code: int
    """What that command ends with when all goes well."""


class Bench:
    """All that rounds share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = Server()
        environ = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
        }
        environ |= {
            "OPENAI_BASE_URL": self._server.url,
            "OPENAI_API_KEY": "a-key-of-nobody",
            "HOLDFAST_ADMIN_CONFIG": "/nowhere",
        }
        self._commands = Commands(environ)
        self._prepared: dict[str, Prepared] = {}
        self._count = 0

    def close(self) -> None:
        """End all."""
        self._commands.close()
        self._server.close()

    def count(self, stage: str, way: str) -> int:
        """How many calls there are to fail."""
        room = self._room(self.prepared(stage))
        ran = self._commands.run(
            room, self.prepared(stage).words, Arm(0, 0, 0, WAYS[way].kinds, str(room.log))
        )
        self._server.take()
        assert ran.code == self.prepared(stage).code, ran
        return len(room.log.read_text().splitlines())

    def play(self, stage: str, way: str, k: int, *, keeps: bool = False) -> Result:
        """One round."""
        prepared = self.prepared(stage)
        room, how = self._room(prepared), WAYS[way]
        arm = Arm(k, 1 << 40 if how.stays else k, how.error, how.kinds, str(room.log))
        failing = self._commands.run(room, prepared.words, arm)
        ran = [*prepared.ran, failing, *self._to_the_end(room, failing)]
        served = [*prepared.served, *self._server.take()]
        met = next((line for line in room.log.read_text().splitlines() if line.endswith("FAILED")), "")
        faults = (*right_code(failing, prepared.code), *judge(room, ran, served))
        kept = self._kept(room) if faults or keeps else room.folder
        return Result(stage, way, k, met.removesuffix(" FAILED"), failing.code, faults, kept)

    def _to_the_end(self, room: Room, failing: Ran) -> Iterator[Ran]:
        """Go on as a person would: look what there is, answer what is asked, resume, and begin anew if nothing is. A
        view that was not cut or brought back is asked for again."""
        if failing.code and failing.words[0] == COMPACT[0]:
            yield self._commands.run(room, failing.words)
        for _ in range(6):
            status, asked = rest_of(room.home)
            if status == "done":
                yield self._commands.run(room, LOOK)
                return
            words = RESUME if status else RUN
            if asked:
                words = (*APPROVE, asked)
            yield self._commands.run(room, words)

    def prepared(self, stage: str) -> Prepared:
        """What the stage begins with; made once."""
        if stage not in self._prepared:
            self._prepared[stage] = self._prepare(stage)
        return self._prepared[stage]

    def _prepare(self, stage: str) -> Prepared:
        if stage == "run":
            return Prepared(self._kept(self._room(None)), (), (), RUN, WAITS)
        if stage == "approve":
            return self._after("run", lambda room: (*APPROVE, rest_of(room.home)[1]), DONE)
        if stage == "resume":
            return self._after("approve", lambda _: RESUME, DONE)
        if stage == "compact":
            return self._after("resume", lambda _: COMPACT, DONE)
        if stage == "restore":
            return self._after("compact", lambda _: RESTORE, DONE)
        before, last = (
            ("run", "ModelCallStarted") if stage.startswith("model") else ("resume", "ToolCallStarted")
        )
        return self._died(before, last)

    def _after(self, stage: str, words: Any, code: int) -> Prepared:
        before = self.prepared(stage)
        room = self._room(before)
        ran = self._commands.run(room, before.words)
        assert ran.code == before.code, ran
        served = (*before.served, *self._server.take())
        next_words = words(room)
        return Prepared(self._kept(room), (*before.ran, ran), served, next_words, code)

    def _died(self, stage: str, last: str) -> Prepared:
        """The home of a process whose disk died right after a record of that type."""
        before = self.prepared(stage)
        for k in range(1, self.count(stage, "dead")):
            room = self._room(before)
            ran = self._commands.run(room, before.words, Arm(k, 1 << 40, errno.EIO, 1, str(room.log)))
            served = (*before.served, *self._server.take())
            if rest_of(room.home)[0] and types(room.home)[-1:] == [last]:
                code = WAITS if stage == "run" else DONE
                return Prepared(self._kept(room), (*before.ran, ran), served, RESUME, code)
        raise AssertionError(f"no process of stage {stage} died behind a {last}")

    def _room(self, prepared: Prepared | None) -> Room:
        """A folder as it was prepared, always at the same place: a session remembers where its workspace is."""
        room = Room(self._folder / "at")
        shutil.rmtree(room.folder, ignore_errors=True)
        if prepared is None:
            room.workspace.mkdir(parents=True)
        else:
            shutil.copytree(prepared.folder, room.folder, ignore=shutil.ignore_patterns("*.sock"))
            for bell in prepared.folder.rglob("*.sock"):  # left by the process that died
                with socket.socket(socket.AF_UNIX) as left:
                    left.bind(str(room.folder / bell.relative_to(prepared.folder)))
        room.log.unlink(missing_ok=True)
        return room

    def _kept(self, room: Room) -> Path:
        """The folder at a place of its own, where it stays."""
        self._count += 1
        return room.folder.rename(self._folder / str(self._count))


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """A bench whose rounds happen in the folder."""
    made = Bench(folder)
    try:
        yield made
    finally:
        made.close()


# --- all rounds ---------------------------------------------------------------------------------


def table(results: Iterable[Result]) -> str:
    """What came of the rounds, a line for each stage and way."""
    kinds: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        kinds.setdefault((result.stage, result.way), []).append(result)
    lines = [f"{'stage':<18}{'way':<9}{'rounds':>7}{'met':>6}{'exit 9':>8}{'went on':>9}{'faults':>8}"]
    for (stage, way), found in kinds.items():
        met, refused = sum(bool(each.met) for each in found), sum(each.code == STORAGE for each in found)
        wrong = sum(bool(each.faults) for each in found)
        lines.append(
            f"{stage:<18}{way:<9}{len(found):>7}{met:>6}{refused:>8}{len(found) - refused:>9}{wrong:>8}"
        )
    return "\n".join(lines)


def told(result: Result) -> str:
    """A round with faults, and how to have it again."""
    faults = "".join(f"\n    {fault}" for fault in result.faults)
    return f"{result.again}   ({result.folder})\n    met {result.met!r}, exit {result.code}{faults}"


def main() -> int:
    """Play, and print; 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.disk", description=__doc__)
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--k", type=int, default=0, help="the call that fails; 0: each of them")
    parser.add_argument("--step", type=int, default=1, help="only each so-manieth call")
    given = parser.parse_args()
    results: list[Result] = []
    began_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    with bench(folder) as made:
        for stage in [given.stage] if given.stage else STAGES:
            for way in [given.way] if given.way else WAYS:
                for k in [given.k] if given.k else range(1, made.count(stage, way) + 1, given.step):
                    results.append(made.play(stage, way, k, keeps=bool(given.k)))
                    if results[-1].faults or given.k:
                        sys.stdout.write(told(results[-1]) + "\n")
                        sys.stdout.flush()
    sys.stdout.write(f"{table(results)}\n{time.monotonic() - began_s:.0f} s\n")
    if not given.k and not any(result.faults for result in results):
        shutil.rmtree(folder)
    return int(any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
