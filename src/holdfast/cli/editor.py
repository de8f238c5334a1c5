"""The line editor of `chat`: one prompt that stays at the bottom while everything else is printed above it.

It has one area, from top to bottom: the line that is still being written, messages that wait, the input, the status.
Whole lines are printed above the area once and are never drawn again.

Only `chat` at a terminal loads this module, because prompt_toolkit takes long to load.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_input
from prompt_toolkit.output.vt100 import Vt100_Output

from holdfast.cli.above import Above
from holdfast.cli.editor_area import PROMPT, Area, area
from holdfast.cli.editor_keys import keys_of
from holdfast.cli.pastes import Message, Pastes
from holdfast.cli.pastes import typed as typed_message
from holdfast.cli.recall import Recall
from holdfast.cli.terminal import legible, styled, tell
from holdfast.cli.written import History, edited_elsewhere
from holdfast.config.files import TEXT_MAX_BYTES
from holdfast.core.state import State
from holdfast.views.lines import Span, neutral

_USUAL = Size(rows=24, columns=80)
_FLUSH_S = 0.03
"""How long printed text is collected, so that the area is drawn once for many pieces."""
_ESCAPE_S = 0.05
"""How long a terminal may take to send the rest of a key that begins with Esc, and twice that for Alt with a key."""
_UNFINISHED_CHARS = 1_000
"""A longer line is broken here: nothing of ours writes one, but a command of the person may."""
_AHEAD_BYTES = 65_536
_LEAVE_HINT = "Press Ctrl-C again to leave."
_FAREWELL = "\x1b[?2004l\x1b[?25h\x1b[0m"
"""What a terminal needs that is left at once: no bracketed paste, a cursor, no style."""

Stop = Callable[[bool], None]
"""Stops a turn. True if the person pressed Ctrl-C, which may be pressed twice."""
About = Callable[[str, State, int], str]
"""Returns the status line: what is running, the state of the session, the width."""
Complete = Callable[[str], list[str]]
"""Returns the texts that may replace what is typed."""


class Editor:
    """Reads messages and answers while work goes on. Use it within `running`."""

    def __init__(self, recall: Recall, about: About, complete: Complete, workspace: str, home: str) -> None:
        self.pastes = Pastes()
        self._about, self._complete = about, complete
        self._workspace, self._home = workspace, home
        self._doing, self._state = "", State()
        self._printed: Sequence[str] = ()
        self._said: Sequence[Sequence[Span]] = ()
        self._queue: deque[str] = deque()
        """The lines that were sent and not taken yet."""
        self._came = asyncio.Event()
        self._is_over = False
        self._is_working = False
        """A message was taken, and its turn is not over."""
        self._was_stopped = False
        """The turn was stopped before it began."""
        self._stop: Stop | None = None
        self._hint, self._is_leaving = "", False
        self._question = ""
        self._answered: asyncio.Future[str | None] | None = None
        self._pending: list[str] = []
        self._unfinished = ""
        """The printed text after the last line break."""
        self._is_due = self._is_left = False
        self._terminal: TextIO = sys.stderr
        self._modes = termios.tcgetattr(sys.stdin.fileno())
        self._line = Buffer(multiline=True, history=History(recall, self.pastes), name="line")
        self._answer = Buffer(name="answer")
        self._output = _Output(
            self._terminal, self._size, os.environ.get("TERM"), enable_bell=False, enable_cpr=False
        )
        self._area: Area = area(self, self._line, self._answer)
        self._app: Application[None] = Application(
            layout=self._area.layout,
            style=self._area.style,
            key_bindings=keys_of(self),
            input=create_input(sys.stdin),
            output=self._output,
            erase_when_done=True,
            terminal_size_polling_interval=None,
        )
        self._app.ttimeoutlen, self._app.timeoutlen = _ESCAPE_S, 2 * _ESCAPE_S
        self._app.key_processor.before_key_press += lambda _: self._on_key()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Show the prompt until the end of the block. Everything that is written meanwhile appears above it."""
        self._take_typed_ahead()
        work = asyncio.create_task(self._app.run_async(handle_sigint=False, set_exception_handler=False))
        work.add_done_callback(lambda _: self._end())
        above = Above(self._terminal, self.print_above)
        self._heed_suspending()
        try:
            with redirect_stderr(above), self._stdout_above():
                yield
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTSTP)
            self._flush()
            if self._app.is_running:
                self._app.exit()
            with suppress(EOFError):  # the terminal is gone
                await work
            self._write_at_once("")

    @contextmanager
    def _stdout_above(self) -> Iterator[None]:
        """Print stdout above the prompt too, unless it goes elsewhere."""
        if sys.stdout.isatty():
            with redirect_stdout(Above(sys.stdout, self.print_above)):
                yield
        else:
            yield

    # --- what is read ---------------------------------------------------------------------------

    async def message(self) -> Message | None:
        """Return the next message, or None at the end."""
        self._is_working = self._was_stopped = False
        while not self._queue:
            if self._is_over:
                return None
            self._came.clear()
            await self._came.wait()
        self._is_working = True
        message = self.pastes.message(self._queue.popleft())
        for number, line in enumerate(neutral(message.shown).split("\n")):
            tell([Span("  " if number else PROMPT, "bold"), Span(line)])
        return message

    @contextmanager
    def turn(self, stop: Stop) -> Iterator[None]:
        """Let Esc and Ctrl-C call `stop` until the end of the block. What was queued comes back into the line."""
        self._stop = stop
        if self._was_stopped:
            self.interrupt(is_hurried=False)
        try:
            yield
        finally:
            self._stop, self._was_stopped = None, False
            self.show("", self._state)

    @property
    def way_out(self) -> str:
        """The key that leaves a question open."""
        return "Esc"

    async def answer(self, prompt: str) -> str | None:
        """Return the answer to a question; None if the person leaves it open. Keys typed before do not count.

        The half-typed message comes back afterwards.
        """
        if not self._has_area:  # the terminal is gone
            return None
        self._read_typed_keys()
        self._question, self._answered = prompt, asyncio.get_running_loop().create_future()
        self._answer.reset()
        self._app.layout.focus(self._answer)
        self._app.invalidate()
        try:
            text = await self._answered
        finally:
            self._question, self._answered = "", None
            self._app.layout.focus(self._line)
            self._app.invalidate()
        if text is not None:
            self.print_above(f"{prompt}{neutral(text)}\n")
        return text

    @property
    def bottom(self) -> Editor:
        """The status line."""
        return self

    def erase(self) -> None:
        """Do nothing: the status line makes room by itself."""

    def forget(self) -> None:
        """Do nothing: an answer has a line of its own, which is gone."""

    def _take_typed_ahead(self) -> None:
        """Take the lines that were typed before the prompt was there. One line is sent. More lines, or a command, may
        be a paste.
        """
        fd, typed = sys.stdin.fileno(), b""
        with suppress(OSError):  # the terminal is gone
            while select.select([fd], [], [], 0)[0] and (line := os.read(fd, _AHEAD_BYTES)):
                typed += line
        text = typed.decode("utf-8", "replace").rstrip("\n")
        self._line.insert_text("".join(each for each in text if each.isprintable() or each in "\t\n"))
        if "\n" not in text and not typed_message(text).is_command:
            self.enter()

    def _read_typed_keys(self) -> None:
        """Handle the keys that were pressed already."""
        context = self._app.context
        while context is not None and (keys := self._app.input.read_keys()):
            self._app.key_processor.feed_multiple(keys)
            context.copy().run(self._app.key_processor.process_keys)

    # --- what the area shows --------------------------------------------------------------------

    def show(
        self, doing: str, state: State, printed: Sequence[str] = (), said: Sequence[Sequence[Span]] = ()
    ) -> None:
        """Show in the status line what is running (empty: nothing) and what was used. Lines that a command printed,
        and words of a block that is not finished, are above the input.
        """
        if (doing, state, printed, said) != (self._doing, self._state, self._printed, self._said):
            self._doing, self._state, self._printed, self._said = doing, state, printed, said
            if not self._is_due:  # otherwise it is drawn with what is printed
                self._app.invalidate()

    @property
    def printed(self) -> Sequence[str]:
        """The last lines that the running command printed."""
        return self._printed

    @property
    def said(self) -> str:
        """The words of the block that is not finished."""
        return "\n".join("".join(styled(*span, self._terminal) for span in line) for line in self._said)

    @property
    def unfinished(self) -> str:
        """The line that is still being written."""
        return self._unfinished

    @property
    def question(self) -> str:
        """The open question; empty without one."""
        return self._question

    @property
    def waiting(self) -> list[str]:
        """The messages that were sent and not taken yet, each on one line."""
        return [self.pastes.message(line).shown for line in self._queue] if self._is_working else []

    @property
    def hint(self) -> str:
        """What the person should know now."""
        return self._hint

    @property
    def status(self) -> str:
        """The status line."""
        return self._about(self._doing, self._state, self.width)

    def _size(self) -> Size:
        try:
            columns, rows = os.get_terminal_size(self._terminal.fileno())
        except OSError:  # the terminal is gone
            columns, rows = 0, 0
        return Size(rows=rows or _USUAL.rows, columns=columns or _USUAL.columns)

    @property
    def width(self) -> int:
        """The width of the terminal in cells."""
        return self._size().columns

    # --- what is printed ------------------------------------------------------------------------

    def print_above(self, text: str) -> None:
        """Print safe text above the prompt. Text after the last line break stays in the area until its line ends."""
        self._pending.append(text)
        if not self._has_area:
            self._write_at_once("")
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    @property
    def _has_area(self) -> bool:
        return self._app.is_running and not self._is_left

    def _flush(self) -> None:
        if not self._has_area:
            return
        if self._app._running_in_terminal:  # another program has the terminal
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)
            return
        self._is_due = False
        text = self._unfinished + "".join(self._pending)
        self._pending.clear()
        if len(text) - text.rfind("\n") > _UNFINISHED_CHARS:
            text += "\n"  # the area has no room for it
        lines, line_break, self._unfinished = text.rpartition("\n")
        if not line_break:
            self._app.invalidate()
            return
        with self._output.at_once():
            self._app.renderer.erase()
            self._output.write_raw(lines.replace("\n", "\r\n") + "\r\n")
            self._app._redraw()

    def _write_at_once(self, text: str) -> None:
        """Write what was printed, without an area."""
        text = self._unfinished + "".join(self._pending) + text
        self._pending.clear()
        self._unfinished = ""
        with suppress(OSError):  # nobody reads it
            self._terminal.write(text)
            self._terminal.flush()

    def leave_at_once(self) -> None:
        """Give the terminal back as it was, for a process that ends now. What is printed next is written at once."""
        self._flush()
        self._app.renderer.erase()
        self._is_left = True
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes)
        self._write_at_once(_FAREWELL)

    # --- what keys do ---------------------------------------------------------------------------

    def enter(self) -> None:
        """Send the line, or give the answer. A line that ends with a backslash goes on in the next line."""
        if self._question:
            self._give(self._answer.text)
            return
        text = legible(self._line.text)
        if text.endswith("\\") and self._line.document.is_cursor_at_the_end:
            self._line.delete_before_cursor()
            self._line.insert_text("\n")
            return
        if not text.strip():
            self._line.reset()
            return
        if len(self.pastes.message(text).text.encode()) > TEXT_MAX_BYTES:
            self._hint = (
                f"A message may have {TEXT_MAX_BYTES:,} bytes. Put the text into a file of the workspace."
            )
            return
        self._line.history.append_string(text)
        self._line.reset()
        self._queue.append(text)
        self._came.set()

    def paste(self, text: str) -> None:
        """Insert a pasted text, folded if it is long."""
        if self._question:
            self._answer.insert_text(text.replace("\n", " "))
        else:
            self._line.insert_text(self.pastes.line(text))

    def escape(self) -> None:
        """Leave the question open, or stop the turn."""
        if self._question:
            self._give(None)
        elif self._is_working or self._queue:
            self.interrupt(is_hurried=False)

    def interrupt(self, *, is_hurried: bool = True) -> None:
        """Stop the turn; without one, clear the line, and leave if it is empty and this is the second time."""
        if self._is_working or self._queue:
            self._take_back()
            self._was_stopped = self._is_working
            if self._stop is not None:
                self._stop(is_hurried)
        elif self._line.text:
            self._line.reset()
        elif self._is_leaving:
            self._end()
        else:
            self._hint = _LEAVE_HINT
            self._app.invalidate()

    def leave(self) -> None:
        """Leave when the turn is over, or leave the question open."""
        if self._question:
            self._give(None)
        else:
            self._end()

    def complete(self) -> None:
        """Complete what is typed, as far as it is clear, and show the choices."""
        typed = self._line.document.text_before_cursor
        found = self._complete(typed)
        if not found:
            return
        common = _common(found)
        if len(common) > len(typed):
            self._line.insert_text(common[len(typed) :])
        if len(found) > 1:
            start = typed.rfind(" ") + 1
            self._hint = "  ".join(each[start:].strip() for each in found)

    def edit_elsewhere(self) -> None:
        """Edit the line in the editor that VISUAL or EDITOR names."""
        message = self.pastes.message(self._line.text)

        def edit() -> None:
            text = edited_elsewhere(message.text, self._workspace, self._home)
            if text is None:
                self._hint = "The editor failed. Set VISUAL or EDITOR to the one you want."
            elif text != message.text:
                self._line.text = self.pastes.fold(text) if message.has_paste else text
                self._line.cursor_position = len(self._line.text)

        run_in_terminal(edit, in_executor=True)

    def suspend(self) -> None:
        """Suspend this process until its shell continues it."""

        def suspend() -> None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTSTP)
            os.kill(0, signal.SIGTSTP)
            self._heed_suspending()

        if self._app.context is not None:
            self._app.context.copy().run(run_in_terminal, suspend)

    def _heed_suspending(self) -> None:
        """Give the terminal back before a signal suspends this process, as Ctrl-Z does."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, self.suspend)

    def _give(self, text: str | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(text)

    def _take_back(self) -> None:
        """Put the messages that wait back into the line, before what is typed."""
        lines = [*self._queue, *([self._line.text] if self._line.text else [])]
        self._queue.clear()
        if lines:
            self._line.text = "\n".join(lines)
            self._line.cursor_position = len(self._line.text)

    def _on_key(self) -> None:
        """Note whether the key before was the first Ctrl-C of two."""
        self._is_leaving, self._hint = self._hint == _LEAVE_HINT, ""

    def _end(self) -> None:
        self._is_over = True
        self._came.set()
        self._give(None)


class _Output(Vt100_Output):
    """Writes to the terminal."""

    _is_collecting = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Write everything of the block at its end, so that the area does not flicker."""
        self._is_collecting = True
        try:
            yield
        finally:
            self._is_collecting = False
            self.flush()

    def flush(self) -> None:
        """Write what was collected, unless more follows."""
        if not self._is_collecting:
            with suppress(OSError):  # the terminal is gone
                super().flush()


def _common(texts: list[str]) -> str:
    """Return what all texts begin with."""
    first, last = min(texts), max(texts)
    same = next((at for at, character in enumerate(first) if character != last[at]), len(first))
    return first[:same]
