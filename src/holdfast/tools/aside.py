"""Puts aside what a command made that controls other programs, and puts links of that kind back.

A sandbox keeps what is there. It cannot keep a name free, because nothing can be mounted where nothing is, nor on a
link. So the places are compared afterwards. Nothing is removed: a person may have made the file meanwhile.
"""

# Pathlib cannot work relative to a descriptor, and makes an object for each name.
# ruff: noqa: PTH119, PTH123, PTH208, PTH115

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

ASIDE = ".put-aside"
_PASSING = ("rebase-apply", "rebase-merge", "sequencer", "info")
"""What git itself makes and removes in its folder."""
_FRESH = re.compile(
    r"\[core\]|\t(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r" = \w+"
)
"""A line in the configuration of a repository that git has just made."""
_READ_BYTES = 4_096
_SHOWN = 10


class Place(msgspec.Struct, frozen=True):
    """What lies at a place."""

    identity: tuple[int, int]
    """Device and inode."""
    target: str = ""
    """Where it leads, if it is a link."""


def seen(paths: Iterable[str]) -> dict[str, Place]:
    """Return what lies at these paths now."""
    found: dict[str, Place] = {}
    for path in paths:
        with suppress(OSError):
            facts = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else ""
            found[path] = Place((facts.st_dev, facts.st_ino), target)
    return found


def put_right(before: Mapping[str, Place], paths: Iterable[str]) -> tuple[str, ...]:
    """Put aside what is new at these paths, and put back the links that were there before. Return the paths of all
    that was changed.
    """
    now = seen(paths)
    known = {place.identity for place in before.values()}
    made = [path for path, place in now.items() if path not in before and place.identity not in known]
    changed = [path for path in made if not _is_harmless(path) and put_aside(path)]
    for path, place in before.items():
        if place.target and seen([path]).get(path) != place and _put_back(path, place.target):
            changed.append(path)
    return tuple(sorted(changed))


def told(changed: Collection[str], workspace: str) -> str:
    """Return what the model reads of it; empty if there is nothing to say."""
    if not changed:
        return ""
    names = [os.path.relpath(path, workspace) for path in changed]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return (
        f"\n[While it ran, files came or changed that control other programs: {shown}. Commands in a sandbox may not "
        f"do that. What came was put aside under the same name with {ASIDE}, and what was there before was put back. "
        "A person can make or change them.]"
    )


def _is_harmless(path: str) -> bool:
    """Return whether it is what git makes in each new repository, and what it keeps there while it works."""
    name = os.path.basename(path)
    with suppress(OSError):
        if name == "hooks" and stat.S_ISDIR(os.lstat(path).st_mode):
            return all(each.endswith(".sample") for each in os.listdir(path))
        if name == "config":
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), errors="replace") as file:
                text = file.read(_READ_BYTES)
            return len(text) < _READ_BYTES and all(map(_FRESH.fullmatch, text.splitlines()))
    return name in _PASSING


def put_aside(path: str) -> bool:
    """Rename it. Nothing on the way may be a link: a program may swap a folder at any moment."""
    with suppress(OSError), folder_of(path) as (folder, name):
        names = {*os.listdir(folder)}
        free = next(each for each in _names(name) if each not in names)
        os.rename(name, free, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    return False


def _names(name: str) -> Iterator[str]:
    yield name + ASIDE
    number = 2
    while True:
        yield f"{name}{ASIDE}-{number}"
        number += 1


def _put_back(path: str, target: str) -> bool:
    """Make a link again, if its folder is still there."""
    with suppress(OSError), folder_of(path) as (folder, name):
        if os.path.lexists(path):
            put_aside(path)
        os.symlink(target, name, dir_fd=folder)
        return True
    return False


@contextmanager
def folder_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a path, and return its descriptor with the last name.

    Raises:
        OSError: a part of the path is a link, or gone.
    """
    *folders, name = path.split("/")[1:]
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in folders:
            above, fd = (
                fd,
                os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd),
            )
            os.close(above)
        yield fd, name
    finally:
        os.close(fd)
