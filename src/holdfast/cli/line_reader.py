"""Reads messages line by line: from a pipe, or from a terminal that can do no more than lines."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager

from holdfast.cli.keyboard import INTERRUPT, Keyboard, restore_terminal
from holdfast.cli.pastes import Message, typed
from holdfast.cli.signals import interruptible
from holdfast.cli.talk import Stop
from holdfast.cli.terminal import has_person, write
from holdfast.views.lines import neutral

_PROMPT = "> "


class LineReader:
    """Reads standard input line by line."""

    bottom = None

    def __init__(self) -> None:
        self._keyboard = Keyboard()

    async def message(self) -> Message | None:
        """Return the next line, or None at the end."""
        if not has_person():
            line = await self._keyboard.line()
        else:
            line, is_whole = self._keyboard.ahead()
            write(_PROMPT + neutral(line))
            if self._keyboard.was_left and not line:
                line = None
            elif is_whole:
                write("\n")
            else:
                line = await self._rest_of(line)
        return None if line is None else typed(line)

    @property
    def way_out(self) -> str:
        """The key that leaves a question open."""
        return self._keyboard.way_out

    async def answer(self, prompt: str) -> str | None:
        """Return the answer to a question; None at the end."""
        return await self._keyboard.answer(prompt)

    def forget(self) -> None:
        """Drop a half-typed answer."""
        self._keyboard.forget()

    def turn(self, stop: Stop) -> AbstractContextManager[None]:
        """Let Esc call `stop` until the end of the block. Ctrl-C is a signal here."""
        return self._keyboard.escaping(lambda: stop(False))

    def leave_at_once(self) -> None:
        """Give the terminal back as it was."""
        restore_terminal()

    async def _rest_of(self, begun: str) -> str | None:
        """Return the line that begins with what was typed already. Ctrl-C clears it."""
        reading = asyncio.create_task(self._keyboard.line())

        def on_interrupt() -> None:
            if not reading.cancel():
                self._keyboard.press(INTERRUPT)  # the line is complete: stop what follows

        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, on_interrupt)
        try:
            await asyncio.wait([reading])
        finally:
            reading.cancel()
            interruptible()
        if reading.cancelled():
            write("\n")
            return ""
        line = reading.result()
        return begun + line if line is not None else begun or None
