"""What one simple command does, as far as its words tell: the shapes that `programs` fills and `rules` judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from holdfast.policy.simple import SimpleCommand, Word

Depth = Literal["", "shown", "visible", "unignored", "all", "links"]
UseAccess = Literal["read", "write", "tree"]


LOOKS_AT_NAMES = frozenset({
    "echo", "printf", "ls", "dir", "stat", "du", "test", "[", "[[", "basename", "dirname", "readlink", "realpath",
    "touch", "mkdir", "rmdir", "rm", "chmod", "chown", "chgrp", "cd", "pushd", "true", "false", ":", "sleep", "kill",
    "exit", "return", "export", "local", "declare", "readonly", "typeset", "set", "shift", "expr", "seq", "date",
    "read", "which", "type", "command", "((",
})  # fmt: skip
"""Programs that print or use the name of a file, and not what it contains."""


class Use(NamedTuple):
    """A file that a command uses."""

    access: UseAccess
    """`tree`: a write to it and to everything under it."""
    word: Word
    """The path. A relative one starts at the folder of the command."""
    overwrites: bool = False
    """Whether it replaces what was there, or moves it away."""
    deep: Depth = ""
    """What it reads of a folder: nothing, what lies directly in it under a name without a dot, all such files at any
    depth, what git does not ignore, all files at any depth, or also what links lead to."""
    picked: tuple[str, ...] = ()
    """Patterns of the names that it reads of a folder, in small letters; empty: every name."""
    is_target: bool = False
    """Whether it is the place to which something is moved."""
    is_listed: bool = False
    """Whether it only prints the names of what `deep` says. Another command of the text may read those files."""


class Uses(NamedTuple):
    """Everything that a simple command does, as far as its words tell."""

    files: tuple[Use, ...] = ()
    inner: tuple[SimpleCommand, ...] = ()
    """The commands that it runs, such as those of a wrapper, one step further in."""
    scripts: tuple[Word, ...] = ()
    """The texts that it gives to a shell."""
    sends: tuple[Word, ...] = ()
    """The addresses that it talks to, as URLs. `http://HOST:PORT` also names hosts of other protocols."""
    asks: str = ""
    """Why a person must look, as a sentence; empty if what it does is known, and only its files decide."""
    denies: str = ""
    """Why it never runs, as a sentence."""
    is_unknown: bool = False
    """Whether it asks only because nobody can tell what it runs or reads. A sandbox without network bounds that."""


Reader = Callable[[SimpleCommand, str], Uses]
"""Returns what a command does, from the command and the name of its program."""


NOTHING = Uses()


def merged(uses: Iterable[Uses]) -> Uses:
    """Return the sum of what several readings of one command found. The first reason counts."""
    every = [each for each in uses if each is not NOTHING and each != NOTHING]
    if len(every) < 2:
        return every[0] if every else NOTHING
    return Uses(
        files=tuple([use for each in every for use in each.files]),
        inner=tuple([command for each in every for command in each.inner]),
        scripts=tuple([word for each in every for word in each.scripts]),
        sends=tuple([word for each in every for word in each.sends]),
        asks=next((each.asks for each in every if each.asks), ""),
        denies=next((each.denies for each in every if each.denies), ""),
        is_unknown={each.is_unknown for each in every if each.asks} == {True},
    )


def unknown(why: str) -> Uses:
    """Return that nobody can tell what a command runs or reads, as a sentence."""
    return Uses(asks=why, is_unknown=True)
