"""Shows work while it happens: streamed on a terminal, one line per event in a pipe, or JSON.

Progress goes to stderr, JSON to stdout. `views.happenings` has the words.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.cli.edits import Edits
from holdfast.cli.status import fitting
from holdfast.cli.terminal import (
    PIPE_COLUMNS,
    columns,
    has_styles,
    is_unread,
    mute,
    say_json,
    shown,
    styled,
    tell,
    write,
)
from holdfast.core.state import State, phase, started_calls
from holdfast.protocol.events import (
    AnswerGiven,
    ModelCallCut,
    ModelCallStarted,
    Record,
    Responded,
    ToolCallStarted,
)
from holdfast.protocol.messages import calls_of, text_of
from holdfast.protocol.ports import Delta, Journals
from holdfast.runtime.plain import PlainEvents
from holdfast.views.happenings import Detail, Happenings, spent
from holdfast.views.lines import Line, iso, one_line, took

if TYPE_CHECKING:
    from holdfast.cli.markdown import Page, Spans

MARKDOWN = "holdfast.cli.markdown"
"""Loaded with the first words for a terminal, because it takes long to load."""
_TICK_S = 0.1
_PRINTED_LINES, _PRINTED_CHARS = 3, 4_000
"""The most that is shown of what a running command prints."""
_SAID_LINES = 6
"""The most that is shown of a block that is not finished."""
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

    def __init__(self, state: State, detail: Detail = "usual", edits: Edits | None = None) -> None:
        """`state`: the state of the session before the first event. `edits`: shows what calls changed."""
        self._edits = edits
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
        for line in await self._edits.lines(item) if self._edits is not None else ():
            tell(line)

    def pause(self) -> None:
        """Do nothing: nobody is asked in a pipe."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Bottom(Protocol):
    """Shows what is running, below everything that was written."""

    def show(self, doing: str, state: State, printed: Sequence[str] = (), said: Sequence[Spans] = ()) -> None:
        """Show what is running (empty: nothing), and what was used.

        Args:
            printed: The last lines that a command printed.
            said: The words of the block that is not finished, in lines of `width` cells.
        """
        ...

    @property
    def width(self) -> int:
        """The most cells of a line of `said`."""
        ...

    def erase(self) -> None:
        """Make room, because something is about to be written."""
        ...


