"""Reads lines from a person or a pipe while work goes on. Waiting for a line can be cancelled.

It uses no thread, because a reading thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.cli.terminal import write
from holdfast.config.files import TEXT_MAX_BYTES
from holdfast.errors import UsageError
from holdfast.views.lines import cells, neutral

_CHUNK_BYTES = 65_536
_ESCAPE = "\x1b"
INTERRUPT = "\x03"
_END = "\x04"
_RUBOUT = "\x7f\b"
_KILL = "\x15"
_NO_TEXT = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O.)")
"""Keys that are not text, such as arrows."""
_LOCAL_MODES = 3
"""The index of the local modes in the result of `termios.tcgetattr`."""


class Keyboard:
    """Reads standard input line by line."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._buffer = b""
        self._is_at_end = False
        self.is_terminal = os.isatty(self._fd)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        """Decodes single keys. A key may arrive in two pieces."""
        self._ahead = ""
        """The text that was typed while nobody waited for a line."""
        self.was_left = False
        """Ctrl-D was pressed while nobody waited for a line."""
        self._on_escape: Callable[[], None] | None = None
        self._is_escaped = False
        """Esc was pressed before the turn began."""

    async def line(self) -> str | None:
        """Return the next line, or None at the end.

        Raises:
            UsageError: The line is too long.
        """
        self._unwatch()
        try:
            while b"\n" not in self._buffer and not self._is_at_end:
                if len(self._buffer) > TEXT_MAX_BYTES:
                    raise UsageError(f"A line of stdin is larger than {TEXT_MAX_BYTES:,} bytes.")
                await self._readable()
                chunk = self._read()
                self._buffer += chunk
                if not chunk:
                    # Ctrl-D ends one read from a terminal. Anything else is at its end.
                    self._is_at_end = not os.isatty(self._fd)
                    break
        finally:
            self._watch()
        if not self._buffer:
            return None
        taken, _, self._buffer = self._buffer.partition(b"\n")
        line = taken.decode("utf-8", "replace").rstrip("\r")
        return _NO_TEXT.sub("", line).replace(_ESCAPE, "") if self.is_terminal else line

    @property
    def way_out(self) -> str:
        """The key that leaves a question open."""
        return "Ctrl-D" if self._is_simple else "Esc"

    @property
    def _is_simple(self) -> bool:
        """Whether only whole lines can be read."""
        return not self.is_terminal or os.environ.get("TERM") == "dumb"

    async def answer(self, prompt: str) -> str | None:
        """Return the answer to a question; None at the end or after Esc. Keys typed before do not count."""
        try:
            if self._is_simple:
                self.forget()
                # Before the question, because it may be suspended at once.
                with self._continued(lambda: write(prompt)):
                    write(prompt)
                    line = await self.line()
            else:
                line = await self._line_or_escape(prompt)
        except asyncio.CancelledError:
            write("\n")  # what follows has a line of its own
            raise
        if line is None or not self._is_simple:
            write("\n")
        return line

    async def _line_or_escape(self, prompt: str) -> str | None:
        """Return the next line; None at the end or after Esc. Keys come one by one, so they are shown here."""
        self._unwatch()
        _key_by_key(
            self._fd
        )  # before the prompt: a Ctrl-D that comes while lines are read is lost by the change
        self.forget()
        decoder, line = codecs.getincrementaldecoder("utf-8")("replace"), ""

        def draw() -> None:
            _key_by_key(self._fd)
            write(prompt + neutral(line))

        try:
            with self._continued(draw):
                write(prompt)
                while True:
                    await self._readable()
                    pressed = self._read()
                    keys = _NO_TEXT.sub("", decoder.decode(pressed))
                    if not pressed or _ESCAPE in keys:
                        return None
                    for key in keys:
                        if key in "\r\n":
                            return line
                        if key == _END and not line:
                            return None
                        before, line = line, _edited(line, key)
                        kept = min(len(before), len(line))
                        write("\b \b" * cells(before[kept:]) + neutral(line[kept:]))
        finally:
            restore_terminal()
            self._watch()

    @contextmanager
    def _continued(self, draw: Callable[[], None]) -> Iterator[None]:
        """Call `draw` when a shell brings this process back: it has written over the question, and may have changed
        the modes of the terminal.
        """

        def on_continue() -> None:
            with suppress(OSError):  # the terminal may be gone
                if os.tcgetpgrp(self._fd) == os.getpgrp():
                    draw()

        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, on_continue)
        try:
            yield
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)

    def ahead(self) -> tuple[str, bool]:
        """Return the first line that was typed ahead, and whether it is complete."""
        self._is_escaped = False  # the turn never began
        line, end, self._ahead = self._ahead.partition("\n")
        return line, bool(end)

    def forget(self) -> None:
        """Drop everything that was typed but not read, so that it does not answer the next question."""
        if self.is_terminal:
            self._buffer = b""
            with suppress(termios.error):  # the terminal may be gone
                termios.tcflush(self._fd, termios.TCIFLUSH)

    @contextmanager
    def escaping(self, on_escape: Callable[[], None]) -> Iterator[None]:
        """Call `on_escape` when Esc is pressed on a terminal. Other keys are kept for the next line."""
        self._on_escape = on_escape if self.is_terminal else None
        self._watch()
        if self._is_escaped:
            on_escape()
        self._is_escaped = False
        try:
            yield
        finally:
            self._unwatch()
            self._on_escape = None

    def _watch(self) -> None:
        """Watch for Esc while no line is read."""
        if self._on_escape is not None and os.isatty(self._fd):
            _key_by_key(self._fd)
            asyncio.get_running_loop().add_reader(self._fd, self._on_key)

    def _unwatch(self) -> None:
        if self._on_escape is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            restore_terminal()

    def _on_key(self) -> None:
        pressed = self._read()
        self.press(self._decoder.decode(pressed))
        if not pressed:
            self._unwatch()

    def press(self, keys: str) -> None:
        """Handle keys that were typed ahead: Esc and Ctrl-C stop the turn, others are kept."""
        keys = _NO_TEXT.sub("", keys)
        self.was_left = self.was_left or _END in keys
        if _ESCAPE in keys or INTERRUPT in keys:
            self._is_escaped = self._on_escape is None
            if self._on_escape is not None:
                self._on_escape()
        else:
            self._ahead = _edited(self._ahead, keys)

    def _read(self) -> bytes:
        """Read what is there; empty at the end, also if the terminal is gone."""
        try:
            return os.read(self._fd, _CHUNK_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        is_ready = asyncio.Event()
        try:
            loop.add_reader(self._fd, is_ready.set)
        except PermissionError:  # a regular file is always ready and cannot be watched
            return
        try:
            await is_ready.wait()
        finally:
            loop.remove_reader(self._fd)


def _edited(text: str, keys: str) -> str:
    """Return the text after more keys. Backspace, Ctrl-U and Enter work as on a terminal."""
    for key in keys:
        if key in _RUBOUT:
            text = text if text.endswith("\n") else text[:-1]
        elif key == _KILL:
            text = text[: text.rfind("\n") + 1]
        elif key in "\r\n":
            text += "\n"
        elif key.isprintable() or key == "\t":
            text += key
    return text


def _key_by_key(fd: int) -> None:
    """Let each key arrive by itself, and unseen. Nothing happens if the terminal is gone: a read says so."""
    with suppress(termios.error):
        tty.setcbreak(fd, termios.TCSANOW)


def restore_terminal() -> None:
    """Turn line editing and echo of the terminal on again."""
    if sys.stdin.isatty():
        with suppress(termios.error):  # it may be gone by now
            modes = termios.tcgetattr(sys.stdin.fileno())
            modes[_LOCAL_MODES] |= termios.ICANON | termios.ECHO
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
