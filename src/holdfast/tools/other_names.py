"""Finds the other names (hard links) that files have which a sandbox masks or protects.

Such a file is found by its name, and a command could read or change it under another one. `fencing` masks and
protects these names, too. Few files have several names, and without one nothing is searched.
"""

# Pathlib makes an object for each of a hundred thousand names.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.policy.paths import is_within
from holdfast.tools.blocking import Refused
from holdfast.tools.folders import ADVICE, MAX_ENTRIES, NO_COMMANDS
from holdfast.tools.own import Identity, identity

_MOST_FOLDERS = 100_000
"""How many folders of one search are remembered at most."""
_MOST_SEARCHES = 16
"""How many searches are remembered at most: one for each workspace."""


class Named(msgspec.Struct, frozen=True):
    """The other names of files, with every link followed."""

    masked: tuple[str, ...] = ()
    """Also folders that nobody can look into: one of the names may be there, and their owner can open them."""
    protected: tuple[str, ...] = ()


class _Folder(msgspec.Struct, frozen=True):
    """What one folder has in it."""

    changed_ns: int
    folders: tuple[str, ...]
    found: tuple[tuple[str, Identity], ...]
    """Names of the files that are searched for."""
    entries: int


class _Search(msgspec.Struct):
    """What a search found."""

    files: frozenset[Identity]
    """For which files it was."""
    folders: dict[str, _Folder] = {}


class OtherNames:
    """Searches for names. Not safe for two threads at a time. Remembers each folder until it changes."""

    def __init__(self) -> None:
        self._searches: dict[tuple[str, ...], _Search] = {}

    def found(self, masked: Iterable[str], protected: Iterable[str], roots: Iterable[str]) -> Named:
        """Return the other names.

        Args:
            masked: What no command may read, with all that is in it.
            protected: The same of what none may change.
            roots: What commands see. Nothing else is searched.

        Raises:
            Refused: there is too much to look at.
        """
        secret = dict(_with_other_names(masked))
        fixed = dict(_with_other_names(protected))
        names: dict[Identity, set[str]] = {}
        missing: dict[Identity, int] = {}
        for path, facts in {**secret, **fixed}.items():
            names.setdefault(identity(facts), set()).add(path)
            missing[identity(facts)] = facts.st_nlink - len(names[identity(facts)])
        missing = {each: count for each, count in missing.items() if count > 0}
        shut: list[str] = []
        every = {path: identity(facts) for path, facts in {**secret, **fixed}.items()}
        if missing:
            every |= self._searched(missing, names, _apart(roots), shut)
        return Named((*_beside(every, secret), *shut), tuple(_beside(every, fixed)))

    def _searched(
        self,
        missing: dict[Identity, int],
        names: dict[Identity, set[str]],
        roots: tuple[str, ...],
        shut: list[str],
    ) -> Iterator[tuple[str, Identity]]:
        """Yield the names of these files until all are found.

        Args:
            missing: How many names of each file are not known.
            names: Those that are.
            roots: Where to search.
            shut: Where to note folders that nobody can look into.
        """
        files = frozenset(missing)
        before = self._searches.pop(roots, _Search(files))
        known = before.folders if before.files == files else {}
        now = self._searches[roots] = _Search(files)
        while len(self._searches) > _MOST_SEARCHES:
            del self._searches[next(iter(self._searches))]
        inodes = {inode for _, inode in files}
        left, entries, following = sum(missing.values()), 0, deque(roots)
        while following and left > 0:
            path = following.popleft()
            try:
                folder = _looked_at(path, inodes, files, known.get(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                shut.append(path)
                continue
            except OSError as error:
                raise _refused(names, f"{path} cannot be read ({error.strerror})") from error
            entries += folder.entries
            if entries > MAX_ENTRIES:
                raise _refused(names, f"there are more than {MAX_ENTRIES:,} files")
            if folder.changed_ns and len(now.folders) < _MOST_FOLDERS:
                now.folders[path] = folder
            following += folder.folders
            left -= sum(name not in names[which] for name, which in folder.found)
            yield from folder.found


def _beside(every: Mapping[str, Identity], known: Mapping[str, os.stat_result]) -> Iterator[str]:
    """Yield all names of these files but the known ones."""
    files = {*map(identity, known.values())}
    return (path for path, which in every.items() if which in files and path not in known)


def _apart(roots: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that lie in no other one of them."""
    apart: list[str] = []
    for root in sorted({*roots}):
        if not is_within(apart, root):
            apart.append(root)
    return tuple(apart)


def _with_other_names(paths: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files that have several names, among these and what is in them.

    Raises:
        Refused: there is too much in them.
    """
    following, entries = deque(paths), 0
    while following:
        path = following.popleft()
        try:
            facts = os.lstat(path)
            if stat.S_ISDIR(facts.st_mode):
                following += (os.path.join(path, name) for name in os.listdir(path))
        except OSError:  # it is gone, or nobody can look into it
            continue
        entries += 1
        if entries > MAX_ENTRIES:
            raise Refused(
                f"{NO_COMMANDS}: there are more than {MAX_ENTRIES:,} files that it must keep. {ADVICE}"
            )
        if facts.st_nlink > 1 and stat.S_ISREG(facts.st_mode):
            yield path, facts


def _looked_at(
    path: str, inodes: Collection[int], files: Collection[Identity], known: _Folder | None
) -> _Folder:
    """Return what one folder has in it, or which file it is; what is known of it, if it has not changed.

    Raises:
        OSError: it is gone, or cannot be read.
    """
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode):
        return _Folder(0, (), ((path, identity(facts)),) if identity(facts) in files else (), 1)
    if known is not None and known.changed_ns == facts.st_ctime_ns:
        return known
    looked_ms = SYSTEM_CLOCK.now_ms()
    folders, found, count = list[str](), list[tuple[str, Identity]](), 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += 1
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.inode() in inodes:
                which = identity(entry.stat(follow_symlinks=False))
                if which in files:
                    found.append((entry.path, which))
    changed_ns = 0 if is_fresh(facts.st_ctime_ns, looked_ms) else facts.st_ctime_ns
    return _Folder(changed_ns, tuple(folders), tuple(found), count)


def _refused(names: dict[Identity, set[str]], why: str) -> Refused:
    path = next(iter(next(iter(names.values()))))
    return Refused(
        f"{NO_COMMANDS}: {path} has other names (hard links), and nobody can tell which, as {why}. {ADVICE}"
    )