class Spinner:
    """The last line of a terminal. It is there only while no other line is being written."""

    def __init__(self) -> None:
        self._signs = itertools.cycle(_SPINNER)
        self._is_there = False

    def show(self, doing: str, state: State, printed: Sequence[str] = (), said: Sequence[Spans] = ()) -> None:
        """See `Bottom`. There is room for one line only."""
        if doing:
            words = ["".join(span.text for span in line) for line in said] or printed
            doing += f" │ {one_line(words[-1], self.width)}" if words else ""
            told = fitting(
                (f"{next(self._signs)} {doing}", *spent(state).split(" · ")), columns(sys.stderr) - 1
            )
            write(_ERASE + styled(told, "dim", sys.stderr))
            self._is_there = True

    @property
    def width(self) -> int:
        """See `Bottom`. A window that becomes narrower breaks a longer line, and then a part of it would stay."""
        return max(columns(sys.stderr) // 3, 1)

    def erase(self) -> None:
        """See `Bottom`."""
        if self._is_there:
            write(_ERASE)
            self._is_there = False


class LiveView:
    """Shows the model's words as they arrive, one line per call, and what is running at the bottom."""

    def __init__(
        self,
        state: State,
        *,
        is_asked_here: bool = False,
        detail: Detail = "usual",
        bottom: Bottom | None = None,
        edits: Edits | None = None,
    ) -> None:
        """Create a view of everything after `state`.

        Args:
            is_asked_here: The person who watches is also asked for approvals.
            detail: How much is shown.
            bottom: Where to show what is running, if it stays while lines are written; None for the last line.
            edits: Shows what calls changed.
        """
        self._edits = edits
        self.shown_seq = 0
        """The record of the last response that is completely on the screen."""
        self._happenings = Happenings(state, is_asked_here=is_asked_here, detail=detail)
        self._is_apart = bottom is not None
        self._bottom = bottom or Spinner()
        self._state = state
        self._since_s = time.monotonic()
        self._streamed: list[str] = []
        """The words of the current response so far."""
        self._page: Page | None = None
        """The words that arrive, from the first one to the next line about something else."""
        self._style = ""
        self._is_after_lines = False
        """The last line was about a call or an event, so words begin after an empty line."""
        self._is_paused = False
        self._printed = ""
        """The end of what the running command printed."""
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    async def show(self, item: Record | Delta, state: State) -> None:
        """See `View`."""
        self._state = state
        if isinstance(item, Delta):
            self._crumb(item)
            return
        match item.event:
            case ModelCallStarted(purpose="work"):
                self._end_words()
                self._streamed, self._since_s = [], time.monotonic()
            case ToolCallStarted() if len(started_calls(state)) <= 1:
                self._printed, self._since_s = "", time.monotonic()
            case Responded(parts=parts) if not self._has_schema or calls_of(parts):
                self._words(text_of(parts), item.seq)
            case ModelCallCut(text=text):
                self._words(text, item.seq)
            case AnswerGiven(answer=answer) if not self._has_schema:
                self._streamed = []
                self._words(answer.text, item.seq)
        changed = await self._edits.lines(item) if self._edits is not None else []
        for line in [*self._happenings.lines(item, columns(sys.stderr)), *changed]:
            self._end_words()
            tell(line)
            self._is_after_lines = True

    def pause(self) -> None:
        """See `View`."""
        self._end_words()
        self._is_paused = True

    def resume(self) -> None:
        """See `View`."""
        self._is_paused = False
        self._since_s = time.monotonic()

    def close(self) -> None:
        """See `View`."""
        self._end_words()
        if self._timer is not None:
            self._timer.cancel()

    def _crumb(self, delta: Delta) -> None:
        if delta.kind == "tool_output":
            self._printed = (self._printed + delta.text)[-_PRINTED_CHARS:]
            return
        if delta.kind == "text":
            if (
                self._has_schema
            ):  # an answer may be wrong, and is JSON: it is written when it is known to match
                return
            self._streamed.append(delta.text)
        self._write(delta.text, "dim" if delta.kind == "reasoning" else "")

    @property
    def _has_schema(self) -> bool:
        settings = self._state.settings
        return settings is not None and bool(settings.output.schema)

    def _words(self, text: str, seq: int) -> None:
        """Show the part of a complete response that was not streamed."""
        streamed = "".join(self._streamed)
        if not text.startswith(streamed):
            self._end_words()
            streamed = ""
        self._write(text[len(streamed) :])
        self._end_words()
        self._streamed, self.shown_seq = [], seq

    def _write(self, text: str, style: str = "") -> None:
        if not text:
            return
        if style != self._style:
            self._end_words()
        self._style = style
        if self._page is None:
            self._page = import_module(MARKDOWN).Page(style, has_styles=has_styles(sys.stderr))
        self._put(self._page.feed(text, columns(sys.stderr)))

    def _end_words(self) -> None:
        if self._page is not None:
            self._put(self._page.end(columns(sys.stderr)))
            self._page = None
        self._bottom.erase()

    def _put(self, lines: Sequence[Line]) -> None:
        """Write lines of an answer, and show the rest of it at the bottom at once: no word is there twice."""
        if lines:
            self._bottom.erase()
            before = "\n" if self._is_after_lines else ""
            self._is_after_lines = False
            write(before + "".join(shown(line, sys.stderr) for line in lines))
            if self._is_apart:
                self._show_bottom()

    def _tick(self) -> None:
        self._show_bottom()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _show_bottom(self) -> None:
        is_acting = not self._is_paused and phase(self._state) == "acting"
        printed = self._printed.rstrip().split("\n")[-_PRINTED_LINES:] if is_acting else []
        doing = "" if self._is_paused else self._doing()
        said = self._page.unfinished(self._bottom.width) if self._page is not None else []
        self._bottom.show(doing, self._state, [line for line in printed if line.strip()], said[-_SAID_LINES:])

    def _doing(self) -> str:
        """Return what is running and for how long; empty if nothing is."""
        passed = took(int((time.monotonic() - self._since_s) * 1000))
        match phase(self._state):
            case "calling":
                doing = f"thinking {passed}"
            case "acting":
                calls = started_calls(self._state)
                doing = self._happenings.about(calls[0][0].call_id, columns(sys.stderr) // 2)
                doing += f" and {len(calls) - 1} more" if len(calls) > 1 else ""
                doing += f" {passed}"
            case "backing_off":
                doing = "waiting before the next attempt"
            case "stopping":
                doing = "stopping"
            case _:
                return ""
        return doing
