"""Writing to the terminal or into a pipe: answers to stdout, progress and warnings to stderr.

Colour is for terminals only. What is written belongs to the commands and to `views`.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from holdfast.views.lines import Line, neutral, safe_json

PIPE_COLUMNS = 100


def legible(text: str) -> str:
    """What came from outside as UTF-8 has it: where Python kept bytes that it could not decode, `\ufffd`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_terminal() -> bool:
    """Whether the answer goes to a person's terminal."""
    return sys.stdout.isatty()


def has_person() -> bool:
    """Whether somebody sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def columns() -> int:
    """How many cells a line may take."""
    return shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns if is_terminal() else PIPE_COLUMNS


def say(lines: Iterable[Line | str]) -> None:
    """Write lines to stdout, with their styles where a terminal shows them."""
    if not is_terminal():
        for line in lines:
            spans = [line] if isinstance(line, str) else line
            sys.stdout.write("".join(s if isinstance(s, str) else s.text for s in spans).rstrip() + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        spans = [line] if isinstance(line, str) else line
        parts = [(s, "") if isinstance(s, str) else (s.text, s.style) for s in spans]
        console.print(Text.assemble(*parts), no_wrap=True, overflow="ignore", crop=False)


def is_unread(error: OSError) -> bool:
    """Whether writing failed since the reader is gone: a closed pipe, or a terminal that vanished."""
    return error.errno in (errno.EPIPE, errno.EIO)


def mute(stream: TextIO) -> None:
    """Nobody reads the stream any more: what is still written to it goes nowhere and must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_json(value: object) -> None:
    """Write one JSON object on a line of its own; what a terminal would act on is escaped in it."""
    sys.stdout.write(safe_json(value) + "\n")


def write(text: str) -> None:
    """Put text on stderr at once. The caller made it safe to show."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # nobody reads it, or its disk is full: the work goes on
        mute(sys.stderr)


def warn(text: str) -> None:
    """Write a line to stderr."""
    write(neutral(text) + "\n")
