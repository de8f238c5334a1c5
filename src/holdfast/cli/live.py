"""Shows work while it happens: streamed on a terminal, one line per event in a pipe, or JSON.

Progress goes to stderr, JSON to stdout. `views.happenings` has the words.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import Any, Protocol

from holdfast.cli.terminal import PIPE_COLUMNS, columns, is_unread, mute, say_json, styled, tell, write
from holdfast.core.state import State, phase, started_calls
from holdfast.protocol.events import ModelCallCut, ModelCallStarted, Record, Responded, ToolCallStarted
from holdfast.protocol.messages import calls_of, text_of
from holdfast.protocol.ports import Delta, Journals
from holdfast.runtime.plain import PlainEvents
from holdfast.views.happenings import Detail, Happenings, spent
from holdfast.views.lines import clipped, iso, neutral, one_line, took

_TICK_S = 0.1
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ERASE = "\r\x1b[K"


class View(Protocol):
    """Shows a session while it happens."""

    async def show(self, item: Record | Delta, state: State) -> None:
        """Show a record or delta. `state` is the fold of all records so far."""
        ...

    def pause(self) -> None:
        """Stop writing by yourself: a question is on the terminal."""
        ...

    def resume(self) -> None:
        """Start writing again."""
        ...

    def close(self) -> None:
        """End the view."""
        ...


class JsonView:
    """Writes every record and delta to stdout, one JSON object per line."""

    def __init__(self, store: Journals, session: str) -> None:
        self._plain = PlainEvents(store, session, tell)

    async def show(self, item: Record | Delta, state: State) -> None:
        """See `View`."""
        if isinstance(item, Delta):
            row: dict[str, Any] = {"delta": item.text, "kind": item.kind, "key": item.key}
        else:
            head = {"seq": item.seq, "at": iso(item.at_ms), "type": type(item.event).__name__}
            row = {**head, **await self._plain.data(item)}
        try:
            say_json(row)
            sys.stdout.flush()
        except OSError as error:
            if not is_unread(error):
                raise
            mute(sys.stdout)  # the work continues

    def pause(self) -> None:
        """Do nothing: nobody else writes to stdout."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LineView:
    """Writes one plain line to stderr for each event that matters."""

    def __init__(self, state: State, detail: Detail = "usual") -> None:
        """`state`: the state of the session before the first event."""
        self._detail = detail
        self._happenings = Happenings(state, detail=detail)

    async def show(self, item: Record | Delta, state: State) -> None:
        """See `View`."""
        if isinstance(item, Delta):
            return
        if isinstance(item.event, Responded) and calls_of(item.event.parts) and self._detail != "quiet":
            said = one_line(text_of(item.event.parts), PIPE_COLUMNS)
            if said:
                tell([f"  {said}"])
        for line in self._happenings.lines(item, PIPE_COLUMNS):
            tell(line)

    def pause(self) -> None:
        """Do nothing: nobody is asked in a pipe."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LiveView:
    """Shows the model's words as they arrive, one line per call, and a status line at the bottom."""

    def __init__(self, state: State, *, is_asked_here: bool = False, detail: Detail = "usual") -> None:
        """`is_asked_here`: the person who watches is also asked for approvals."""
        self.shown_seq = 0
        """The record of the last response that is completely on the screen."""
        self._happenings = Happenings(state, is_asked_here=is_asked_here, detail=detail)
        self._spinner = itertools.cycle(_SPINNER)
        self._state = State()
        self._since_s = time.monotonic()
        self._streamed = ""
        """The words of the current response so far."""
        self._is_mid_line = False
        self._is_after_lines = False
        """The last line was about a call or an event, so words begin after an empty line."""
        self._has_status = False
        self._is_paused = False
        self._output = ""
        """The last output line of the running tool."""
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    async def show(self, item: Record | Delta, state: State) -> None:
        """See `View`."""
        self._state = state
        if isinstance(item, Delta):
            self._crumb(item)
            return
        match item.event:
            case ModelCallStarted():
                self._streamed, self._since_s = "", time.monotonic()
            case ToolCallStarted() if len(started_calls(state)) <= 1:
                self._output, self._since_s = "", time.monotonic()
            case Responded(parts=parts):
                self._words(text_of(parts), item.seq)
            case ModelCallCut(text=text):
                self._words(text, item.seq)
        for line in self._happenings.lines(item, columns(sys.stderr)):
            self._end_line()
            tell(line)
            self._is_after_lines = True

    def pause(self) -> None:
        """See `View`."""
        self._end_line()
        self._is_paused = True

    def resume(self) -> None:
        """See `View`."""
        self._is_paused = False
        self._since_s = time.monotonic()

    def close(self) -> None:
        """See `View`."""
        self._end_line()
        if self._timer is not None:
            self._timer.cancel()

    def _crumb(self, delta: Delta) -> None:
        if delta.kind == "tool_output":
            self._output = delta.text.rstrip().rpartition("\n")[2] or self._output
            return
        if delta.kind == "text":
            self._streamed += delta.text
        self._write(delta.text, "dim" if delta.kind == "reasoning" else "")

    def _words(self, text: str, seq: int) -> None:
        """Show the part of a complete response that was not streamed."""
        if not text.startswith(self._streamed):
            self._end_line()
            self._streamed = ""
        self._write(text[len(self._streamed) :])
        self._end_line()
        self._streamed, self.shown_seq = "", seq

    def _write(self, text: str, style: str = "") -> None:
        if text:
            self._erase_status()
            write("\n" if self._is_after_lines else "")
            self._is_after_lines = False
            write(styled(neutral(text), style, sys.stderr))
            self._is_mid_line = not text.endswith("\n")

    def _end_line(self) -> None:
        self._erase_status()
        if self._is_mid_line:
            write("\n")
            self._is_mid_line = False

    def _tick(self) -> None:
        if not self._is_paused and not self._is_mid_line:
            status = self._status()
            if status:
                told = clipped(f"{next(self._spinner)} {status}", columns(sys.stderr) - 1)
                write(_ERASE + styled(told, "dim", sys.stderr))
                self._has_status = True
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _erase_status(self) -> None:
        if self._has_status:
            write(_ERASE)
            self._has_status = False

    def _status(self) -> str:
        """Return the status line: what runs, for how long, turns and cost; empty if nothing runs."""
        passed = took(int((time.monotonic() - self._since_s) * 1000))
        match phase(self._state):
            case "calling":
                doing = f"thinking {passed}"
            case "acting":
                calls = started_calls(self._state)
                doing = self._happenings.about(calls[0][0].call_id, columns(sys.stderr) // 2)
                doing += f" and {len(calls) - 1} more" if len(calls) > 1 else ""
                doing += f" {passed}"
                doing += f" │ {one_line(self._output, columns(sys.stderr) // 3)}" if self._output else ""
            case "backing_off":
                doing = "waiting before the next attempt"
            case "stopping":
                doing = "stopping"
            case _:
                return ""
        return f"{doing} · {spent(self._state)}"
