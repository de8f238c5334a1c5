"""Writes lines to a terminal or a pipe: answers to stdout, progress and warnings to stderr.

Only terminals get colour and wrapped lines.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable
from typing import TextIO

from holdfast.cli.called import as_called
from holdfast.errors import StorageError, StorageFull
from holdfast.views.lines import COMMAND, EXACT, Line, Span, neutral, safe_json, wrapped

PIPE_COLUMNS = 100
_SGR = {
    "bold": "1", "dim": "2", "italic": "3", "underline": "4", "strike": "9", "red": "31",
    "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", COMMAND: "1", EXACT: "39",
}  # fmt: skip


_COMMAND = re.compile(r"(`holdfast [^`]*`)")
_LOST = {
    errno.EBADF: "stdout is closed",
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not grow further",
    errno.EIO: "the device or terminal fails",
}
"""Why stdout could not be written, by the number of the error. A closed pipe is no error: its reader has enough."""


def legible(text: str) -> str:
    """Replace bytes that Python could not decode as UTF-8 with `\ufffd`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def has_person() -> bool:
    """Return whether a person can be asked: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def columns(stream: TextIO) -> int:
    """Return the width of the stream in cells."""
    if not stream.isatty():
        return PIPE_COLUMNS
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_COLUMNS
    except OSError:  # the terminal is gone
        return PIPE_COLUMNS


def say(lines: Iterable[Line | str]) -> None:
    """Write lines to stdout."""
    for line in lines:
        sys.stdout.write(shown(line, sys.stdout))


def tell(line: Line | str) -> None:
    """Write a line, or each line of a text, to stderr. Unsafe characters are escaped."""
    lines = neutral(line).split("\n") if isinstance(line, str) else [[_safe(piece) for piece in line]]
    write("".join(shown(each, sys.stderr) for each in lines))


def _safe(piece: Span | str) -> Span:
    return Span(neutral(piece)) if isinstance(piece, str) else piece._replace(text=neutral(piece.text))


def shown(line: Line | str, stream: TextIO) -> str:
    """Return the line as the stream gets it: styled and wrapped on a terminal, unchanged in a pipe."""
    spans = _spans(line)
    pieces = wrapped(spans, columns(stream)) if stream.isatty() else [spans]
    texts = ("".join(styled(span.text, span.style, stream) for span in piece) for piece in pieces)
    return "".join(text.rstrip() + "\n" for text in texts)


def _spans(line: Line | str) -> list[Span]:
    """Return the spans of a line. In a text, commands stand in backticks. Commands are made copyable."""
    if isinstance(line, str):
        spans = with_commands(line)
    else:
        spans = [piece if isinstance(piece, Span) else Span(piece) for piece in line]
    return [Span(as_called(text), style) if style == COMMAND else Span(text, style) for text, style in spans]


def with_commands(text: str) -> list[Span]:
    """Return a text of ours as spans: the commands in it, which stand in backticks, will be made copyable."""
    return [Span(piece, COMMAND if at % 2 else "") for at, piece in enumerate(_COMMAND.split(neutral(text)))]


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style like `bold red`, if the stream shows styles."""
    if not style or not text or not has_styles(stream):
        return text
    return f"\x1b[{';'.join(_SGR[name] for name in style.split())}m{text}\x1b[0m"


def has_styles(stream: TextIO) -> bool:
    """Return whether the stream shows styles."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_unread(error: OSError) -> bool:
    """Return whether writing failed because nobody reads: a closed pipe, or a terminal that is gone."""
    return error.errno in (errno.EPIPE, errno.EIO)


def mute(stream: TextIO) -> None:
    """Discard further output to a stream that nobody reads, so that writing does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def output_lost(error: OSError, hint: str = "") -> StorageError | None:
    """Return the error of a command whose output could not be written, and discard the rest of it; None for any other
    error. A reader that left is one.
    """
    why = _LOST.get(error.errno or 0)
    if why is None or error.filename is not None:
        return None
    mute(sys.stdout)
    kind = StorageFull if error.errno == errno.ENOSPC else StorageError
    return kind(f"The output could not be written: {why}.", hint=hint)


def say_json(value: object) -> None:
    """Write a JSON object on one line, with everything escaped that a terminal would act on."""
    sys.stdout.write(safe_json(value) + "\n")


def write(text: str) -> None:
    """Write text to stderr immediately. The caller made it safe to show."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # nobody reads it, or the disk is full: the work continues
        mute(sys.stderr)
