"""`holdfast chat`: one session, message by message.

Streaming, approvals and stopping work as in `run`. At a terminal, `editor` has the prompt and `slash` the commands.
Without a terminal, and on a dumb one, every line of stdin is a message.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.cli.attachments import from_stdin, given
from holdfast.cli.flags import RunFlags, taking_flags
from holdfast.cli.line_reader import LineReader
from holdfast.cli.options import HomeFlag, home_of
from holdfast.cli.outcome import INTERRUPTED, WAITING
from holdfast.cli.pastes import Message
from holdfast.cli.recall import Recall
from holdfast.cli.run import KeyFlag, Output, ResultFlag, StreamFlag, at_work, name_of, output_of, past_of
from holdfast.cli.signals import heeded, interruptible, leave_terminal
from holdfast.cli.status import status_line
from holdfast.cli.talk import Talk, going_on
from holdfast.cli.terminal import has_person, tell
from holdfast.config.paths import Home
from holdfast.core.summary import status
from holdfast.views.lines import COMMAND, Span

if TYPE_CHECKING:
    from holdfast.cli.editor import Editor

_EDITOR, _SLASH = "holdfast.cli.editor", "holdfast.cli.slash"
"""Loaded only at a terminal, and the commands only with the first message, because both take long to load."""
_LAST = (signal.SIGTERM, signal.SIGHUP)
"""The signals after which nobody reads what comes next."""


@taking_flags
def chat(
    flags: RunFlags,
    session: KeyFlag = None,
    is_json: ResultFlag = False,
    is_stream: StreamFlag = False,
    home: HomeFlag = None,
) -> int:
    """Chat with an agent. /help lists the commands, Esc or Ctrl-C stops the turn and keeps it, Ctrl-D leaves.

    \b
    holdfast chat
    holdfast chat -s cli:docs
    holdfast chat --attach screen.png      the picture goes with the first message
    """
    output = output_of(is_json=is_json, is_stream=is_stream)
    from_stdin(flags.attach or (), is_taken=True)
    return asyncio.run(_chat(home_of(home), name_of(session), flags, output))


async def _chat(home: Home, name: str, flags: RunFlags, output: Output) -> int:
    """Chat until the input ends. Return the exit code of the last run, or 0 if a person left nothing open."""
    past = await past_of(home, name) if name else None
    async with at_work(home, flags, past) as (app, settings):
        reader = LineReader()
        talk = Talk(app, home, settings, output, reader)
        talk.state, talk.key = past.now if past is not None else None, name
        talk.detail = flags.detail
        talk.attached = given(app, flags.attach or (), b"")
        if has_person():
            who = talk.state.session if talk.state is not None else "a new session"
            tell([Span(f"{who} · {settings.model.facts.name} · {settings.tools.workspace}", "dim")])
        if not has_person() or os.environ.get("TERM") == "dumb":
            await _in_lines(talk, reader)
        else:
            await _with_editor(talk)
    if talk.signal in _LAST:
        return INTERRUPTED
    if not has_person():
        return talk.code
    if talk.state is not None:
        tell(["Continue with: ", Span(f"holdfast chat -s {talk.state.key or talk.state.session}", COMMAND)])
    return WAITING if talk.state is not None and status(talk.state) == "waiting" else 0


async def _in_lines(talk: Talk, reader: LineReader) -> None:
    """Take each line for a message."""
    if has_person():
        tell([Span("Esc or Ctrl-C stops a turn, Ctrl-D leaves.", "dim")])
    while talk.signal not in _LAST and (message := await _heard(reader.message)) is not None:
        if message.text.strip():
            async with going_on(talk) if has_person() else nullcontext():  # a pipe gets an exit code
                await talk.say(message.text)


async def _with_editor(talk: Talk) -> None:
    """Read messages and commands with the line editor."""
    tell([Span("/help lists the commands, Esc or Ctrl-C stops a turn, Ctrl-D leaves.", "dim")])
    editor: Editor = import_module(_EDITOR).Editor(
        Recall(talk.home.folder, talk.app.redact),
        lambda doing, state, width: status_line(doing, state, talk.settings, width),
        lambda typed: import_module(_SLASH).completed(typed),
        talk.settings.tools.workspace,
        str(talk.home.folder),
    )
    talk.place = editor
    talk.show_rest()
    async with editor.running():
        while not (talk.is_over or talk.signal in _LAST):
            message = await _heard(editor.message, editor.interrupt)
            if message is None:
                return
            await import_module(_SLASH).obey(talk, message)


async def _heard(
    read: Callable[[], Coroutine[Any, Any, Message | None]], interrupt: Callable[[], None] | None = None
) -> Message | None:
    """Return the next message. SIGTERM and SIGHUP end the command.

    Args:
        interrupt: What SIGINT does; None if the reader handles it itself.

    Raises:
        KeyboardInterrupt: A signal ended the command.
    """
    loop = asyncio.get_running_loop()
    numbers = [number for number in heeded() if interrupt is not None or number != signal.SIGINT]
    reading = asyncio.create_task(read())
    came: list[int] = []

    def on_signal(number: int) -> None:
        if number == signal.SIGINT and interrupt is not None:
            interrupt()
            return
        came.append(number)
        if number == signal.SIGHUP:
            leave_terminal()
        reading.cancel()

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await asyncio.wait([reading])
    finally:
        reading.cancel()
        for number in numbers:
            loop.remove_signal_handler(number)
        interruptible()
    if came:
        raise KeyboardInterrupt
    return reading.result()
