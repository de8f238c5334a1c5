"""A stream that prints above the prompt of `chat` instead of over it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO


class Above(io.TextIOBase):
    """Stands for a stream of this process while the line editor has its terminal."""

    def __init__(self, stream: TextIO, print_above: Callable[[str], None]) -> None:
        self._stream = stream
        self._print = print_above

    def write(self, text: str) -> int:
        """Print the text above the prompt."""
        self._print(text)
        return len(text)

    def isatty(self) -> bool:
        """Return True: it represents a terminal."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()
