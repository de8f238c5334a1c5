"""The command line as processes of its own: run to the end, watched while they work, or at a pretended terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyte

from tests.edge import nursery
from tests.edge.machine import unconfined

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
    def emulator(self, *arguments: str, columns: int = 80, rows: int = 24) -> Iterator[Emulator]:
        """A command at a terminal whose screen is drawn."""
        start = partial(nursery.start, arguments, is_at_terminal=True)
        with self._at_terminal(start, partial(Emulator, columns, rows)) as screen:
            assert isinstance(screen, Emulator)
            yield screen

    @contextmanager
    def shell(self, line: str) -> Iterator[Terminal]:
        """A shell at a terminal, which suspends and continues its jobs, and runs `holdfast` with these words."""
        with self.at_terminal(["/bin/sh", "-i"]) as screen:
            screen.type(f"{sys.executable} -m holdfast {line}\n")
            yield screen

    @contextmanager
    def drawn_shell(self, line: str, columns: int = 100, rows: int = 30) -> Iterator[Emulator]:
        """Such a shell at a terminal whose screen is drawn."""
        start = partial(subprocess.Popen, ["/bin/sh", "-i"], preexec_fn=lambda: os.login_tty(0))
        with self._at_terminal(start, partial(Emulator, columns, rows)) as screen:
            assert isinstance(screen, Emulator)
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
    def _at_terminal(
        self,
        start: Callable[..., subprocess.Popen[bytes]],
        make: partial[Emulator] | None = None,
    ) -> Iterator[Terminal]:
        outside, inside = pty.openpty()
        environ = {"TERM": "xterm", "NO_COLOR": "1"} | ({} if make else {"COLUMNS": "100"})
        if make is not None:
            resize(outside, *make.args)
        process = start(
            stdin=inside, stdout=inside, stderr=inside, cwd=self.workspace,
            env=environ | self._environ(),
        )  # fmt: skip
        os.close(inside)
        screen = make(process=process, fd=outside) if make else Terminal(process, outside)
        with process:
            try:
                yield screen
            finally:
                process.kill()
                screen.close()

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        own = {"HOLDFAST_HOME": str(self.home), "HOLDFAST_ADMIN_CONFIG": str(self.folder / "admin.toml")}
        return kept | own | unconfined(self.home) | self.environ


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
        self._take(content)
        return bool(content)

    def _take(self, content: bytes) -> None:
        self.screen += content.decode("utf-8", "replace")


class Emulator(Terminal):
    """A terminal that draws what it gets, and keeps what scrolls off its top."""

    def __init__(self, columns: int, rows: int, process: subprocess.Popen[bytes], fd: int) -> None:
        super().__init__(process, fd)
        self._drawn = _Drawn(columns, rows)
        self._stream = pyte.ByteStream(self._drawn)
        self._seen_row = 0

    @property
    def lines(self) -> list[str]:
        """All lines, from the first one that scrolled off to the last one on the screen."""
        return [*self._drawn.above, *(line.rstrip() for line in self._drawn.display)]

    @property
    def modes(self) -> int:
        """The local modes of the terminal, such as ECHO."""
        return int(termios.tcgetattr(self._fd)[3])

    @property
    def text(self) -> str:
        """All lines as one text."""
        return "\n".join(self.lines).rstrip()

    def until(self, text: str) -> None:
        """Wait until a line has the text, below the line that was waited for last."""
        deadline = time.monotonic() + TIMEOUT_S
        while (row := self._row_of(text)) is None:
            assert time.monotonic() < deadline, f"waited for {text!r}:\n{self.text}"
            assert self._read(), f"it ended without {text!r}:\n{self.text}"
        is_prompt = (
            self.lines[row].strip() == ">"
        )  # it moves, and while it is drawn the cursor may be below it
        if row < len(self._drawn.above) + self._drawn.cursor.y and not is_prompt:
            self._seen_row = row + 1  # lines below the cursor move when others are printed

    def until_shown(self, *texts: str) -> None:
        """Wait until all texts are there at once, wherever they are."""
        deadline = time.monotonic() + TIMEOUT_S
        while not all(text in self.text for text in texts):
            assert time.monotonic() < deadline, f"waited for {texts}:\n{self.text}"
            assert self._read(), f"it ended without {texts}:\n{self.text}"

    def until_last(self, text: str) -> None:
        """Wait until the text is on the screen itself. It is looked for only there, which costs less."""
        deadline = time.monotonic() + TIMEOUT_S
        while not any(text in line for line in self._drawn.display):
            assert time.monotonic() < deadline, f"waited for {text!r}"
            assert self._read(), f"it ended without {text!r}"

    def until_gone(self, text: str) -> None:
        """Wait until the text is nowhere."""
        deadline = time.monotonic() + TIMEOUT_S
        while text in self.text:
            assert time.monotonic() < deadline, f"still there, {text!r}:\n{self.text}"
            assert self._read(), f"it ended with {text!r}:\n{self.text}"

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as a person does with a window."""
        self._drawn.resize(rows, columns)
        resize(self._fd, columns, rows)

    def _row_of(self, text: str) -> int | None:
        rows = self.lines[self._seen_row :]
        return next((self._seen_row + at for at, row in enumerate(rows) if text in row), None)

    def _take(self, content: bytes) -> None:
        super()._take(content)
        self._stream.feed(content)


class _Drawn(pyte.Screen):
    """A screen that keeps the lines which scroll off its top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.above: list[str] = []
        super().__init__(columns, rows)

    def index(self) -> None:
        """Move down one line. The first line goes up if this was the last one."""
        if self.cursor.y == self.lines - 1:
            self.above.append(self._first_line())
        super().index()

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size. Lines below the cursor go first, as on most terminals."""
        rows = lines or self.lines
        while self.cursor.y >= rows:
            self.above.append(self._first_line())
            at = self.cursor.x, self.cursor.y - 1
            self.cursor_position(0, 0)
            self.delete_lines(1)
            self.cursor.x, self.cursor.y = at
        for row in range(rows, self.lines):
            self.buffer.pop(row, None)
        self.lines = rows
        super().resize(rows, columns)

    @property
    def display(self) -> list[str]:
        """All lines, as pyte draws them. What is in ASCII takes a tenth of its time, and a test looks very often."""
        return [self._line(row) for row in range(self.lines)]

    def _first_line(self) -> str:
        return self._line(0).rstrip()

    def _line(self, row: int) -> str:
        cells, blank = self.buffer[row], self.default_char
        text = "".join([cells.get(column, blank).data for column in range(self.columns)])
        return text if text.isascii() and len(text) == self.columns else self._drawn_line(row)

    def _drawn_line(self, row: int) -> str:
        """A line of `display` of pyte, which by itself draws all of them."""
        buffer, lines = self.buffer, self.lines
        self.buffer, self.lines = {0: buffer[row]}, 1
        try:
            return str(super().display[0])
        finally:
            self.buffer, self.lines = buffer, lines


def resize(fd: int, columns: int, rows: int) -> None:
    """Tell a terminal its size. Who runs in it gets a signal."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


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
