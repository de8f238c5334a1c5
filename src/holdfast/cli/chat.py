"""`holdfast chat`: work together, message by message, each of them a sitting at the same session.

Streaming, approvals and stopping are those of `run`. With prompt_toolkit (the extra `chat`) the input line can be
edited; in a pipe every line of stdin is a message.
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
from holdfast.cli.flags import RunFlags, taking_flags
from holdfast.cli.keyboard import Keyboard
from holdfast.cli.live import tell, write
from holdfast.cli.options import HomeFlag, home_of
from holdfast.cli.outcome import INTERRUPTED
from holdfast.cli.run import (
    KeyFlag,
    Output,
    ResultFlag,
    StreamFlag,
    at_work,
    has_person,
    output_of,
    past_of,
    show,
    view_of,
    what_came_of,
)
from holdfast.cli.signals import heeded, interruptible, leave_terminal
from holdfast.cli.sitting import Sitting, sender
from holdfast.cli.terminal import Span
from holdfast.config.paths import Home
from holdfast.core.state import State
from holdfast.protocol.commands import Send
from holdfast.protocol.limits import Settings

_PROMPT = "> "
_EDITOR = "prompt_toolkit"

ReadLine = Callable[[], Coroutine[Any, Any, str | None]]
"""The next message; None when there is none any more."""


@taking_flags
def chat(
    flags: RunFlags,
    session: KeyFlag = "",
    is_json: ResultFlag = False,
    is_stream: StreamFlag = False,
    home: HomeFlag = None,
) -> int:
    """Work together, message by message. Esc or Ctrl-C stops the turn and keeps it, Ctrl-D leaves.

    \b
    holdfast chat
    holdfast chat -s cli:docs
    """
    output = output_of(is_json=is_json, is_stream=is_stream)
    return asyncio.run(_chat(home_of(home), session, flags, output))


async def _chat(home: Home, name: str, flags: RunFlags, output: Output) -> int:
    """Message by message; the exit code is that of the last run, and 0 when the person just left."""
    past = await past_of(home, name) if name else None
    read, code = _reader(), 0
    async with at_work(home, flags, past) as (app, settings):
        state = past or State(session=await app.controller.open(name), key=name)
        if has_person():
            tell([Span(f"{state.session} · {settings.facts.name} · {settings.workspace}", "dim")])
            tell([Span("Esc or Ctrl-C stops a turn, Ctrl-D leaves.", "dim")])
        while (message := await _heard(read)) is not None:
            if not message.strip():
                continue
            state, code, stopped_by = await _turn(app, state, message, settings, output)
            if stopped_by in (signal.SIGTERM, signal.SIGHUP):
                return INTERRUPTED
    if has_person():
        tell([Span(f"Go on with: holdfast chat -s {state.key or state.session}", "dim")])
        return 0
    return code


class _Turn(NamedTuple):
    state: State
    code: int
    signal: int
    """The signal that stopped it; 0: none did."""


async def _turn(app: App, state: State, message: str, settings: Settings, output: Output) -> _Turn:
    """One message, and the work until the session rests."""
    await app.controller.submit(state.session, sender(), Send(message, settings))
    keyboard = Keyboard() if has_person() else None
    asking = keyboard if settings.approve_by == "prompt" else None
    view = view_of(app, state, output, asking)
    sitting = Sitting(app, state, view, asking)
    with keyboard.escaping(sitting.stop_once) if keyboard is not None else nullcontext():
        rest = await sitting.work()
    code = show(await what_came_of(app, rest), rest.state, output, view)
    return _Turn(rest.state, code, rest.signal)


async def _heard(read: ReadLine) -> str | None:
    """The next message. Ctrl-C only drops what was typed; the signals that nobody types end the command.

    Raises:
        KeyboardInterrupt: one of them came.
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


def _reader() -> ReadLine:
    """How messages are read: with an editor for the line where it is installed, else plainly."""
    if has_person() and find_spec(_EDITOR) is not None:
        return _edited_line(import_module(_EDITOR).PromptSession())
    keyboard = Keyboard()

    async def plain_line() -> str | None:
        if not has_person():
            return await keyboard.line()
        write(_PROMPT)
        reading = asyncio.create_task(keyboard.line())
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, reading.cancel)
        try:
            await asyncio.wait([reading])
        finally:
            reading.cancel()
            interruptible()
        write("\n" if reading.cancelled() else "")
        return "" if reading.cancelled() else reading.result()

    return plain_line


def _edited_line(editor: Any) -> ReadLine:
    async def edited_line() -> str | None:
        try:
            line: str = await editor.prompt_async(_PROMPT)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None
        return line

    return edited_line
