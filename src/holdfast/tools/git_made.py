"""Tells what git itself makes, and runs nothing from, from what would make it run something.

`aside` puts aside what is new at controlling places. Here is what may stay: new repositories, clones, submodules and
worktrees as git makes them, and its notes about what it goes on with.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress

from holdfast.opening import UNFOLLOWED, by
from holdfast.tools.git_config import is_harmless

_PASSING = ("rebase-apply", "info")
"""Folders that git itself makes and removes in its own, and runs nothing from."""
_NOTED = ("rebase-merge", "sequencer")
"""Folders in which git notes what it goes on with."""
_OLD = ("branches", "remotes")
"""Folders with addresses of servers, one in a file. Git makes them, and no longer writes there."""
_OF_OTHERS = ("modules", "worktrees")
"""Folders with git folders of their own."""
_OBJECTS = "objects"
_PATTERNS = ("exclude", "sparse-checkout")
"""Files with names of files, which git makes."""
_TODO = ("git-rebase-todo", "git-rebase-todo.backup", "todo")
_STEPS = frozenset(
    b"pick p reword r edit e squash s fixup f drop d break b label l reset t merge m update-ref u noop revert".split()
)
"""The lines of a list of git that run no command."""
_STRATEGIES = frozenset({b"", b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"})
"""Those that git has. It runs a program with the name of any other one."""
_OPTION = re.compile(
    rb"\[options\]|\tstrategy = (?:ort|recursive|resolve|octopus|ours|subtree)|\t(?!strategy )[a-z-]+ = [\w.:/+-]*"
)
"""A line of the options with which git goes on, as git writes it, that runs no program."""
_OF_REPOSITORY = re.compile(r"(/.*?/\.git)/(?:modules|worktrees)/.+")
_LIST_BYTES = 1 << 20
_CONFIG_BYTES = 1 << 18


def unwanted(path: str, places: Collection[str]) -> Iterator[str]:
    """Yield what must not stay of something new at a controlling place: all of it, parts of it, or nothing.

    Args:
        path: Where it lies.
        places: All controlling places, which are looked at together.
    """
    name = os.path.basename(path)
    try:
        if name in (*_PASSING, *_NOTED, *_OLD, *_OF_OTHERS, _OBJECTS) and not _is_folder(path):
            yield path
        elif name in _NOTED:
            yield from _running(path)
        elif name in _OF_OTHERS:
            os.listdir(path)
        elif name not in (*_PASSING, _OBJECTS) and not _is_made_by_git(path, name, places):
            yield path
    except OSError:  # a program closed it, so that nobody can tell
        yield path


def is_loose(path: str) -> bool:
    """Return whether git runs nothing from a folder in its own now, and must be able to change it: its notes, and
    empty folders. These are looked at again when a command has ended.
    """
    name = os.path.basename(path)
    if name not in (*_NOTED, *_OLD, "rebase-apply"):
        return False
    with suppress(OSError):
        return _is_folder(path) and not [*unwanted(path, ())]
    return False


def _is_made_by_git(path: str, name: str, places: Collection[str]) -> bool:
    """Return whether it is what git makes in each new repository, clone, submodule or worktree."""
    if name == "hooks":
        return all(
            each.endswith(".sample") and _is_plain(f"{path}/{each}")
            for each in (os.listdir(path) if _is_folder(path) else [""])
        )
    if name in _OLD:
        return not os.listdir(path)
    if name in ("config", "config.worktree"):
        text = content(path, b"?")
        return len(text) < _CONFIG_BYTES and is_harmless(path, text.decode(errors="surrogateescape"))
    if name in _PATTERNS:
        return _is_plain(path)
    if name == "alternates":
        return _is_borrowing_here(path, places)
    if name in ("commondir", "gitdir"):
        return _is_of_worktree(path, name, places)
    return name == ".git" and _leads_to_git_folder(path, places)


def _is_borrowing_here(path: str, places: Collection[str]) -> bool:
    """Return whether it is as `git clone --shared` makes it: it names objects of repositories that are looked at."""
    lines = content(path, b"").removesuffix(b"\n").split(b"\n")
    folders = [os.path.split(os.fsdecode(line)) for line in lines]
    return all(
        name == _OBJECTS and f"{folder}/config" in places and os.path.realpath(folder) == folder
        for folder, name in folders
    )


def _is_of_worktree(path: str, name: str, places: Collection[str]) -> bool:
    """Return whether it is what git has of a worktree, which uses the configuration of its repository."""
    listed = os.path.dirname(os.path.dirname(path))
    repository, kind = os.path.split(listed)
    if kind != "worktrees" or f"{repository}/config" not in places:
        return False
    text = content(path, b"")
    if name == "gitdir":
        return text.endswith(b"/.git\n") and text.count(b"\n") == 1
    return text == b"../..\n"


def _leads_to_git_folder(path: str, places: Collection[str]) -> bool:
    """Return whether it is the `.git` of a worktree or a submodule, and all that controls git there is looked at."""
    told = content(path, b"")
    named = os.fsdecode(told.removeprefix(b"gitdir: ").removesuffix(b"\n"))
    below = re.sub(r"\A(?:\.\./)+", "", named)
    if not told.startswith(b"gitdir: ") or os.path.normpath(below) != below or below.startswith(".."):
        return False
    folder = os.path.normpath(os.path.join(os.path.dirname(path), named))
    return (
        _OF_REPOSITORY.fullmatch(folder) is not None
        and f"{folder}/config" in places
        and os.path.realpath(folder) == folder
    )


def _running(folder: str) -> Iterator[str]:
    """Yield the notes of git with which it would run a program when a person continues. Without them, a person can
    still abort.
    """
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if not _is_harmless_note(path, name):
            yield path


def _is_harmless_note(path: str, name: str) -> bool:
    """Return whether git runs no program because of a note."""
    if name in _TODO:
        return all(map(_is_step, content(path, b"exec").split(b"\n")))
    if name == "opts":
        return all(map(_OPTION.fullmatch, content(path, b"?").removesuffix(b"\n").split(b"\n")))
    if name == "strategy":
        return content(path, b"?").strip() in _STRATEGIES
    return _is_plain(path) or _is_folder(path)


def _is_step(line: bytes) -> bool:
    words = line.split(maxsplit=1)
    return not words or words[0].startswith(b"#") or words[0] in _STEPS


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_plain(path: str) -> bool:
    """Return whether it is a file, and no pipe or link, which have in them what somebody writes later."""
    return stat.S_ISREG(os.lstat(path).st_mode)


def content(path: str, otherwise: bytes) -> bytes:
    """Return what a short file has in it; `otherwise` if it is long, no file, or cannot be read, or has another name,
    by which it may be changed.
    """
    with suppress(OSError):
        with open(path, "rb", opener=by(UNFOLLOWED)) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                return otherwise
            found = file.read(_LIST_BYTES + 1)
        return found if len(found) <= _LIST_BYTES else otherwise
    return otherwise
