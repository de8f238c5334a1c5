"""Reads a batch: a file, or stdin, with one question per line as JSON. One line at a time is in memory.

What a question means, and its answer, is the command's own. A line that cannot be answered gives `{"error"}` in its
place, and the others are answered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from holdfast.cli.terminal import say, say_json
from holdfast.config.files import Unreadable, read_opened, reading
from holdfast.config.paths import expanded
from holdfast.errors import UsageError
from holdfast.protocol.untrusted import decode_exact
from holdfast.views.lines import Span, neutral

LINE_MAX_BYTES = 1_000_000
"""The longest line of a batch."""
_BAD_NEWS = 1
_STDIN = "-"


def answered(file: str, answer: Callable[[Any], None], *, is_json: bool) -> int:
    """Answer every line of a batch. Return the exit code.

    Args:
        file: The name of the file; - reads stdin.
        answer: Takes the decoded line and prints its answer. Raises UsageError if it cannot be answered.
        is_json: Whether errors are printed as JSON.

    Raises:
        UsageError: the file cannot be read.
    """
    code = 0
    with _lines_of(file) as lines:
        for line in lines:
            try:
                answer(_decoded(line))
            except UsageError as error:
                code = _BAD_NEWS
                message = f"{error.message} {error.hint}".strip()
                if is_json:
                    say_json({"error": message})
                else:
                    say([[Span("error", "red"), f"  {neutral(message)}"]])
    return code


@contextmanager
def _lines_of(file: str) -> Iterator[Iterator[bytes | None]]:
    """Open a batch. Its lines are read one by one; None is one that is too long."""
    if file == _STDIN:
        yield _lines(sys.stdin.buffer)
        return
    try:
        with read_opened(expanded(file)) as opened:
            yield _lines(opened)
    except Unreadable as error:
        hint = "Name a file with one JSON object a line."
        raise UsageError(f"--batch {file} {error}.", hint=hint) from None


def _lines(stream: IO[bytes]) -> Iterator[bytes | None]:
    while line := _next_piece(stream):
        is_whole = len(line) <= LINE_MAX_BYTES
        while len(line) > LINE_MAX_BYTES and not line.endswith(b"\n"):
            line = _next_piece(stream)
        yield line if is_whole else None


def _next_piece(stream: IO[bytes]) -> bytes:
    with reading():
        return stream.readline(LINE_MAX_BYTES + 1)


def _decoded(line: bytes | None) -> Any:
    if line is None:
        raise UsageError(f"The line is longer than {LINE_MAX_BYTES:,} bytes.")
    try:
        return decode_exact(line)
    except msgspec.DecodeError as error:
        raise UsageError(f"The line is not JSON: {error}.") from None
