"""Finds where the words of commands lead, and whether what a command uses lies in the workspace for certain."""

# Pathlib resolves `..` before links, which a shell does not.
# ruff: noqa: PTH111, PTH116, PTH118, PTH120

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from holdfast.policy.paths import is_inside, is_kernel_path, is_within, malformed, secret_rule
from holdfast.policy.protected import WILDCARDS, fits_wildcards, is_matched
from holdfast.policy.rules import PathFact
from holdfast.policy.simple import Found
from holdfast.policy.uses import Depth
from holdfast.policy.words import PathWord
from holdfast.redact import begin_of
from holdfast.tools.git_folders import place_in_git
from holdfast.tools.ignored import IGNORES, is_ignored, is_tracked
from holdfast.tools.ours import IsOurs, nothing_is_ours
from holdfast.tools.own import OwnPlaces, look_at

MAX_ENTRIES = 20_000
"""How many names of folders are compared with the wildcards of a call, and how many are looked at below one folder
that a program searches.
"""
MAX_FOUND = 5 * MAX_ENTRIES
"""How many names of all such folders are looked at."""
GLANCE_ENTRIES = 1_000
"""How many names are looked at while everything else waits."""
_ONE_WORD = re.compile(r"[!#-&(-\[\]-~]*")
"""What `xargs` takes as it is: no blank, no quote and no backslash."""
_WILD = ("*", "?", "[")
_SECRET_EXAMPLES = (".env",)
"""Names that a wildcard after a dot may be meant for, also where no such file exists yet."""


class LooksLong(Exception):
    """More names were to be looked at than the caller wanted to wait for."""


