"""What the line editor draws: the unfinished line, what waits, the input with folded pastes, hint and status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import ConditionalContainer
from prompt_toolkit.layout.controls import SearchBufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import (
    BeforeInput,
    HighlightIncrementalSearchProcessor,
    Processor,
    Transformation,
    TransformationInput,
)
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.styles import Style

from holdfast.cli.pastes import Pastes
from holdfast.views.lines import FRAME, clipped, neutral, one_line

PROMPT = "> "
_ROWS_MAX = 12
"""A longer input is scrolled."""
_WAITING_MAX = 3
"""The most waiting messages that are shown."""


class Shown(Protocol):
    """What the area shows."""

    @property
    def pastes(self) -> Pastes:
        """The pastes of the input."""
        ...

    @property
    def said(self) -> str:
        """The words of the block that is not finished, with their styles."""
        ...

    @property
    def unfinished(self) -> str:
        """The line that is still being written."""
        ...

    @property
    def printed(self) -> Sequence[str]:
        """The last lines that the running command printed."""
        ...

    @property
    def question(self) -> str:
        """The open question; empty without one."""
        ...

    @property
    def waiting(self) -> list[str]:
        """The messages that wait."""
        ...

    @property
    def hint(self) -> str:
        """What the person should know now."""
        ...

    @property
    def status(self) -> str:
        """The status line."""
        ...

    @property
    def width(self) -> int:
        """The width of the terminal in cells."""
        ...


class Area(NamedTuple):
    """The layout and the styles of the area."""

    layout: Layout
    style: Style


def area(shown: Shown, line: Buffer, answer: Buffer) -> Area:
    """Return the area. `line` is the input of messages, `answer` that of answers to questions."""
    search = SearchBufferControl(buffer=Buffer(), input_processors=[BeforeInput("history: ")])
    typing = BufferControl(
        buffer=line,
        input_processors=[HighlightIncrementalSearchProcessor(), _Folded(shown.pastes)],
        search_buffer_control=search,
        preview_search=True,
        include_default_input_processors=False,
    )
    answering = BufferControl(
        buffer=answer,
        input_processors=[BeforeInput(lambda: shown.question)],
        include_default_input_processors=False,
    )
    is_asked = Condition(lambda: bool(shown.question))
    rows = HSplit(
        [
            _text(lambda: ANSI(shown.said), Condition(lambda: bool(shown.said))),
            _text(lambda: ANSI(shown.unfinished), Condition(lambda: bool(shown.unfinished))),
            _text(lambda: _printed(shown), Condition(lambda: bool(shown.printed)), style="class:status"),
            _text(lambda: _waiting(shown), Condition(lambda: bool(shown.waiting))),
            ConditionalContainer(_input(typing, PROMPT), ~is_asked),
            ConditionalContainer(_input(answering, ""), is_asked),
            ConditionalContainer(Window(search, height=1), is_searching),
            _text(lambda: neutral(shown.hint), Condition(lambda: bool(shown.hint)), style="class:hint"),
            Window(FormattedTextControl(lambda: shown.status), height=1, style="class:status"),
        ]
    )
    style = Style.from_dict({"prompt": "bold", "status": "fg:ansibrightblack", "hint": "fg:ansiyellow"})
    return Area(Layout(rows, focused_element=typing), style)


def _input(control: BufferControl, prompt: str) -> Window:
    def prefix(number: int, wraps: int) -> StyleAndTextTuples:
        is_first = number == wraps == 0
        return [("class:prompt", prompt if is_first else " " * len(prompt))]

    height = Dimension(min=1, max=_ROWS_MAX)
    return Window(control, wrap_lines=True, height=height, dont_extend_height=True, get_line_prefix=prefix)


def _text(text: object, is_there: Condition, style: str = "") -> ConditionalContainer:
    control = FormattedTextControl(text)  # type: ignore[arg-type]
    window = Window(control, wrap_lines=True, dont_extend_height=True, style=style)
    return ConditionalContainer(window, is_there)


def _printed(shown: Shown) -> str:
    """Return what the running command printed, each line cut to the width."""
    return "\n".join(
        clipped(f"  {FRAME}{one_line(line, shown.width)}", shown.width - 1) for line in shown.printed
    )


def _waiting(shown: Shown) -> str:
    """Return the messages that wait, shortened."""
    lines, width = shown.waiting, shown.width - 1
    rows = [clipped(f"  waits: {one_line(line, width)}", width) for line in lines[:_WAITING_MAX]]
    if len(lines) > _WAITING_MAX:
        rows.append(f"  and {len(lines) - _WAITING_MAX} more")
    return "\n".join(rows)


class _Folded(Processor):
    """Shows the label of a paste in the place of the character that stands for it."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return the line as it is shown, with the columns of both."""
        fragments: StyleAndTextTuples = []
        starts: list[int] = []
        column = 0
        for style, character, *_ in explode_text_fragments(transformation_input.fragments):
            pasted = self._pastes.of(character)
            text = character if pasted is None else neutral(pasted.label)
            starts.append(column)
            fragments.append((style if pasted is None else f"{style} class:hint", text))
            column += len(text)
        starts.append(column)

        def to_display(at: int) -> int:
            return starts[at] if at < len(starts) else column + at - len(starts) + 1

        def to_source(at: int) -> int:
            return next((n for n, start in enumerate(starts) if start >= at), len(starts) - 1)

        return Transformation(fragments, source_to_display=to_display, display_to_source=to_source)
