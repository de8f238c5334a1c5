"""Finds the paths that a shell command names, and what it does with them.

Like `commands`, this sees only the text. It does not see what a program does with a path by itself, or what the shell
makes of variables, braces and substitutions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise, takewhile, zip_longest
from typing import NamedTuple

from holdfast.policy.commands import Command, unwrapped
from holdfast.policy.protected import Access

_WRITES_ALL = frozenset(
    {"rm", "rmdir", "unlink", "shred", "tee", "sponge", "truncate", "touch", "mkdir", "mkfifo", "mknod", "ln", "mv",
     "chmod", "chown", "chgrp", "chattr", "setfacl", "patch", "ed", "ex", "vi", "vim", "nano"}
)  # fmt: skip
_WRITES_LAST = frozenset({"cp", "install", "rsync", "scp"})
_TAKES_INTO_FOLDER = _WRITES_LAST | {"mv", "ln"}
_EDITS_IN_PLACE = {"sed": ("-i", "--in-place"), "perl": ("-i",)}
_OUTPUT_OPTIONS = ("-o", "-O", "--output", "--output-document", "--output-dir", "-t", "--target-directory")
_FOLDER_OPTIONS = {"tar": ("-C", "--directory"), "unzip": ("-d",)}
_FIND_FIRST = frozenset({"-H", "-L", "-P"})
_FIND_ACTS = frozenset({"-delete", "-exec", "-execdir", "-ok", "-okdir"})
_CHANGES_FOLDER = frozenset({"cd", "pushd"})


class Word(NamedTuple):
    """A word of a command that may be a path."""

    text: str
    access: Access
    folder: str
    """The folder in which the command may read the word, from the `cd`s before it; empty for the first folder."""


def words_of(command: Command) -> Iterator[Word]:
    """Return every word that may be a path, with its access. A word may appear several times."""
    folders = [""]
    for words in command.simple:
        plain = without_redirections(unwrapped(words))
        program, operands = (plain[0].rsplit("/", 1)[-1], plain[1:]) if plain else ("", [])
        for folder in folders:
            yield from (Word(text, "write", folder) for text in _written_by_redirection(words))
            yield from (Word(text, access, folder) for text, access in _written(program, operands))
            yield from (Word(text, "read", folder) for word in words for text in _pieces(word))
        if (
            program in _CHANGES_FOLDER and operands
        ):  # a `cd` in a subshell ends with it, so the folders before still count
            folders.append(_joined(folders[-1], operands[-1]))


def _pieces(word: str) -> set[str]:
    """Return the word and the paths it may contain: `--file=PATH`, `-fPATH`, `HOST:PATH`, `@PATH`."""
    pieces = {word, *re.split(r"[=,:@]", word)}
    if re.match(r"-[A-Za-z][^-]", word):
        pieces.add(word[2:])
    return {piece for piece in pieces if piece and not piece.startswith(("-", "<", ">", "&"))}


def _written_by_redirection(words: list[str]) -> Iterator[str]:
    for operator, target in pairwise(words):
        if is_redirection(operator) and ">" in operator and not target.isdecimal():
            yield target


def without_redirections(words: list[str]) -> list[str]:
    """Return the words of a simple command without its redirections and their targets."""
    kept: list[str] = []
    is_target = False
    for word in words:
        if is_redirection(word):
            is_target = True
        elif is_target:
            is_target = False
        else:
            kept.append(word)
    return kept


def is_redirection(word: str) -> bool:
    """Return whether the word is an operator like `>` or `&>>`."""
    return bool(word) and set(word) <= {"<", ">", "&", "|"} and bool(set(word) & {"<", ">"})


def _written(program: str, operands: list[str]) -> Iterator[tuple[str, Access]]:
    """Return what the program writes to, with `tree` if that includes everything under it."""
    files = [word for word in operands if not word.startswith("-")]
    flags = "".join(word for word in operands if re.match(r"-[^-]", word))
    is_recursive = "r" in flags.casefold() or "--recursive" in operands
    yield from ((text, "write") for text in _after(operands, _OUTPUT_OPTIONS))
    yield from ((text, "write") for text in _after(operands, _FOLDER_OPTIONS.get(program, ())))
    if program in _TAKES_INTO_FOLDER and files:
        yield from ((_joined(files[-1], text.rstrip("/").rsplit("/", 1)[-1]), "write") for text in files[:-1])
    if program == "dd":
        yield from ((word[3:], "write") for word in files if word.startswith("of="))
    elif program == "find":
        roots = takewhile(
            lambda word: word[0] not in "-(!", dropwhile(lambda word: word in _FIND_FIRST, operands)
        )
        if _FIND_ACTS.intersection(operands):
            yield from ((text, "tree") for text in list(roots) or ["."])
    elif program in _WRITES_ALL:
        access: Access = "tree" if program == "mv" or is_recursive else "write"
        yield from ((text, access) for text in files)
    elif program in _WRITES_LAST:
        yield from ((text, "tree" if "--delete" in operands else "write") for text in files[-1:])
    elif any(word.startswith(_EDITS_IN_PLACE.get(program, ("\0",))) for word in operands):
        yield from ((text, "write") for text in files)


def _after(operands: list[str], options: tuple[str, ...]) -> Iterator[str]:
    """Return the values of options: the next word, after `=`, or after a letter."""
    for word, following in zip_longest(operands, operands[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if word in options and following:
            yield following
        elif equals and name in options:
            yield value
        elif word[:2] in options and len(word) > 2:
            yield word[2:]


def _joined(folder: str, path: str) -> str:
    return path if path.startswith(("/", "~", "$")) or not folder else f"{folder}/{path}"
