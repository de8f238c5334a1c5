"""Breaks streamed text into lines at word boundaries while it arrives.

A word that has not ended yet is held back, because only its end shows on which line it belongs.
"""

from __future__ import annotations

import re

from holdfast.views.lines import cells

_TOKEN = re.compile(r"\n|[^\S\n]+|\S+")
_LONG_CHARS = 200
"""A word this long is written before its end is known: it is cut where the line is full."""


class Flow:
    """One stream of text on its way to a terminal."""

    def __init__(self) -> None:
        self._column = 0
        """The cells that are used in the current line."""
        self._space = ""
        """Blanks that are written only if a word follows on the same line."""
        self._held = ""
        """The word that has not ended yet."""

    @property
    def is_mid_line(self) -> bool:
        """Whether something was written in the current line."""
        return self._column > 0

    def feed(self, text: str, width: int) -> str:
        """Return what can be written now. It has a line break wherever a line is full."""
        text = self._held + text
        end = len(text)
        while end and not text[end - 1].isspace():
            end -= 1
        if len(text) - end > _LONG_CHARS:
            end = len(text)
        self._held = text[end:]
        return self._broken(text[:end], width)

    def end(self, width: int) -> str:
        """Return what was held back, and the end of the line if it has begun."""
        held, self._held = self._held, ""
        rest = self._broken(held, width)
        if self._column:
            rest += "\n"
        self._column, self._space = 0, ""
        return rest

    def _broken(self, text: str, width: int) -> str:
        pieces: list[str] = []
        for token in _TOKEN.findall(text):
            if token == "\n":
                pieces.append("\n")
                self._column, self._space = 0, ""
            elif token.isspace():
                self._space += token.expandtabs(4)
            else:
                pieces.append(self._placed(token, width))
        return "".join(pieces)

    def _placed(self, word: str, width: int) -> str:
        """Return a word with the blanks or the line break before it."""
        size = cells(word)
        before, self._space = self._space[: max(width // 2, 1)] if not self._column else self._space, ""
        if self._column + len(before) + size <= width:
            self._column += len(before) + size
            return before + word
        if size <= width:
            is_first = not self._column
            self._column = size
            return word if is_first else "\n" + word
        return self._cut(before, word, width)

    def _cut(self, before: str, word: str, width: int) -> str:
        """Return a word that is longer than a line, cut where a line is full."""
        pieces = [before] if self._column + len(before) < width else []
        self._column += sum(map(len, pieces))
        for character in word:
            size = cells(character)
            if self._column + size > width:
                pieces.append("\n")
                self._column = 0
            pieces.append(character)
            self._column += size
        return "".join(pieces)
