"""Recognises Holdfast's own files however they are reached: by path, or by device and inode.

A link, a mount or another spelling of a name leads to the same inode. `policy.protected` decides what to do.
"""

# Pathlib cannot open relative to a descriptor, and makes an object for each name.
# ruff: noqa: PTH100, PTH116, PTH118

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

import msgspec

from holdfast.policy.paths import is_inside
from holdfast.policy.protected import BESIDE, HOME, KEY, SETTINGS, Own, fits_wildcards
from holdfast.tools.led import way

GLANCE_FILES = 2_000
"""How many files of a home are examined inside a commit. Opening a file examines all of them."""

Identity = tuple[int, int]
"""Device and inode."""
Look = Callable[[str], os.stat_result | None]


class OwnPlaces(msgspec.Struct, frozen=True):
    """Holdfast's own places, with every link followed."""

    homes: tuple[str, ...] = ()
    """Homes, files elsewhere that a link in a home leads to, and `keys`."""
    settings: tuple[str, ...] = ()
    """Also the links by whose names Holdfast finds them."""
    keys: tuple[str, ...] = ()
    """Files with the key of the stored secrets, which may lie anywhere."""
    links: tuple[str, ...] = ()
    """The links that lead to homes and settings, but for those that are settings themselves."""

    def identities(self, *kinds: str) -> dict[Identity, str]:
        """Return the files that exist now, by device and inode: `home`, `settings` or `key`, or only one of them."""
        found: dict[Identity, str] = {}
        for kind, paths in ((SETTINGS, self.settings), (HOME, self.homes), (KEY, self.keys)):
            if kinds and kind not in kinds:
                continue
            for path in paths:
                try:
                    found[identity(os.stat(path))] = kind
                except OSError:
                    continue
        return found

    def by_path(self, path: str) -> str:
        """Return what an absolute path without links is: `home`, `home/PATH`, `settings`, `key`; or empty."""
        if path in self.keys:
            return KEY
        for home in self.homes:
            if is_inside(home, path):
                return HOME + path[len(home) :]
        return SETTINGS if path in self.settings else ""

    def by_link(self, facts: os.stat_result, most: int | None = None) -> str:
        """Return what a file with several names is: one of its names may lie in a home.

        Args:
            facts: The result of `stat`.
            most: How many files of each home are examined, starting with the database; None means all.
        """
        if facts.st_nlink < 2 or not stat.S_ISREG(facts.st_mode):
            return ""
        files = (each for home in self.homes for each in islice(files_under(home), most))
        return HOME if identity(facts) in files else ""

    def find(
        self, path: str, identities: Mapping[Identity, str], within: str = "", look: Look | None = None
    ) -> str:
        """Return what an absolute path (no links) is: by its name, and by the inodes at and above it.

        Args:
            path: The path.
            identities: What `identities` returns.
            within: A folder that stays where it is. What it is itself is looked up only once.
            look: Returns what a path is; None: `look_at`.
        """
        if known := self.by_path(path):
            return known
        look = look or look_at
        facts = look(path) if path != within else None
        if facts is not None and (known := self.by_link(facts, GLANCE_FILES)):
            return known
        here, below = path, ""
        while identities and here != within:
            kind = identities.get(identity(facts), "") if facts is not None else ""
            if kind == HOME or (kind and not below):
                return kind + below
            above, name = os.path.split(here)
            if above == here:  # the root of the disk, in whatever spelling
                return ""
            here = above
            below = f"/{name}{below}"
            facts = look(here) if here != within else None
        above = _own_kind(within, tuple(identities.items())) if identities else ""
        return above + below if above.startswith(HOME) or not below else ""

    def matched(self, folder: str, names: Sequence[str], *, is_tree: bool) -> str:
        """Return what a name with shell wildcards may match in a folder. With `is_tree`, include everything under it.

        Without names, return what the folder itself is.
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


@lru_cache(maxsize=64)
def _own_kind(folder: str, identities: tuple[tuple[Identity, str], ...]) -> str:
    """Return what a folder is, by the inodes at and above it."""
    return OwnPlaces().find(folder, dict(identities))


def look_at(path: str) -> os.stat_result | None:
    """Return what a path is, and not what a link leads to; None if there is nothing."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def own_places(own: Own) -> OwnPlaces:
    """The places as they are on this disk."""
    homes, linked = [os.path.realpath(home) for home in own.homes], list[str]()
    for home in homes:
        with suppress(OSError), os.scandir(home) as entries:
            linked += [entry.path for entry in entries if entry.is_symlink()]
    homes += map(os.path.realpath, linked)
    settings = [path for file in own.settings for path in (os.path.realpath(file), _named(file))]
    keys = [*map(os.path.realpath, own.keys)]
    ways = [*own.homes, *linked, *own.settings, *(f"{os.path.realpath(home)}{BESIDE}" for home in own.homes)]
    links = (link for path in ways for link in way(os.path.abspath(path))[0])
    led = [link for link in dict.fromkeys(links) if link not in settings]
    return OwnPlaces(*(tuple(dict.fromkeys(each)) for each in ([*homes, *keys], settings, keys, led)))


def _named(file: str) -> str:
    """Return the path of a file by its own name, also if that is a link, in the real folder."""
    folder, name = os.path.split(os.path.abspath(file))
    return os.path.join(os.path.realpath(folder), name)


def identity(facts: os.stat_result) -> Identity:
    """Return the identity of a file, whatever its name."""
    return facts.st_dev, facts.st_ino


def files_under(folder: str) -> Iterator[Identity]:
    """Return device and inode of all files in a folder, at any depth; or of the file itself."""
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
