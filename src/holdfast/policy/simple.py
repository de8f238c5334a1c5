"""What a shell text says, as data: its simple commands, with their words as the programs get them.

`shell` reads texts into these shapes. `programs` says what a program does with its words. `rules` judges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

OWN_PIPE = "/dev/fd/63"
"""What the shell puts in place of `<(...)` and `>(...)`."""


class Found(NamedTuple):
    """What a program finds below a folder and hands on to another one as words."""

    names: tuple[str, ...] = ()
    """Patterns that every name matches, in small letters; empty: any name."""
    may_be_link: bool = True
    is_split: bool = False
    """Whether it is handed on as a text that is split at blanks, and has quotes."""
    is_bare: bool = False
    """Whether the names begin at the folder, so that one may begin with a dash."""


class Word(NamedTuple):
    """A word as the program gets it."""

    text: str
    """Decoded: without quotes and escapes, with braces expanded, and `~`, `$HOME` and `$PWD` replaced."""
    is_known: bool = True
    """Whether the text is the whole truth. A substitution or another variable is known only when it runs."""
    is_glob: bool = False
    """Whether it has an unquoted `*`, `?` or `[`: the shell replaces it by the names that match."""
    is_range: bool = False
    """Whether a range in braces counts out a part of it: `{1..9}`."""
    found: Found | None = None
    """What it stands for, if a program finds it below the folder that the text names. It may be several words, and
    none of them begins with a dash."""


class Redirection(NamedTuple):
    """A redirection of a command, like `> file`. One that only copies a descriptor, like `2>&1`, is left out."""

    operator: str
    target: Word
    """The file; for `<<` and `<<<`, the text that the command reads from its input."""


class SimpleCommand(NamedTuple):
    """One program with its words, where the shell runs it."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    """The variables set in front of it."""
    redirections: tuple[Redirection, ...] = ()
    folders: tuple[str, ...] = ("",)
    """Where it may run, from the `cd`s before it; absolute or relative to the first folder, which is empty."""
    is_folder_known: bool = True
    """Whether it runs in one of the folders for certain."""
    pipes: tuple[int, ...] = ()
    """The pipelines that it is a part of, by their numbers; 0: what it prints becomes words, or a file, of others."""
    feeds: tuple[SimpleCommand, ...] = ()
    """If it is `xargs`, the commands before it in its pipeline, which alone write what it reads."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of its words."""
        return tuple([word.text for word in self.words])


MOST_FEEDS = 4
"""How long a pipeline before `xargs` may be."""


_MIXING = re.compile(rb">&|&>|\|&")
"""What may let `xargs` read messages of errors, too."""


def fed(commands: Sequence[SimpleCommand], data: bytes) -> Sequence[SimpleCommand]:
    """Return the commands of a pipeline, with what `xargs` reads.

    Args:
        commands: Each part of the pipeline, if each is one simple command.
        data: The whole text.
    """
    last = next((at for at in range(1, len(commands)) if commands[at].texts[:1] == ("xargs",)), 0)
    if not 0 < last <= MOST_FEEDS or _MIXING.search(data):
        return commands
    return [*commands[:last], commands[last]._replace(feeds=tuple(commands[:last])), *commands[last + 1 :]]


class Script(NamedTuple):
    """Everything that a shell text runs."""

    commands: tuple[SimpleCommand, ...]
    unread: str = ""
    """Why it is not understood completely, in words for a person; empty if it is."""
    hidden: str = ""
    """Its invisible and bidirectional characters, spelled out; empty if it has none."""
    is_plain: bool = False
    """Whether it is made of literal words, `&&`, `||`, `;` and `|` alone."""
    ends: tuple[str, ...] = ("",)
    """The folders in which it may end."""


PieceKind = Literal["raw", "quoted", "glob", "split", "unknown"]


class Piece(NamedTuple):
    """A part of a word."""

    text: str
    kind: PieceKind
    """`raw`: outside of quotes, where characters have a meaning. `glob`: the names that match a pattern. `split`:
    what the shell splits at blanks, and matches then. `unknown`: only known when the command runs."""
    is_open: bool = False
    """Whether it is a variable without braces or quotes: with a letter after it, it is another one."""
    is_range: bool = False
    """As in `Word.is_range`."""
