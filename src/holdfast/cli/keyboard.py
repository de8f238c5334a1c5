"""Reading from a person, or from a pipe, while work goes on: lines that can be waited for and given up.

Never a thread: a thread that reads cannot be stopped. What is asked and what an answer means is not known here.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import re
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.config.files import TEXT_MAX_BYTES
from holdfast.errors import UsageError

_CHUNK_BYTES = 65_536
_ESCAPE = "\x1b"
INTERRUPT = "\x03"
_RUBOUT = "\x7f\b"
_KILL = "\x15"
_NO_TEXT = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O.)")
"""Keys that are no text, as a terminal sends them: arrows and the like."""
_LOCAL_MODES = 3
"""Where they stand among what `termios.tcgetattr` answers."""


class Keyboard:
    """Standard input, line by line."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._buffer = b""
        self._is_at_end = False
        self.is_terminal = os.isatty(self._fd)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        """Of single keys: one of them may come in two pieces."""
        self._ahead = ""
        """What was typed while no line was asked for."""
        self._on_escape: Callable[[], None] | None = None
        self._is_escaped = False
        """Somebody wanted to stop what had not begun yet."""

    async def line(self) -> str | None:
        """The next line without its end; None when there is none any more.

        Raises:
            UsageError: it is longer than any message.
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
                    # Ctrl-D ends one reading of a terminal, and all readings of anything else.
                    self._is_at_end = not os.isatty(self._fd)
                    break
        finally:
            self._watch()
        if not self._buffer:
            return None
        taken, _, self._buffer = self._buffer.partition(b"\n")
        line = taken.decode("utf-8", "replace").rstrip("\r")
        return _NO_TEXT.sub("", line).replace(_ESCAPE, "") if self.is_terminal else line

    def ahead(self) -> tuple[str, bool]:
        """What was typed while no line was asked for, up to the end of a line; and whether that line is whole."""
        self._is_escaped = False  # what was to be stopped never began
        line, end, self._ahead = self._ahead.partition("\n")
        return line, bool(end)

    def forget(self) -> None:
        """Drop what nobody has read yet, so that it does not answer what is asked next."""
        if self.is_terminal:
            self._buffer = b""
            termios.tcflush(self._fd, termios.TCIFLUSH)

    @contextmanager
    def escaping(self, on_escape: Callable[[], None]) -> Iterator[None]:
        """Call back when the Esc key is pressed; what else is typed is kept for the next line. On a terminal
        only."""
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
        """Look for Esc while no line is read."""
        if self._on_escape is not None and os.isatty(self._fd):
            tty.setcbreak(self._fd, termios.TCSANOW)
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
        """Keys for which no line was asked: one of them stops what is going on, or they are kept."""
        keys = _NO_TEXT.sub("", keys)
        if _ESCAPE in keys or INTERRUPT in keys:
            self._is_escaped = self._on_escape is None
            if self._on_escape is not None:
                self._on_escape()
        else:
            self._ahead = _edited(self._ahead, keys)

    def _read(self) -> bytes:
        """What is there to read; empty at an end, also of a terminal that vanished."""
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
        except PermissionError:  # a regular file is always ready, and cannot be watched
            return
        try:
            await is_ready.wait()
        finally:
            loop.remove_reader(self._fd)


def _edited(text: str, keys: str) -> str:
    """What was typed, after more keys: those that a terminal would act on while it gathers a line are heeded."""
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


def restore_terminal() -> None:
    """Let the terminal gather and show lines again, whatever a keyboard made of it."""
    if sys.stdin.isatty():
        modes = termios.tcgetattr(sys.stdin.fileno())
        modes[_LOCAL_MODES] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
