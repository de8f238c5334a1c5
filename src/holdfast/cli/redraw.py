"""Erases what the line editor drew, also after the window became narrower."""

from __future__ import annotations

import time
from collections.abc import Mapping

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.renderer import Renderer

_VARIABLES = frozenset(
    (
        "TMUX",
        "VTE_VERSION",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "WT_SESSION",
        "KONSOLE_VERSION",
        "ALACRITTY_WINDOW_ID",
    )
)
_QUIET_S = 0.1
"""After this time, the terminal has surely drawn what it got."""
_PROGRAMS = frozenset(("iTerm.app", "Apple_Terminal", "WezTerm", "ghostty", "vscode"))


def breaks_lines_anew(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal says that it is one of those that break long lines when they become narrower.

    Others, such as xterm, cut them. They are the safe guess: erasing too little leaves a word, erasing too much loses
    a line of an answer.
    """
    return not _VARIABLES.isdisjoint(environ) or environ.get("TERM_PROGRAM") in _PROGRAMS


class Redrawn(Application[None]):
    """An application that finds its area again after the window became narrower."""

    does_break = False
    """The terminal breaks long lines anew."""
    _drawn_s = 0.0
    """When the area was drawn last."""

    def erase(self) -> None:
        """Erase the area. What is drawn next begins where it began."""
        renderer, width = self.renderer, self.output.get_size().columns
        screen, size = renderer._last_screen, renderer._last_size
        if screen is not None and size is not None:
            # What was drawn just now may have come after the window changed: then the terminal has cut it.
            is_quiet = time.monotonic() - self._drawn_s > _QUIET_S
            is_broken = self.does_break and is_quiet and width < size.columns
            self._clear(_moved(screen, renderer, width) if is_broken else renderer._cursor_pos)
        renderer.erase()

    def _clear(self, cursor: Point) -> None:
        """Clear the area, and go to its beginning. `cursor` is counted from there.

        Its first cell is cleared apart: a clear of the whole screen makes tmux keep what was on it.
        """
        self.output.cursor_backward(cursor.x)
        self.output.cursor_up(cursor.y)
        self.output.write_raw(" ")
        self.output.erase_down()
        self.output.cursor_backward(1)
        self.renderer._cursor_pos = Point(x=0, y=0)

    def _redraw(self, render_as_done: bool = False) -> None:
        super()._redraw(render_as_done)
        self._drawn_s = time.monotonic()

    def _on_resize(self) -> None:
        self.erase()
        super()._on_resize()


def _moved(screen: Screen, renderer: Renderer, width: int) -> Point:
    """Return where the cursor is, counted from the beginning of the area, after each of its lines was broken."""
    x, y = renderer._cursor_pos
    above = sum(_rows(screen, row, width) for row in range(y))
    return Point(x=x % width, y=above + x // width)


def _rows(screen: Screen, row: int, width: int) -> int:
    cells = screen.data_buffer[row]
    used = max((at + cell.width for at, cell in cells.items() if cell.char != " " or at == 0), default=1)
    return max(-(-used // width), 1)
