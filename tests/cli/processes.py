"""The command line as processes of its own: run to the end, watched while they work, or at a pretended terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.edge import nursery

TIMEOUT_S = 120
"""Longer than anything takes on a slow machine: it only ends a test that hangs."""
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR", "USER")


class Ended(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one object."""
        value: dict[str, Any] = json.loads(self.out)
        return value


@dataclass
class Cli:
    """A home, a workspace and a folder of scripts, all new."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()

    def model(self, *lines: Mapping[str, Any], name: str = "script") -> str:
        """A scripted model that answers so."""
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{path}"

    def configure(self, text: str) -> None:
        """Write the user file."""
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(text)

    def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        """Run a command to its end."""
        done = nursery.run(
            arguments, input=stdin, text=True, timeout=TIMEOUT_S, cwd=self.workspace, env=self._environ()
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def working(self, *arguments: str) -> Iterator[Working]:
        """A command that prints its events while it works."""
        process = nursery.start(
            [*arguments, "--stream-json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.workspace, env=self._environ(),
        )  # fmt: skip
        with process:
            try:
                yield Working(process)
            finally:
                process.kill()

    @contextmanager
    def terminal(self, *arguments: str) -> Iterator[Terminal]:
        """A command at a terminal of its own, whose keys send it signals."""
        with self._at_terminal(partial(nursery.start, arguments, is_at_terminal=True)) as screen:
            yield screen

    @contextmanager
    def shell(self, line: str) -> Iterator[Terminal]:
        """A shell at a terminal, which suspends and continues its jobs, and runs `holdfast` with these words."""
        with self.at_terminal(["/bin/sh", "-i"]) as screen:
            screen.type(f"{sys.executable} -m holdfast {line}\n")
            yield screen

    @contextmanager
    def at_terminal(self, command: list[str]) -> Iterator[Terminal]:
        """Any program at a terminal."""
        with self._at_terminal(
            partial(subprocess.Popen, command, preexec_fn=lambda: os.login_tty(0))
        ) as screen:
            yield screen

    @contextmanager
    def _at_terminal(self, start: Callable[..., subprocess.Popen[bytes]]) -> Iterator[Terminal]:
        outside, inside = pty.openpty()
        process = start(
            stdin=inside, stdout=inside, stderr=inside, cwd=self.workspace,
            env={"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"} | self._environ(),
        )  # fmt: skip
        os.close(inside)
        screen = Terminal(process, outside)
        with process:
            try:
                yield screen
            finally:
                process.kill()
                screen.close()

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        own = {"HOLDFAST_HOME": str(self.home), "HOLDFAST_ADMIN_CONFIG": str(self.folder / "admin.toml")}
        return kept | own | self.environ


class Working:
    """A process whose events are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.rows: list[dict[str, Any]] = []

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event or crumb that is meant."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rows.append(json.loads(line))
            if is_it(self.rows[-1]):
                return self.rows[-1]
        raise AssertionError(f"it ended without that: {self.process.communicate()[1]}")

    def until_type(self, name: str) -> dict[str, Any]:
        """The first event of that type."""
        return self.until(lambda row: row.get("type") == name)

    def end(self, signal_number: int = 0) -> Ended:
        """Its end, after a signal if one is given."""
        if signal_number:
            self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        self.rows += [json.loads(line) for line in out.splitlines()]
        assert "Traceback" not in err, err
        return Ended(self.process.returncode, out, err)


class Terminal:
    """A process at a terminal: type, and read the screen."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.screen = ""
        self._fd = fd
        self._seen = 0

    def until(self, text: str) -> None:
        """Wait until the text appears after what was waited for last."""
        deadline = time.monotonic() + TIMEOUT_S
        while (at := self.screen.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"waited for {text!r}: {self.screen}"
            assert self._read(), f"it ended without {text!r}: {self.screen}"
        self._seen = at + len(text)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._fd, text.encode())

    def end(self) -> int:
        """Read to its end; its exit code."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT_S)

    def hang_up(self) -> int:
        """Take the terminal away, as a closed window does; the exit code."""
        self.close()
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """Let go of it; the second time nothing happens."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], TIMEOUT_S)[0]:
            return False
        try:
            content = os.read(self._fd, 65_536)
        except OSError:  # the other side is closed
            return False
        if b"\x1b[6n" in content:  # asked where the cursor is, as a line editor does, a terminal answers
            os.write(self._fd, b"\x1b[1;1R")
        self.screen += content.decode("utf-8", "replace")
        return bool(content)


SLOW: Mapping[str, Any] = {"text": "word " * 600, "chunks": 600, "delay_s": 60}
"""A response that tells a word every tenth of a second, for a minute."""


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    """A response that asks for one call."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def says(text: str, **more: Any) -> dict[str, Any]:
    """A response of words."""
    return {"text": text, **more}


def is_running(marker: str) -> bool:
    """Whether any process has the marker among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False
