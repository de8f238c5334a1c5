"""Puts folders back where they were before a command moved them, and finds them first.

A folder that is held open tells where it is. All others are looked for in what the command could change.
"""

# Pathlib cannot work relative to a descriptor, and makes an object for each name.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.policy.paths import is_inside, is_within
from holdfast.tools.aside import at, folder_of, has, move, open_up, place_of, rename
from holdfast.tools.identity import Identity, is_same, of_folder

_MOST_ENTRIES = 1_000_000
"""How many names are looked at to find folders that a command moved."""
_ROUNDS = 8
"""How often they are looked for."""


def put_in_place(
    above: Mapping[str, Identity], roots: Collection[str], held: Mapping[str, int]
) -> tuple[list[str], dict[str, str]]:
    """Put folders back where they were, if they were moved, and open them if they were closed. What is there instead
    and is not a folder is put aside. Return where something was done, and where it could not be, with the reason.

    Args:
        above: The folders, a folder before what is in it.
        roots: Where a command could move them.
        held: Those of them that are open.
    """
    done, stuck = set[str](), dict[str, str]()
    missing: dict[str, Identity] = {}
    for _ in range(_ROUNDS):  # what lay in a folder that was moved may have been moved out of it before
        missing, now = _missing(above, roots, held, stuck)
        moved = {
            path
            for path in missing
            if _moved_back(path, now.get(path, ""), above[path], roots, held.get(path), stuck)
        }
        done |= moved
        if not moved:
            break
    for path in missing:
        found = at(path) if path not in stuck else None
        if found is not None and not stat.S_ISDIR(found.st_mode):
            with suppress(OSError):  # then nothing can be made there, and each copy says so
                rename(path)
                done.add(path)
    for path in above:
        try:
            if not is_within(stuck, path) and open_up(path):
                done.add(path)
        except OSError as error:
            stuck[path] = error.strerror or str(error)
    return [path for path in above if path in done], stuck


def _missing(
    above: Mapping[str, Identity], roots: Iterable[str], held: Mapping[str, int], stuck: dict[str, str]
) -> tuple[dict[str, Identity], dict[str, str]]:
    """Return which folders are not in place, and where they are, as far as they are found. Notes what failed."""
    missing, now = dict[str, Identity](), dict[str, str]()
    for path, identity in above.items():
        try:
            if path not in stuck and not _is_in_place(path, identity, held.get(path)):
                missing[path] = identity
                now[path] = place_of(held[path]) if path in held else ""
        except OSError as error:
            stuck[path] = error.strerror or str(error)
    if unheld := {path: identity for path, identity in missing.items() if path not in held}:
        try:
            now |= _found(unheld, roots)
        except OSError as error:  # it may be anywhere, and is not made again before that is known
            stuck |= dict.fromkeys(unheld, error.strerror or str(error))
    return missing, now


def _is_in_place(path: str, identity: Identity, held: int | None) -> bool:
    """Return whether a folder lies at a path. `held`: it is open.

    Raises:
        OSError: nobody can tell.
    """
    found = at(path)
    if found is None:
        return False
    if held is not None:
        return os.path.samestat(found, os.fstat(held))
    there = of_folder(path) if found.st_ino == identity[1] else None
    return there is not None and is_same(there, identity)


def _moved_back(
    path: str,
    elsewhere: str,
    identity: Identity,
    roots: Iterable[str],
    held: int | None,
    stuck: dict[str, str],
) -> bool:
    """Move a folder back to its path, and return whether that was done. Another one that is there is put aside. Notes
    what failed.
    """
    if not elsewhere or path in stuck:
        return False
    try:
        # It may have come back, or gone on, with a folder that holds it.
        if _is_in_place(path, identity, held) or not _is_in_place(elsewhere, identity, held):
            return False
        if at(path) is not None:
            rename(path)
        make_folders(path, roots)
        with folder_of(elsewhere) as (source, old), folder_of(path) as (target, new):
            move(old, source, new, target)
    except OSError as error:
        stuck[path] = error.strerror or str(error)
        return False
    return True


def _found(lost: Mapping[str, Identity], roots: Iterable[str]) -> dict[str, str]:
    """Return where folders are among what a command could change, as far as these are looked through.

    Raises:
        OSError: nobody can tell.
    """
    by_inode: dict[int, list[str]] = {}
    for path, identity in lost.items():
        by_inode.setdefault(identity[1], []).append(path)
    found: dict[str, str] = {}
    following, entries = [*roots], 0
    while following and entries < _MOST_ENTRIES and len(found) < len(lost):
        folder = following.pop()
        for name, inode in _folders_in(folder):
            entries += 1
            if not inode:
                continue
            path = os.path.join(folder, name)
            following.append(path)
            there = of_folder(path) if inode in by_inode else None
            found |= {was: path for was in by_inode.get(inode, ()) if there and is_same(there, lost[was])}
    return found


def _folders_in(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the names in a folder, with the inode of each folder; 0 for anything else. Looks also where a program
    closed it to its owner.

    Raises:
        OSError: nobody can tell.
    """
    try:
        with os.scandir(folder) as listed:
            for entry in listed:
                yield entry.name, entry.inode() if entry.is_dir(follow_symlinks=False) else 0
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        with (
            suppress(PermissionError),
            folder_of(os.path.join(folder, ".")) as (fd, _),
            os.scandir(fd) as listed,
        ):
            for entry in listed:  # of another user, where no command could put anything, nothing is listed
                yield entry.name, entry.inode() if entry.is_dir(follow_symlinks=False) else 0


def make_folders(path: str, roots: Iterable[str]) -> None:
    """Make the folders above a path that a command has removed. What it put in place of one is put aside: a link may
    lead to where it may not write itself.

    Raises:
        OSError: that is not possible.
    """
    with suppress(OSError), folder_of(path):  # if not, the rest says why
        return
    for above in map(str, reversed(Path(path).parents)):
        if not any(above != root and is_inside(root, above) for root in roots):
            continue
        with folder_of(above) as (folder, name):
            if has(folder, name):
                if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                    continue
                rename(above)
            os.mkdir(name, dir_fd=folder)
