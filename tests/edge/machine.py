"""A machine of its own for a test: a home, a workspace, no keys, and the real command in real processes.

Each test has its own checks. `tests.torture` watches the commands that it tortures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.edge import nursery
from tests.edge.nursery import CUSTOMIZED

Line = Mapping[str, Any]

PATIENCE_S = 120.0
"""Longer than anything takes on a slow machine: it only ends a test that hangs."""
LONG_LEASE = {"PYTHONPATH": str(CUSTOMIZED), "LEASE_MS": "600000"}
"""Nobody who waits for the end of a lease is done before a test is ended as one that hangs."""


class Finished(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on its stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its stdout as one object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Machine:
    """Where commands of a test run; `make_machine` makes one."""

    folder: Path
    environ: Mapping[str, str]

    @property
    def home(self) -> Path:
        """The home of all commands that name no other."""
        return self.folder / "home"

    @property
    def workspace(self) -> Path:
        """The folder in which commands start: without -w the tools work here."""
        return self.folder / "workspace"

    @property
    def said(self) -> Path:
        """What all started commands said for people."""
        return self.folder / "said"

    def holdfast(self, *arguments: str, timeout_s: float = PATIENCE_S, **environ: str) -> Finished:
        """Run the command to its end; whatever it comes to, it must not be a traceback or a bug."""
        done = nursery.run(arguments, text=True, timeout=timeout_s, **self._options(environ))
        assert "Traceback (most recent call last):\n" not in done.stdout + done.stderr, done.stderr
        assert "that should not have" not in done.stderr, "a bug, told as one"
        return Finished(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, is_loaded_anew: bool = False, **environ: str) -> subprocess.Popen[str]:
        """Start the command; its stdout is a pipe, what it says for people goes to a file.

        `is_loaded_anew`: as a user's shell starts it, whose child it is.
        """
        with self.said.open("a") as said:
            return nursery.start(
                arguments, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
                is_loaded_anew=is_loaded_anew, **self._options(environ),
            )  # fmt: skip

    def script(self, lines: Iterable[Line], name: str = "script") -> str:
        """The name of a model that answers with these lines."""
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{path}"

    def configure(self, content: str) -> Path:
        """Write the user file."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        file = self.home / "config.toml"
        file.write_text(content)
        return file

    def events(self, session: str) -> list[dict[str, Any]]:
        """The journal of a session, as `show --events --json` prints it."""
        answer = self.holdfast("show", session, "--events", "--json")
        assert answer.code == 0, answer.err
        return answer.rows

    def launch(
        self, arguments: Iterable[str], environ: Mapping[str, str]
    ) -> tuple[list[str], dict[str, Any]]:
        """What `subprocess` is given to start the command: the words, and the options."""
        return [sys.executable, "-m", "holdfast", *arguments], self._options(environ)

    def _options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        return {"cwd": self.workspace, "env": {**unconfined(self.home), **self.environ, **environ}}


def unconfined(home: Path) -> dict[str, str]:
    """The variable of tests that are not about the sandbox, which takes a while to begin. A user file that has
    something to say about it counts.
    """
    file = home / "config.toml"
    says = file.is_file() and re.search(r"(?m)^\[?sandbox\b", file.read_text(errors="replace"))
    return {} if says else {"HOLDFAST_SANDBOX_MODE": "unsafe"}


def make_machine(folder: Path) -> Machine:
    """A machine in an empty folder. Nothing of this environment is in it but what every command needs: compiled
    modules are kept, so that a start costs what it does for a user."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    machine = Machine(
        folder,
        {
            **environ,
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_ADMIN_CONFIG": str(folder / "no-admin.toml"),
        },
    )
    machine.workspace.mkdir(parents=True)
    return machine


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What the process prints, line by line; one that is silent for too long is killed."""
    assert process.stdout is not None
    while True:
        watch = threading.Timer(PATIENCE_S, process.kill)
        watch.start()
        try:
            line = process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            return
        yield line


def descendants(pid: int) -> list[int]:
    """All processes below one, in the order of their numbers."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found and child not in found}:
        found |= more
    return sorted(found - {pid})


def at_s(record: Mapping[str, Any]) -> float:
    """When a record was written, in seconds since the epoch."""
    return datetime.fromisoformat(record["at"]).timestamp()


def call(name: str, **arguments: object) -> dict[str, object]:
    """A tool call of a script's line."""
    return {"name": name, "arguments": arguments}


def of_type(events: Iterable[Mapping[str, Any]], *types: str) -> list[dict[str, Any]]:
    """The bodies of the events of these types, in order."""
    return [event["body"] for event in events if event["type"] in types]
