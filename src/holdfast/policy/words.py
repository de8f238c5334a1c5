"""Finds the paths that a shell command names, and what it does with them.

A program of the table says which of its words are files. For every other word, it is enough that it may be one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile, zip_longest
from typing import NamedTuple

from holdfast.policy.commands import Command, Step, pieces_of, program_of, texts_of
from holdfast.policy.mentions import mentioned, takers
from holdfast.policy.programs import uses_of
from holdfast.policy.programs_options import HARMLESS_DEVICES
from holdfast.policy.protected import Access
from holdfast.policy.simple import OWN_PIPE, Found, SimpleCommand
from holdfast.policy.uses import Depth

_GUESSED_WRITES = frozenset(
    {"patch", "ed", "ex", "vi", "vim", "nvim", "nano", "emacs", "truncate", "shred", "sponge", "chmod", "chown",
     "chgrp", "chattr", "setfacl", "mkfifo", "mknod", "unlink", "gzip", "gunzip", "bzip2", "xz", "zip"}
)  # fmt: skip
_GUESSED_LAST = frozenset({"rsync", "scp", "install", "cp", "mv", "ln"})
_OUTPUT_OPTIONS = ("-o", "-O", "--output", "--output-document", "--output-dir", "-t", "--target-directory")
_FOLDER_OPTIONS = {"tar": ("-C", "--directory"), "unzip": ("-d",)}
_WORD = re.compile(r"\w+")
_DOTS = frozenset({"dotglob", "GLOBIGNORE", "globdots", "glob_dots"})
"""Options and variables of shells that let wildcards match a leading dot."""
_SETTERS = frozenset({"shopt", "setopt"})
_DEEP_SHELLS = frozenset({"zsh", "fish", "ksh"})
"""Shells in which `**` also stands for folders at any depth."""
_WILDER = re.compile("|".join([*_DOTS, "globstar"]))
_WILDER_PROGRAMS = _SETTERS | _DEEP_SHELLS
"""With none of these words and programs, wildcards match as usual."""
_UNKNOWN_PART = re.compile(r"\$(?:\([^)]*\)|\{[^}]*\}|\w+|[@*#?$!-])|`[^`]*`|\{\}")


class PathWord(NamedTuple):
    """A word of a command that may be a path."""

    text: str
    access: Access = "read"
    folder: str = ""
    """The folder in which the command may read the word, from the `cd`s before it; empty for the first folder."""
    is_glob: bool = False
    """Whether the shell replaces it by the names that match."""
    is_used: bool = False
    """Whether the command uses it for certain: the table of programs says so, or a redirection does."""
    is_sure: bool = True
    """Whether its text and its folder are known."""
    replaces: bool = False
    """Whether what was there before is lost."""
    deep: Depth = ""
    """What the command reads below it."""
    picked: tuple[str, ...] = ()
    """As in `Use.picked`."""
    is_target: bool = False
    """As in `Use.is_target`."""
    has_dots: bool = False
    """Whether its wildcards also match a leading dot."""
    found: Found | None = None
    """As in `Word.found`."""
    led: str | None = None
    """The folder in which the command reads the word if every `cd` before it works; None if that is not known."""


def words_of(command: Command) -> Iterator[PathWord]:
    """Return every word that may be a path, with its access. A word may appear several times."""
    # Without pipelines nobody reads what another command prints.
    is_piped = any([step.command.pipes for step in command.simple])  # noqa: C419 - a generator takes longer
    named, run = takers(command.simple) if is_piped else (set[int](), set[int]())
    is_lost = False in [step.command.is_folder_known for step in command.simple]
    everywhere = _folders(command) if is_lost else ()
    wild = _wild(command)
    follows_links = "links" in [use.deep for step in command.simple for use in step.uses.files]
    seen: set[PathWord] = set()
    for step in command.simple:
        simple, uses = step.command, step.uses
        found = [*_used(step, is_listed=not named.isdisjoint(simple.pipes))]
        if follows_links and program_of(simple) == "ln":
            found += [word._replace(deep="all") for word in found if word.access == "tree"]
        found += [
            PathWord(text, access) for text, access in mentioned(step, not run.isdisjoint(simple.pipes))
        ]
        if uses.asks or uses.inner or uses.scripts or uses.denies or not simple.is_folder_known:
            found += [PathWord(text, access) for text, access in _guessed(step)]
            texts = {piece for text in texts_of(simple) for piece in pieces_of(text)}
            globs = {word.text for word in simple.words if word.is_glob}
            found += [PathWord(text, is_glob=text in globs) for text in sorted(texts) if text[:1] != "-"]
            found += [PathWord(text, is_glob=True) for text in _half_known(simple)]
        if wild is not None:
            found += [*_wilder(found, wild)]
        folders = simple.folders
        if not simple.is_folder_known:
            folders, found = everywhere, [word for word in dict.fromkeys(found) if word not in seen]
            seen.update(found)
        if folders == ("",):
            yield from found
        else:
            led = folders[0] if simple.is_folder_known else None
            yield from (word._replace(folder=folder, led=led) for folder in folders for word in found)


def _folders(command: Command) -> tuple[str, ...]:
    """Return every folder that the text names as one in which it runs something."""
    found = dict.fromkeys(folder for step in command.simple for folder in step.command.folders)
    for step in command.simple:
        if program_of(step.command) in ("cd", "pushd"):
            named = [word.text for word in step.command.words[1:] if word.text[:1] != "-"]
            found |= dict.fromkeys(
                posixpath.join(each, text) for each in step.command.folders for text in named
            )
    return tuple(found) or ("",)


def _wild(command: Command) -> Depth | None:
    """Return how wildcards match more than usually: also names with a leading dot, in folders below, or both."""
    text, names = command.text, {program_of(step.command) for step in command.simple}
    if not _WILDER.search(text) and names.isdisjoint(_WILDER_PROGRAMS):
        return None
    has_dots = True in [word in text for word in _DOTS] and not _DOTS.isdisjoint(_WORD.findall(text))
    if not (has_dots or names.isdisjoint(_SETTERS)):
        has_dots = any(
            program_of(step.command) in _SETTERS and not all(word.is_known for word in step.command.words)
            for step in command.simple
        )
    is_deep = "globstar" in text or not _DEEP_SHELLS.isdisjoint(names)
    if has_dots:
        return "all" if is_deep else ""
    return "visible" if is_deep else None


def _wilder(words: Sequence[PathWord], wild: Depth) -> Iterator[PathWord]:
    for word in words:
        if word.is_glob and wild != "visible":
            yield word._replace(has_dots=True)
        before, stars, after = word.text.partition("**")
        if word.is_glob and stars and wild:
            last = after.rpartition("/")[2].casefold()
            picked = (last,) if last.strip("*") else ()
            yield PathWord(posixpath.dirname(before) or ".", deep=wild, picked=picked)


def _half_known(command: SimpleCommand) -> Iterator[str]:
    """Return patterns for words of which a part is only known when the command runs, if the rest says enough."""
    for word in command.words:
        if not word.is_known:
            pattern = _UNKNOWN_PART.sub("*", word.text)
            name = pattern.rpartition("/")[2]
            if pattern != word.text and (name[:1] == "." or "*." in name):
                yield pattern


def _used(step: Step, *, is_listed: bool) -> Iterator[PathWord]:
    is_known = step.command.is_folder_known
    for use in step.uses.files:
        word = use.word
        if word.text == OWN_PIPE:
            continue
        is_sure = (word.is_known or word.found is not None) and (is_known or word.text.startswith("/"))
        more = (
            "" if use.is_listed and not is_listed else use.deep,
            use.picked,
            use.is_target,
            False,
            word.found,
        )
        yield PathWord(word.text, use.access, "", word.is_glob, True, is_sure, use.overwrites, *more)
    for operator, word in step.command.redirections:
        if operator.startswith("<<") or word.text in HARMLESS_DEVICES or word.text == OWN_PIPE:
            continue
        access: Access = "write" if ">" in operator else "read"
        is_sure = word.is_known and (is_known or word.text.startswith("/"))
        replaces = access == "write" and ">>" not in operator
        yield PathWord(word.text, access, "", word.is_glob, True, is_sure, replaces)


def _guessed(step: Step) -> Iterator[tuple[str, Access]]:
    """Return what a program may write that the table does not read; `tree`: with everything under it."""
    program, operands = program_of(step.command), [word.text for word in step.command.words[1:]]
    files = [word for word in operands if not word.startswith("-")]
    flags = "".join(word for word in operands if re.match(r"-[^-]", word))
    is_recursive = "r" in flags.casefold() or "--recursive" in operands or "--delete" in operands
    access: Access = "tree" if is_recursive or program == "mv" else "write"
    yield from ((text, "write") for text in _after(operands, _OUTPUT_OPTIONS))
    yield from ((text, "write") for text in _after(operands, _FOLDER_OPTIONS.get(program, ())))
    if program in _GUESSED_WRITES:
        yield from ((text, access) for text in files)
    elif program in _GUESSED_LAST and all(use.access == "read" for use in step.uses.files):
        yield from ((text, access) for text in files[-1:])
    elif program == "find" and any(map(_may_write, step.uses.inner)):
        yield from ((text, "tree") for text in _roots(operands))
    elif program == "dd":
        yield from ((word[3:], "write") for word in files if word.startswith("of="))


def _may_write(command: SimpleCommand) -> bool:
    uses = uses_of(command)
    return bool(uses.inner or uses.scripts or uses.asks) or any(use.access != "read" for use in uses.files)


def _roots(operands: Sequence[str]) -> list[str]:
    """Return the folders in which `find` begins."""
    after = dropwhile(lambda word: word in ("-H", "-L", "-P"), operands)
    return [*takewhile(lambda word: word[:1] not in ("-", "(", "!"), after)] or ["."]


def _after(operands: Sequence[str], options: tuple[str, ...]) -> Iterator[str]:
    """Return the values of options: the next word, after `=`, or after a letter."""
    for word, following in zip_longest(operands, operands[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if word in options and following:
            yield following
        elif equals and name in options:
            yield value
        elif word[:2] in options and len(word) > 2:
            yield word[2:]
