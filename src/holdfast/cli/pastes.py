"""Messages that are typed and pasted. A paste is one piece of a message: it is shown folded and sent whole.

In the editor's line, one private character stands for each piece that was pasted. So one Backspace removes it, and
no key can cut it in two.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.protocol.counts import counted

_FIRST, _LAST = 0x100000, 0x10FFFD
"""The characters that stand for pastes: the last private plane of Unicode."""
_SHORT_CHARS = 1_000
"""A longer paste is folded, even if it has only one line."""
_COMMANDS = ("/", "!")
"""How a command begins."""


class Pasted(msgspec.Struct, frozen=True):
    """Text that was pasted."""

    pasted: str

    @property
    def label(self) -> str:
        """The text as the editor shows it: folded, unless it is short."""
        lines = self.pasted.count("\n") + (not self.pasted.endswith("\n"))
        if lines > 1 or "\n" in self.pasted:
            return f"[pasted {counted(lines, 'line')}]"
        return (
            self.pasted
            if len(self.pasted) <= _SHORT_CHARS
            else f"[pasted {counted(len(self.pasted), 'character')}]"
        )


Piece = str | Pasted


class Message(msgspec.Struct, frozen=True):
    """What a person sends: typed text and pastes, in order."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(each.pasted if isinstance(each, Pasted) else each for each in self.pieces)

    @property
    def typed(self) -> str:
        """What was typed. A paste between two typed parts separates them."""
        return "\n".join(each for each in self.pieces if isinstance(each, str))

    @property
    def shown(self) -> str:
        """The text with each paste folded."""
        return "".join(each.label if isinstance(each, Pasted) else each for each in self.pieces)

    @property
    def is_command(self) -> bool:
        """Whether it begins like a command. A paste never does."""
        first = self.pieces[0] if self.pieces else ""
        return isinstance(first, str) and first.startswith(_COMMANDS)

    @property
    def has_paste(self) -> bool:
        """Whether a part of it was pasted as one piece."""
        return any(isinstance(each, Pasted) for each in self.pieces)

    @property
    def has_folded(self) -> bool:
        """Whether the editor shows less than the whole text."""
        return self.text != self.shown


def typed(text: str) -> Message:
    """Return a message of typed text."""
    return Message((text,))


class Pastes:
    """The pastes of one editor, each with the character that stands for it."""

    def __init__(self) -> None:
        self._pastes: list[Pasted] = []

    def of(self, character: str) -> Pasted | None:
        """Return the paste that a character stands for."""
        at = ord(character) - _FIRST
        return self._pastes[at] if 0 <= at < len(self._pastes) else None

    def line(self, text: str) -> str:
        """Return a pasted text as the editor's line gets it: as it is, or one character.

        A short line stays as it is, so that it can be edited, unless it could pass for a command or name a file.
        """
        is_long = "\n" in text or len(text) > _SHORT_CHARS
        could_mean_more = "@" in text or text.lstrip().startswith(_COMMANDS)
        if is_long or could_mean_more or any(ord(each) >= _FIRST for each in text):
            return self.fold(text)
        return text

    def fold(self, text: str) -> str:
        """Return the character that stands for a pasted text."""
        pasted = Pasted(text)
        if pasted in self._pastes:
            return chr(_FIRST + self._pastes.index(pasted))
        if _FIRST + len(self._pastes) > _LAST:
            return text
        self._pastes.append(pasted)
        return chr(_FIRST + len(self._pastes) - 1)

    def message(self, line: str) -> Message:
        """Return the message that a line of the editor means."""
        pieces: list[Piece] = []
        for character in line:
            pasted = self.of(character)
            if pasted is not None:
                pieces.append(pasted)
            elif pieces and isinstance(pieces[-1], str):
                pieces[-1] += character
            else:
                pieces.append(character)
        return Message(tuple(pieces))

    def lined(self, pieces: Iterable[Piece]) -> str:
        """Return a message as a line of the editor."""
        return "".join(self.fold(each.pasted) if isinstance(each, Pasted) else each for each in pieces)
