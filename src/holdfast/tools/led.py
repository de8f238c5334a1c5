"""Finds files of the workspace that control programs because something leads there: links, and git's configuration.

They are found before a command, when nothing that leads to them can have been changed by it. `fencing` protects them.
"""

# Pathlib resolves `..` before links, and makes an object for each name.
# ruff: noqa: PTH115, PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.opening import UNFOLLOWED, by
from holdfast.policy.paths import is_inside, is_within
from holdfast.tools.git_config import MOST_CHARS, Entry, parsed
from holdfast.tools.git_folders import OF_OTHERS, may_be_repository

_MOST_FOLDERS = 1_000
"""How many protected folders are looked into for links."""
_MOST_LED = 200
"""How many links, and how many words of a configuration, are followed."""
_MOST_NAMED = 1_000
"""How many names of all configurations are followed, in all working trees."""
_MOST_ON_THE_WAY = 40
_MOST_FILES = 200
"""How many configurations are read, with what they include."""
_CONFIGS = ("config", "config.worktree")
_OF_GIT = frozenset(
    {"", "HEAD", "index", "objects", "refs", "logs", "packed-refs", "FETCH_HEAD", "ORIG_HEAD", *OF_OTHERS}
)
"""What git itself must be able to change in its folder, and the folder."""


class _Config(msgspec.Struct, frozen=True):
    """What a configuration makes git read or run."""

    facts: tuple[int, ...] = ()
    """Device, inode, size, and times of the last change; empty: it must be read again."""
    tree: str = ""
    """Its working tree, if it names one."""
    includes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class _Folder(msgspec.Struct, frozen=True):
    """What a protected folder has in it."""

    changed_ns: int
    folders: tuple[str, ...]
    links: tuple[str, ...]


class Leads:
    """Looks where protected files lead. Not safe for two threads at a time. Remembers each folder and each
    configuration until it changes.

    Args:
        home: The folder of the user, whose own configuration of git counts for each repository.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._configs: dict[str, _Config] = {}
        self._folders: dict[str, _Folder] = {}

    def found(self, fixed: Iterable[str], roots: Collection[str]) -> tuple[str, ...]:
        """Return the files and folders that something protected leads to, and the links on the way to them. Some are
        not there yet.

        Args:
            fixed: The protected paths, which need not exist.
            roots: What commands may change, with every link followed. Nothing else counts.
        """
        led: dict[str, None] = {}
        tops, configs, trees = list[str](), list[str](), dict[str, None]()
        for path in dict.fromkeys(fixed):
            mode = _mode(path)
            above, name = os.path.split(path)
            if name == ".git" and mode:
                trees[above] = None
            if stat.S_ISLNK(mode):
                tops += _noted(path, path, roots, led)
            elif name in _CONFIGS and mode:
                configs.append(path)
            elif stat.S_ISDIR(mode) and name not in OF_OTHERS:
                tops.append(path)
        self._follow_configs(configs, trees, roots, led)
        self._follow_links([*tops, *led], roots, led)
        return tuple(led)

    def _follow_links(self, tops: Iterable[str], roots: Collection[str], led: dict[str, None]) -> None:
        """Note where the links in folders lead, and those in folders that they lead to."""
        following, now, count = deque(tops), dict[str, _Folder](), 0
        while following and len(now) < _MOST_FOLDERS:
            path = following.popleft()
            folder = None if path in now else _looked_at(path, self._folders.get(path))
            if folder is None:
                continue
            now[path] = folder
            following += folder.folders
            for link in folder.links[: _MOST_LED - count]:
                count += 1
                following += _noted(link, link, roots, led)
        self._folders = now

    def _follow_configs(
        self, paths: Iterable[str], trees: dict[str, None], roots: Collection[str], led: dict[str, None]
    ) -> None:
        """Note what configurations of git name.

        Args:
            paths: The configurations of repositories.
            trees: The working trees that are known already. Those of the repositories are added.
            roots: What commands may change.
            led: Where to note it.
        """
        known, now = self._configs, dict[str, _Config]()
        of_user = (f"{self._home}/.gitconfig", f"{self._home}/.config/git/config")
        of_repositories = {*paths}
        following = deque([*paths, *of_user])
        while following and len(now) < _MOST_FILES:
            path = following.popleft()
            config = None if path in now else _read(path, known.get(path))
            if config is None:
                continue
            now[path] = config
            folder = os.path.dirname(path)
            if config.tree:
                trees[os.path.join(folder, config.tree)] = None
            elif path in of_repositories:
                trees[os.path.dirname(folder) if os.path.basename(folder) == ".git" else folder] = None
            for each in config.includes:
                included = os.path.join(folder, self._of_home(each))
                _noted(included, path, roots, led)
                following.append(included)
        self._configs = now
        for path, named in islice(self._named(trees), _MOST_NAMED):
            _noted(named, path, roots, led)

    def _named(self, trees: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the configurations with what each names in each working tree."""
        for path, config in self._configs.items():
            for tree in trees if config.folders or config.words else ():
                for each in config.folders:
                    yield path, os.path.join(tree, self._of_home(each))
                for each in config.words:
                    named = os.path.join(tree, self._of_home(each))
                    if _may_be_program(named, each):
                        yield path, named

    def _of_home(self, path: str) -> str:
        return f"{self._home}/{path[2:]}" if path.startswith("~/") else path