class WordFacts:
    """What the words of a call's commands lead to.

    Args:
        workspace: The folder in which the commands begin, with every link followed.
        own: Holdfast's own places.
        is_ours: Whether a file is as a file tool wrote it.
        glance: After how many names `look_at` raises `LooksLong`; None: never.
        readable: What else commands may read in their sandbox, with every link followed.
        writable: What else they may read and change there.
    """

    def __init__(
        self,
        workspace: str,
        own: OwnPlaces,
        is_ours: IsOurs = nothing_is_ours,
        glance: int | None = None,
        readable: Collection[str] = (),
        writable: Collection[str] = (),
    ) -> None:
        self.paths: list[PathFact] = []
        self.unproved = ""
        """The first file that is used and may lie outside of the workspace, or may be lost, as a sentence."""
        self.risk = ""
        """The same, for what a sandbox without network does not bound: a file that may be lost, or a secret."""
        self.outside = ""
        """The first file that is used for certain and lies outside of the workspace."""
        self.unread = ""
        """Why not everything was looked at."""
        self._workspace = workspace
        self._top = f"{workspace.rstrip('/')}/"
        self._own = own
        self._writable = (workspace, *writable)
        self._readable = (*self._writable, *readable)
        self._entries = MAX_ENTRIES
        self._found = MAX_FOUND
        self._glance = glance
        self._looks: dict[str, os.stat_result | None] = {}
        self._is_ours = is_ours
        self._keeps_ignoring = True
        """Whether the call leaves alone what says which files git ignores."""
        self._words: Collection[PathWord] = ()
        self._written: frozenset[str] | None = None

    def look_at(self, words: Collection[PathWord]) -> None:
        """Find the targets of the words. A word that names nothing has no fact, unless the command would write it."""
        self._words, self._written = words, None
        identities = self._own.identities() if words else {}
        self._keeps_ignoring = not any(word.access != "read" and _may_be_ignores(word) for word in words)
        makes = next((word.text for word in words if _makes_strange(word)), "")
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
            part = self._own.find(real, identities, self._workspace, self._look)
            is_tree = word.access == "tree"
            if not part and (wild or is_tree):
                part = self._own.matched(real, wild, is_tree=is_tree)
            whole = os.path.join(real, *wild)
            in_git = place_in_git(whole, self._workspace) if word.access != "read" else ""
            self.paths.append(PathFact(word.text, whole, "", word.access, part, in_git))
            if wild:
                self._expand(word, real, wild)
            if word.is_used:
                self._prove(word, real, wild, is_there=is_there)
            if word.found:
                self._prove_found(word, word.found, real, makes)
            if word.deep:
                for folder in self._matching(word, real, wild) if wild else (real,):
                    self._look_below(word, folder)

    def _look_below(self, word: PathWord, folder: str) -> None:
        """Look for secrets below a folder that a command searches. It follows links only if the command does."""
        folders, seen = [folder], {folder}
        while folders:
            for entry in self._entries_of(folders.pop()):
                path, is_link = entry.path, entry.is_symlink()
                is_folder = entry.is_dir(follow_symlinks=word.deep == "links")
                if self._is_left_out(word.deep, entry, is_folder=is_folder):
                    continue
                if is_link and word.deep == "links":
                    self._doubt(word, "has a link in it, which the program follows", is_bounded=True)
                    path, is_link = os.path.realpath(path), False
                is_read = not (word.picked and is_folder) and _is_picked(entry.name, word.picked)
                if is_read and not is_link and (secret_rule(entry.path) or secret_rule(path)):
                    if word.deep == "unignored" and is_tracked(path, self._workspace):
                        continue
                    given = f"{word.text} (with {os.path.relpath(entry.path, self._workspace)})"
                    self.paths.append(PathFact(given, path if secret_rule(path) else entry.path, "", "read"))
                    return
                if is_folder and word.deep != "shown" and path not in seen:
                    seen.add(path)
                    folders.append(path)

    def _is_left_out(self, deep: Depth, entry: os.DirEntry[str], *, is_folder: bool) -> bool:
        """Return whether a command does not read a name of a folder."""
        if entry.name == ".git":
            return True
        if deep == "unignored":
            return self._keeps_ignoring and is_ignored(entry.path, self._workspace, is_folder=is_folder)
        return deep in ("shown", "visible") and entry.name.startswith(".")

    def _prove_found(self, word: PathWord, found: Found, folder: str, makes: str) -> None:
        """Note what a program may find and hand on that is a secret, a link, or a name that becomes several words."""
        if makes:
            self._doubt(
                word, f"may have what the command itself makes ({begin_of(makes, 80)})", is_bounded=True
            )
        if self.unproved:
            self.risk = (
                self.risk or f"{begin_of(word.text, 80)} may have a secret file in it, which may be found."
            )
        below = self._below(word, folder) if not self.unproved else ()
        for count, entry in enumerate(below):
            if count >= MAX_ENTRIES or self._found <= 0:
                self._doubt(word, "has too many files in it")
                return
            self._found -= 1
            if found.is_bare and entry.path[len(folder.rstrip("/")) :].startswith("/-"):
                self._doubt(word, "has a name in it that programs take for an option")
            if not (word.deep or _is_picked(entry.name, found.names)):
                continue
            if found.may_be_link and entry.is_symlink():
                self._doubt(word, "has a link in it, which may be followed", is_bounded=True)
            elif secret_rule(entry.path):
                self._doubt(word, "has a secret file in it, which may be found")
            elif found.is_split and not _ONE_WORD.fullmatch(word.text + entry.path[len(folder) :]):
                self._doubt(word, "has a name in it that `xargs` takes for several words")

    def _path_of(self, word: PathWord) -> str:
        """Return the path of a word, from the root of the disk."""
        text, folder = word.text, word.folder
        if text[:1] == "~":
            text = os.path.expanduser(text)
        if text[:1] == "/":
            return text
        if folder:
            return os.path.join(self._workspace, os.path.expanduser(folder), text)
        return f"{self._top}{text}"

    def _real(self, path: str) -> tuple[str, bool]:
        """Return a path with every link followed, and whether there is such a file.

        The workspace has no links in its own path. So a path of it is known after one look at each name below.
        """
        known = self._top
        names = path[len(known) :].split("/")
        if path.startswith(known) and ".." not in names:
            here = self._workspace
            for name in names:
                if name in ("", "."):
                    continue
                here = f"{here.rstrip('/')}/{name}"
                found = self._look(here)
                if found is None:
                    return os.path.normpath(path), False
                if stat.S_ISLNK(found.st_mode):
                    break
            else:
                return here, True
        if os.path.lexists(path):
            return os.path.realpath(path), True
        return os.path.realpath(path), False

    def _look(self, path: str) -> os.stat_result | None:
        """Look at a path, once for all words."""
        if path not in self._looks:
            self._looks[path] = look_at(path)
        return self._looks[path]

    def _doubt(self, word: PathWord, why: str, *, is_bounded: bool = False) -> None:
        """Note why a word is not proved harmless, and whether a sandbox bounds that if the word is only read."""
        if not word.is_used or self.risk:
            return
        told = f"{begin_of(word.text, 80)} {why}."
        self.unproved = self.unproved or told
        if not is_bounded or word.access != "read":
            self.risk = told

    def _prove(self, word: PathWord, real: str, wild: Sequence[str], *, is_there: bool) -> None:
        """Note a file that is not in the workspace for certain, or whose content would be lost."""
        if not word.is_sure:
            self._doubt(word, "is known only when the command runs", is_bounded=True)
        elif not self._is_shown(word, real):
            if self._is_led_inside(word):
                self._doubt(word, "is outside of the workspace if a `cd` before it fails", is_bounded=True)
            else:
                self.outside = self.outside or begin_of(word.text, 80)
        elif word.access != "read" and "/-" in f"/{word.text}":
            self._doubt(word, "has a name that programs take for an option")
        elif word.access != "read" and (wild or (word.access == "tree" and not self._is_one(word, real))):
            self._doubt(word, "stands for several files that would change" if wild else self._lost_with(real))
        elif word.replaces and is_there and _has_content(real) and not self._is_ours(real):
            self._doubt(word, "exists already, and its content would be lost")

    def _is_shown(self, word: PathWord, real: str) -> bool:
        """Return whether a path lies where the command may read, or change what it changes."""
        return is_within(self._readable if word.access == "read" else self._writable, real)

    def _is_led_inside(self, word: PathWord) -> bool:
        """Return whether a word leads to something in the workspace if every `cd` before it works. It is there, or
        the call itself makes it. No link lies on the way, and no file.
        """
        if word.led in (None, word.folder) or word.text[:1] in ("/", "~"):
            return False
        folder = os.path.join(self._workspace, word.led or "", "")
        if not folder.startswith(self._top) or folder[len(self._top) :].startswith("~"):
            return False
        here = self._workspace
        for name in folder[len(self._top) :].split("/"):
            here = os.path.normpath(os.path.join(here, name))
            found = self._look(here)
            if not is_inside(self._workspace, here) or (found and not stat.S_ISDIR(found.st_mode)):
                return False
        stem, _ = _cut_at_wildcards(folder + word.text)
        real, _ = self._real(stem)
        if not is_inside(self._workspace, real):
            return False
        needed = real if word.access == "read" or real == self._workspace else os.path.dirname(real)
        return self._look(needed) is not None or needed in self._written_by_call()

    def _written_by_call(self) -> frozenset[str]:
        """Return the paths that the call writes."""
        if self._written is None:
            written = [word for word in self._words if word.is_used and word.access != "read"]
            self._written = frozenset(os.path.normpath(self._path_of(word)) for word in written)
        return self._written

    def _lost_with(self, real: str) -> str:
        """Return what a move or a deletion of a path would change."""
        found = self._look(real)
        if found is None:
            return "is not there yet"
        return "is a folder" if stat.S_ISDIR(found.st_mode) else "is a file that no file tool wrote"

    def _is_one(self, word: PathWord, real: str) -> bool:
        """Return whether a move changes no more than one file, which a file tool wrote: what is moved, or its place.
        A folder stays where something is moved into it.
        """
        found = self._look(real)
        if word.is_target and (found is None or stat.S_ISDIR(found.st_mode)):
            return True
        is_named = os.path.normpath(self._path_of(word)) == real
        return word.replaces and is_named and self._is_ours(real)

    def _expand(self, word: PathWord, real: str, wild: Sequence[str]) -> None:
        """Look at the files that a name with wildcards stands for."""
        last = wild[-1]
        if any(fits_wildcards(name, last) for name in _SECRET_EXAMPLES) and last.strip(".*?") != "":
            self.paths.append(PathFact(word.text, os.path.join(real, _SECRET_EXAMPLES[0]), "", "read"))
        for path in self._matching(word, real, wild):
            if word.text.startswith(_WILD) and path[len(real) :].lstrip("/").startswith("-"):
                self._doubt(word, "matches a name that programs take for an option")
            target = os.path.realpath(path)
            if not self._is_shown(word, target):
                self._doubt(word, "matches a link that leads out of the workspace", is_bounded=True)
            if secret_rule(path) or secret_rule(target):
                self.paths.append(
                    PathFact(word.text, target if secret_rule(target) else path, "", word.access)
                )

    def _matching(self, word: PathWord, folder: str, wild: Sequence[str]) -> Iterator[str]:
        """Return the paths that match, as far as the bound on names allows."""
        folders = [folder]
        for depth, pattern in enumerate(wild):
            found: list[str] = []
            for each in folders:
                for entry in self._entries_of(each):
                    name = entry.name.lstrip(".") if word.has_dots and pattern[:1] != "." else entry.name
                    if entry.name == pattern or is_matched(name, pattern):
                        found.append(os.path.join(each, entry.name))
            folders = found
            if depth + 1 == len(wild):
                yield from found

    def _below(self, word: PathWord, folder: str) -> Iterator[os.DirEntry[str]]:
        """Return everything under a folder, without following links."""
        folders = [folder]
        while folders:
            here = folders.pop()
            if is_kernel_path(here, self._workspace):
                self._doubt(word, f"leads into {here}")
                continue
            try:
                with os.scandir(here) as entries:
                    for entry in entries:
                        self._count_glance()
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        yield entry
            except OSError:
                continue

    def _count_glance(self) -> None:
        if self._glance is not None:
            if self._glance <= 0:
                raise LooksLong
            self._glance -= 1

    def _entries_of(self, folder: str) -> Iterator[os.DirEntry[str]]:
        if is_kernel_path(folder, self._workspace):
            self.unread = self.unread or f"it looks into {folder}"
            return
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._count_glance()
                    if self._entries <= 0:
                        self.unread = "it looks at too many names"
                        return
                    self._entries -= 1
                    yield entry
        except OSError:
            return


def _may_be_ignores(word: PathWord) -> bool:
    name = os.path.basename(word.text)  # noqa: PTH119
    return name == IGNORES or (word.is_glob and is_matched(IGNORES, name))


def _makes_strange(word: PathWord) -> bool:
    """Return whether a word is written that may become a link, or a name that is split into several words."""
    if not word.is_used or word.access == "read":
        return False
    return word.access == "tree" or not _ONE_WORD.fullmatch(word.text)


def _is_picked(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name.casefold(), pattern) for pattern in patterns)


def _has_content(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def _cut_at_wildcards(path: str) -> tuple[str, list[str]]:
    """Return the folder before the first wildcard, and the names after it with `..` resolved."""
    names = path.split("/")
    first = _first_wild(names)
    if first < len(names):
        head = "/".join(names[:first])
        if ".." in names[:first]:
            head = os.path.realpath(head)  # after a link, `..` is the folder above what it leads to
        names = os.path.normpath(f"{head}/{'/'.join(names[first:])}").split("/")
        first = _first_wild(names)
    return "/".join(names[:first]) or "/", names[first:]


def _first_wild(names: Sequence[str]) -> int:
    return next((at for at, name in enumerate(names) if not WILDCARDS.isdisjoint(name)), len(names))
