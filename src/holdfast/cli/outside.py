"""Runs a command that the person typed after `!` in `chat`: as the user, in their shell, without any gate.

The person sees the output while it comes. It goes with the next message, so that the model knows it too.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import os
import signal
import time
from contextlib import suppress

from holdfast.cli.talk import Place
from holdfast.cli.terminal import tell, write
from holdfast.errors import UsageError
from holdfast.protocol.counts import counted
from holdfast.redact import Redactor, StreamRedactor
from holdfast.views.lines import Span, neutral, took

_KEPT_CHARS = 30_000
"""The most of the output that goes to the model: the begin and the end."""
_CHUNK_BYTES = 65_536
_DRAIN_S = 0.5
"""How long output is awaited after the end of the command: what it left in the background may keep the pipe."""


async def outside(command: str, folder: str, place: Place, redact: Redactor) -> str:
    """Run a command, and return the text about it for the model.

    Raises:
        UsageError: There is no command, or no shell.
    """
    if not command:
        raise UsageError("Type a command after the exclamation mark: !ls")
    begun_s = time.monotonic()
    try:
        process = await asyncio.create_subprocess_shell(
            command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, executable=os.environ.get("SHELL") or "/bin/sh",
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"The command cannot be started: {error.strerror}.") from None
    kept, stops = _Kept(redact), itertools.count()
    with place.turn(lambda _: _end(process.pid, signal.SIGKILL if next(stops) else signal.SIGINT)):
        assert process.stdout is not None
        reading = asyncio.create_task(_read(process.stdout, kept))
        try:
            ended = await process.wait()
            await asyncio.wait([reading], timeout=_DRAIN_S)
        finally:
            reading.cancel()
            if process.returncode is None:
                _end(process.pid, signal.SIGKILL)
    kept.end()
    code = ended if ended >= 0 else 128 - ended  # as shells count signals
    tell([Span(f"exit {code} · {took(int((time.monotonic() - begun_s) * 1000))}", "red" if code else "dim")])
    return f"I ran `{command}` in {folder}. It ended with exit code {code} and printed:\n{kept.text}"


def _end(group: int, number: signal.Signals) -> None:
    """Send a signal to all processes of the command."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


async def _read(stream: asyncio.StreamReader, kept: _Kept) -> None:
    """Show and keep the output until its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await stream.read(_CHUNK_BYTES):
        text = decoder.decode(chunk)
        write(neutral(text))
        kept.add(text)
    if kept.is_mid_line:
        write("\n")


class _Kept:
    """The begin and the end of an output, without its secrets: nobody could find one of which a part is left out."""

    def __init__(self, redact: Redactor) -> None:
        self._head, self._tail, self._left_out = "", "", 0
        self._stream = StreamRedactor(redact)
        self.is_mid_line = False
        """The last line has not ended."""

    def add(self, text: str) -> None:
        """Take in more output."""
        self.is_mid_line = not text.endswith("\n") if text else self.is_mid_line
        self._keep(self._stream.feed(text))

    def end(self) -> None:
        """Take in what may have been the beginning of a secret: there is no more output."""
        self._keep(self._stream.flush())

    def _keep(self, text: str) -> None:
        room = _KEPT_CHARS // 2 - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        self._tail = tail[-_KEPT_CHARS // 2 :]
        self._left_out += len(tail) - len(self._tail)

    @property
    def text(self) -> str:
        """The output, with a note about what is left out."""
        gap = f"\n[{counted(self._left_out, 'character')} left out]\n" if self._left_out else ""
        return f"{self._head}{gap}{self._tail}"
