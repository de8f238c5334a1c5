"""Finds where the words of commands lead, and whether what a command uses lies in the workspace for certain."""

# Pathlib resolves `..` before links, which a shell does not.
# ruff: noqa: PTH111, PTH116, PTH118

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from holdfast.policy.paths import is_inside, malformed, secret_rule
from holdfast.policy.protected import WILDCARDS, fits_wildcards
from holdfast.policy.rules import PathFact
from holdfast.policy.words import PathWord
from holdfast.tools.own import OwnPlaces

MAX_ENTRIES = 20_000
"""How many names of folders are compared with the wildcards of a call."""
_WILD = ("*", "?", "[")
_SECRET_EXAMPLES = (".env",)
"""Names that a wildcard after a dot may be meant for, also where no such file exists yet."""


class WordFacts:
    """What the words of a call's commands lead to."""

    def __init__(self, workspace: str, own: OwnPlaces) -> None:
        self.paths: list[PathFact] = []
        self.unproved = ""
        """The first file that is used and may lie outside of the workspace, or may be lost, as a sentence."""
        self.outside = ""
        """The first file that is used for certain and lies outside of the workspace."""
        self.unread = ""
        """Why not everything was looked at."""
        self._workspace = workspace
        self._own = own
        self._entries = MAX_ENTRIES

    def look_at(self, words: Collection[PathWord]) -> None:
        """Find the targets of the words. A word that names nothing has no fact, unless the command would write it."""
        identities = self._own.identities() if words else {}
        for word in words:
            path = self._path_of(word)
            if malformed(path):
                self._doubt(word, "is not a path")
                continue
            stem, wild = _cut_at_wildcards(path) if word.is_glob else (path, [])
            real, is_there = self._real(stem)
            if not is_there and word.access == "read" and not self._own.by_path(real):
                if word.is_used:
                    self._prove(word, real, wild, is_there=False)
                continue
            part = self._own.find(real, identities) or self._own.matched(
                real, wild, is_tree=word.access == "tree"
            )
            self.paths.append(PathFact(word.text, os.path.join(real, *wild), "", word.access, part))
            if wild:
                self._expand(word, real, wild)
            if word.is_used:
                self._prove(word, real, wild, is_there=is_there)
            if word.deep:
                for folder in self._matching(real, wild) if wild else (real,):
                    self._look_below(word, folder)

    def _look_below(self, word: PathWord, folder: str) -> None:
        """Look for secrets below a folder that a command searches. It follows no links there."""
        folders = [folder]
        while folders:
            for entry in self._entries_of(folders.pop()):
                if entry.name == ".git" or (word.deep == "visible" and entry.name.startswith(".")):
                    continue
                if secret_rule(entry.path) and not entry.is_symlink():
                    given = f"{word.text} (with {os.path.relpath(entry.path, self._workspace)})"
                    self.paths.append(PathFact(given, entry.path, "", "read"))
                    return
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)

    def _path_of(self, word: PathWord) -> str:
        """Return the path of a word, from the root of the disk."""
        text, folder = word.text, word.folder
        if text[:1] == "~":
            text = os.path.expanduser(text)
        if text[:1] == "/":
            return text
        if folder:
            return os.path.join(self._workspace, os.path.expanduser(folder), text)
        return f"{self._workspace}/{text}"

    def _real(self, path: str) -> tuple[str, bool]:
        """Return a path with every link followed, and whether there is such a file.

        The workspace has no links in its own path. So a path of it is known after one look at each name below.
        """
        known = f"{self._workspace}/"
        names = path[len(known) :].split("/")
        if path.startswith(known) and ".." not in names:
            here = self._workspace
            for name in names:
                if name in ("", "."):
                    continue
                here = f"{here}/{name}"
                try:
                    found = os.lstat(here)
                except OSError:
                    return os.path.normpath(path), False
                if stat.S_ISLNK(found.st_mode):
                    break
            else:
                return here, True
        if os.path.lexists(path):
            return os.path.realpath(path), True
        return os.path.realpath(
            os.path.normpath(path)
        ), False  # the command itself may make a folder on the way

    def _doubt(self, word: PathWord, why: str) -> None:
        if word.is_used and not self.unproved:
            self.unproved = f"{word.text[:80]} {why}."

    def _prove(self, word: PathWord, real: str, wild: Sequence[str], *, is_there: bool) -> None:
        """Note a file that is not in the workspace for certain, or whose content would be lost."""
        if not word.is_sure:
            self._doubt(word, "is known only when the command runs")
        elif not is_inside(self._workspace, real):
            self.outside = self.outside or word.text[:80]
        elif word.access != "read" and "/-" in f"/{word.text}":
            self._doubt(word, "has a name that programs take for an option")
        elif word.access != "read" and (wild or word.access == "tree"):
            self._doubt(word, "stands for several files that would change")
        elif word.replaces and is_there and _has_content(real):
            self._doubt(word, "exists already, and its content would be lost")

    def _expand(self, word: PathWord, real: str, wild: Sequence[str]) -> None:
        """Look at the files that a name with wildcards stands for."""
        last = wild[-1]
        if any(fits_wildcards(name, last) for name in _SECRET_EXAMPLES) and last.strip(".*?") != "":
            self.paths.append(PathFact(word.text, os.path.join(real, _SECRET_EXAMPLES[0]), "", "read"))
        for path in self._matching(real, wild):
            if word.text.startswith(_WILD) and path[len(real) :].lstrip("/").startswith("-"):
                self._doubt(word, "matches a name that programs take for an option")
            target = os.path.realpath(path)
            if not is_inside(self._workspace, target):
                self._doubt(word, "matches a link that leads out of the workspace")
            if secret_rule(path) or secret_rule(target):
                self.paths.append(
                    PathFact(word.text, target if secret_rule(target) else path, "", word.access)
                )

    def _matching(self, folder: str, wild: Sequence[str]) -> Iterator[str]:
        """Return the paths that match, as far as the bound on names allows."""
        folders = [folder]
        for depth, pattern in enumerate(wild):
            found: list[str] = []
            for each in folders:
                for entry in self._entries_of(each):
                    if entry.name == pattern or _matches(entry.name, pattern):
                        found.append(os.path.join(each, entry.name))
            folders = found
            if depth + 1 == len(wild):
                yield from found

    def _entries_of(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if self._entries <= 0:
                        self.unread = "it looks at too many names"
                        return
                    self._entries -= 1
                    yield entry
        except OSError:
            return


def _matches(name: str, pattern: str) -> bool:
    return (not name.startswith(".") or pattern.startswith(".")) and fnmatchcase(name, pattern)


def _has_content(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def _cut_at_wildcards(path: str) -> tuple[str, list[str]]:
    """Return the folder before the first wildcard, and the names after it with `..` resolved."""
    names = path.split("/")
    if not WILDCARDS.isdisjoint(path):
        names = os.path.normpath(path).split("/")
    first = next((at for at, name in enumerate(names) if not WILDCARDS.isdisjoint(name)), len(names))
    return "/".join(names[:first]) or "/", names[first:]
