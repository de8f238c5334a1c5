"""Knows what is Holdfast's own however it is reached: by its path, or by the device and inode of what is there.

A link, a mount or another spelling of a name leads to the same inode. What is done about it is `policy.protected`'s.
"""

# Pathlib cannot open relative to a descriptor, and makes an object for every name on the way.
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from holdfast.policy.paths import is_inside
from holdfast.policy.protected import HOME, SETTINGS, Own, fits_wildcards

GLANCE_FILES = 2_000
"""Of a home, where a commit waits for the answer. Whoever opens a file looks through all of them."""

Identity = tuple[int, int]
"""Device and inode."""


class OwnPlaces(msgspec.Struct, frozen=True):
    """What is Holdfast's own, with every link followed."""

    homes: tuple[str, ...] = ()
    """Homes, and what lies elsewhere but has a link in one."""
    settings: tuple[str, ...] = ()

    def identities(self, *kinds: str) -> dict[Identity, str]:
        """What is there now, by device and inode: `home` or `settings`, or only one of them."""
        found: dict[Identity, str] = {}
        for kind, paths in ((SETTINGS, self.settings), (HOME, self.homes)):
            if kinds and kind not in kinds:
                continue
            for path in paths:
                with suppress(OSError):
                    found[identity(os.stat(path))] = kind
        return found

    def by_path(self, path: str) -> str:
        """What the absolute path, every link followed, is: `home`, `home/PATH`, `settings`, or empty."""
        for home in self.homes:
            if is_inside(home, path):
                return HOME + path[len(home) :]
        return SETTINGS if path in self.settings else ""

    def by_link(self, facts: os.stat_result, most: int | None = None) -> str:
        """What a file with several names is, from what `stat` says of it: one of its names may lie in a home.

        Args:
            facts: What `stat` says.
            most: So many files of each home are looked through, the database first; None: all of them.
        """
        if facts.st_nlink < 2 or not stat.S_ISREG(facts.st_mode):
            return ""
        files = (each for home in self.homes for each in islice(files_under(home), most))
        return HOME if identity(facts) in files else ""

    def find(self, path: str, identities: Mapping[Identity, str]) -> str:
        """What an absolute path is, every link followed: by its name, or by what is there and above it."""
        if known := self.by_path(path):
            return known
        with suppress(OSError):
            if known := self.by_link(os.stat(path), GLANCE_FILES):
                return known
        here, below = path, ""
        while identities:
            with suppress(OSError):
                kind = identities.get(identity(os.stat(here)), "")
                if kind == HOME or (kind and not below):
                    return kind + below
            if here == "/":
                break
            here, name = os.path.split(here)
            below = f"/{name}{below}"
        return ""

    def matched(self, folder: str, names: Sequence[str], *, is_tree: bool) -> str:
        """What names with the wildcards of a shell may stand for in a folder; with `is_tree`, what lies under it too.

        Without names it is the folder itself that a tree begins with.
        """
        for kind, paths in ((HOME, self.homes), (SETTINGS, self.settings)):
            for path in paths:
                if not is_inside(folder, path):
                    continue
                there = [name for name in path[len(folder) :].split("/") if name]
                is_above = len(names) < len(there)
                is_below = len(names) > len(there) and kind != HOME
                if is_below or (is_above and not is_tree):
                    continue
                if all(a == b or fits_wildcards(a, b) for a, b in zip(there, names, strict=False)):
                    return kind
        return ""


def own_places(own: Own) -> OwnPlaces:
    """The places as they lie on this disk."""
    homes = [os.path.realpath(home) for home in own.homes]
    for home in tuple(homes):
        with suppress(OSError), os.scandir(home) as entries:
            homes += [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
    return OwnPlaces(tuple(dict.fromkeys(homes)), tuple(map(os.path.realpath, own.settings)))


def identity(facts: os.stat_result) -> Identity:
    """What tells a file from all others, whatever its name."""
    return facts.st_dev, facts.st_ino


def files_under(folder: str) -> Iterator[Identity]:
    """Device and inode of the folder's files, at any depth; of the file itself where it is one."""
    with suppress(OSError):
        facts = os.stat(folder)
        if not stat.S_ISDIR(facts.st_mode):
            yield identity(facts)
            return
        folders = [folder]
        while folders:
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield facts.st_dev, entry.inode()
