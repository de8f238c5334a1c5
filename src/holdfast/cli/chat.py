"""`holdfast chat`: one session, message by message.

Streaming, approvals and stopping work as in `run`. With prompt_toolkit (the extra `chat`) the input line can be
edited. In a pipe, every line of stdin is a message.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from holdfast.app import App
from holdfast.cli.attachments import from_stdin, given, message_with
from holdfast.cli.flags import RunFlags, taking_flags
from holdfast.cli.keyboard import INTERRUPT, Keyboard
from holdfast.cli.options import HomeFlag, home_of
from holdfast.cli.outcome import INTERRUPTED, WAITING
from holdfast.cli.run import (
    KeyFlag,
    Output,
    ResultFlag,
    StreamFlag,
    at_work,
    name_of,
    output_of,
    past_of,
    send,
    show,
    view_of,
    what_came_of,
)
from holdfast.cli.signals import heeded, interruptible, leave_terminal
from holdfast.cli.sitting import Sitting
from holdfast.cli.terminal import has_person, legible, tell, write
from holdfast.config.paths import Home
from holdfast.core.state import State, phase
from holdfast.protocol.settings import Settings
from holdfast.views.lines import COMMAND, Span, neutral

_PROMPT = "> "
_EDITOR = "prompt_toolkit"

ReadLine = Callable[[], Coroutine[Any, Any, str | None]]
"""Returns the next message, or None at the end."""
LineOf = Callable[[str], Coroutine[Any, Any, str | None]]
"""The same, given what was typed already."""


@taking_flags
def chat(
    flags: RunFlags,
    session: KeyFlag = None,
    is_json: ResultFlag = False,
    is_stream: StreamFlag = False,
    home: HomeFlag = None,
) -> int:
    """Chat with an agent. Esc or Ctrl-C stops the turn and keeps it, Ctrl-D leaves.

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
    state = past.now if past is not None else None
    keyboard, code = Keyboard(), 0
    read = _reader(keyboard)
    async with at_work(home, flags, past) as (app, settings):
        attached = given(app, flags.attach or (), b"")
        if has_person():
            who = state.session if state is not None else "a new session"
            tell([Span(f"{who} · {settings.model.facts.name} · {settings.tools.workspace}", "dim")])
            tell([Span("Esc or Ctrl-C stops a turn, Ctrl-D leaves.", "dim")])
        while (message := await _heard(read)) is not None:
            if not message.strip():
                continue
            words = await message_with(app, message, settings, attached)
            state, attached = await send(app, state, name, words), []
            state, code, stopped_by = await _turn(app, state, settings, output, keyboard)
            if stopped_by in (signal.SIGTERM, signal.SIGHUP):
                return INTERRUPTED
    if not has_person():
        return code
    if state is not None:
        tell(["Continue with: ", Span(f"holdfast chat -s {state.key or state.session}", COMMAND)])
    return WAITING if state is not None and phase(state) == "waiting" else 0


class _Turn(NamedTuple):
    state: State
    code: int
    signal: int
    """The signal that stopped it, or 0."""


async def _turn(app: App, state: State, settings: Settings, output: Output, keyboard: Keyboard) -> _Turn:
    """Work on a message until the session rests."""
    asking = keyboard if settings.posture.approve_by == "prompt" and has_person() else None
    view = view_of(app, state, output, asking)
    sitting = Sitting(app, state, view, asking)
    with keyboard.escaping(sitting.stop_once) if has_person() else nullcontext():
        rest = await sitting.work()
    code = show(await what_came_of(app, rest), rest.state, output, view)
    return _Turn(rest.state, code, rest.signal)


async def _heard(read: ReadLine) -> str | None:
    """Return the next message. Ctrl-C clears the line; SIGTERM and SIGHUP end the command.

    Raises:
        KeyboardInterrupt: A signal ended the command.
    """
    loop = asyncio.get_running_loop()
    numbers = [number for number in heeded() if number != signal.SIGINT]
    reading = asyncio.create_task(read())
    came: list[int] = []

    def on_signal(number: int) -> None:
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


def _reader(keyboard: Keyboard) -> ReadLine:
    """Return how to read messages: with a line editor if it is installed."""
    if not has_person():
        return keyboard.line
    line_of = _edited_line(keyboard) if find_spec(_EDITOR) is not None else _plain_line(keyboard)

    async def read() -> str | None:
        typed, is_whole = keyboard.ahead()
        if is_whole:
            write(f"{_PROMPT}{neutral(typed)}\n")
            return typed
        return await line_of(typed)

    return read


def _plain_line(keyboard: Keyboard) -> LineOf:
    async def plain_line(typed: str) -> str | None:
        write(_PROMPT + neutral(typed))
        reading = asyncio.create_task(keyboard.line())

        def on_interrupt() -> None:
            if not reading.cancel():
                keyboard.press(INTERRUPT)  # the line is complete: stop what follows

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
        return typed + line if line is not None else typed or None

    return plain_line


def _edited_line(keyboard: Keyboard) -> LineOf:
    editor = import_module(_EDITOR).PromptSession(enable_suspend=True)
    early_keys = import_module(f"{_EDITOR}.input.typeahead").get_typeahead

    async def edited_line(typed: str) -> str | None:
        try:
            line: str = await editor.prompt_async(_PROMPT, default=typed)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None
        keys = editor.app.input
        keyboard.press("".join(key.data for key in [*early_keys(keys), *keys.flush_keys()]))
        return legible(line)

    return edited_line