def first_on_the_way(path: str) -> str:
    """Return the first link on the way to a path, or the path: something came to a place also through a new link."""
    here = ""
    for name in path.split("/")[1:]:
        here = f"{here}/{name}"
        if _target(here):
            return here
    return path


def _noted(path: str, by: str, roots: Collection[str], led: dict[str, None]) -> list[str]:
    """Note the links on the way to a path, and where it leads. Return where it leads, if that counts.

    Args:
        path: A link, or what a configuration names.
        by: What leads there. A folder that holds it is left out: all of it would be protected.
        roots: What commands may change.
        led: Where to note it.
    """
    links, end = way(path)
    if not end or is_inside(end, by) or not _counts(end, roots) or _mode(end) < 0:
        return []
    if stat.S_ISDIR(_mode(end)) and may_be_repository(end):
        return []
    led.update(dict.fromkeys(link for link in links if _counts(link, roots)))
    led[end] = None
    return [end]


def _counts(path: str, roots: Collection[str]) -> bool:
    """Return whether a command could change it, and git itself need not."""
    _, is_git, rest = f"{path}/".partition("/.git/")
    if is_git and rest.partition("/")[0] in _OF_GIT:
        return False
    return path not in roots and is_within(roots, path)


def way(path: str) -> tuple[list[str], str]:
    """Return the links on the way to a path, and where it leads, also if nothing is there; empty: nobody knows."""
    links: list[str] = []
    here, left = "/", path.split("/")[::-1]
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        here = os.path.join(here, name)
        if target := _target(here):
            links.append(here)
            if len(links) > _MOST_ON_THE_WAY:
                return links, ""
            left += target.split("/")[::-1]
            here = "/" if target.startswith("/") else os.path.dirname(here)
    return links, here


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _mode(path: str) -> int:
    """Return the mode of what lies at a path; 0 if nothing does, or nobody can tell; -1 if nothing ever can."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return 0
    except (OSError, ValueError):
        return -1


def _may_be_program(path: str, word: str) -> bool:
    """Return whether a word of a configuration may name a file of the workspace: one that is there, or a path."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return "/" in word.strip("/")


def _looked_at(path: str, known: _Folder | None) -> _Folder | None:
    """Return what a folder has in it; None if it is none, or cannot be read."""
    with suppress(OSError):
        facts = os.lstat(path)
        if not stat.S_ISDIR(facts.st_mode):
            return None
        if known is not None and known.changed_ns == facts.st_ctime_ns:
            return known
        looked_ms = SYSTEM_CLOCK.now_ms()
        folders, links = list[str](), list[str]()
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    links.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        changed_ns = 0 if is_fresh(facts.st_ctime_ns, looked_ms) else facts.st_ctime_ns
        return _Folder(changed_ns, tuple(folders), tuple(links))
    return None


def _read(path: str, known: _Config | None) -> _Config | None:
    """Return what a configuration names; None if there is none, or git could not read it."""
    with suppress(OSError):
        found = os.stat(path)
        facts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if known is not None and known.facts == facts:
            return known
        if not stat.S_ISREG(found.st_mode):
            return None
        looked_ms = SYSTEM_CLOCK.now_ms()
        with open(path, "rb", opener=by(UNFOLLOWED & ~os.O_NOFOLLOW)) as file:
            text = file.read(MOST_CHARS + 1).decode(errors="surrogateescape")
        return _config(parsed(text) or (), () if is_fresh(found.st_ctime_ns, looked_ms) else facts)
    return None


def _config(entries: Iterable[Entry], facts: tuple[int, ...]) -> _Config:
    entries = [each for each in entries if each.value and "\0" not in each.value]
    return _Config(
        facts,
        tree=next((each.value for each in entries[::-1] if each.key == "core.worktree"), ""),
        includes=tuple(dict.fromkeys(each.value for each in entries if each.is_include)),
        folders=tuple(dict.fromkeys(_folders(entries))),
        words=tuple(dict.fromkeys(word for each in entries for word in each.words()))[:_MOST_LED],
    )


def _folders(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the folders with what git runs. The hooks of husky in a folder `_` run those in the folder above it."""
    for entry in entries:
        if entry.is_folder:
            path = entry.value.rstrip("/")
            yield os.path.dirname(path) if path.endswith("/_") else path
