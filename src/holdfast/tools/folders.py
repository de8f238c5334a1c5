"""Looks into folders that commands may change for secret files, sockets, and files that control other programs.

Remembers what each folder has in it until the folder changes. What a fence makes of it is up to `fencing`.
"""

# Pathlib makes an object for each of a hundred thousand names.
# ruff: noqa: PTH118, PTH119

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

import msgspec
from msgspec.structs import replace

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.policy.paths import may_be_secret, secret_rule
from holdfast.policy.protected import fixed_places, may_be_fixed, may_have_fixed
from holdfast.tools.aside import is_closed, open_up
from holdfast.tools.blocking import Refused
from holdfast.tools.git_folders import FOLDERS, OF_OTHERS, may_be_repository

MAX_ENTRIES = 1_000_000
"""The most names in a workspace that are looked at before a command."""
NO_COMMANDS = "No command runs in a sandbox in this workspace"
ADVICE = "Work in a smaller folder; files can be read and written with the file tools."
GIT = ".git"
OTHER_PEOPLES = {"node_modules": 1, "site-packages": 1, "__pycache__": 1, ".venv": 2, "venv": 2}
"""Folders of other people's files, and how many folders deep they are looked into, for anything but secrets. A
thousand folders take 4 ms at each look."""
_OF_GIT = -1
"""Instead of a number of folders: git folders are there, and only their places and their own lists count."""
_GIT_ITSELF = -2
"""The same for a folder called `.git`, whose places are known by its name."""
_SHALLOW = 2
"""How many folders deep to look where commands may only read."""
_MOST_FOLDERS = 100_000
"""How many folders of one top are remembered at most."""
_MOST_TOPS = 16
"""How many tops are remembered at most: workspaces, and the folders beside them."""
_AT_ONCE = 1_024
"""So many names of a folder are looked at together."""
_SHOWN_CHARS = 200


class Folder(msgspec.Struct, frozen=True):
    """What one folder has in it."""

    changed_ns: int
    masked: tuple[str, ...] = ()
    """Secret files, and the folder itself if nobody can look into it."""
    sockets: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Links with the names of secrets. Where they lead may change without a change of the folder."""
    fixed: tuple[str, ...] = ()
    """The paths of it that would be protected. Not all of them need to exist."""
    fixed_links: tuple[str, ...] = ()
    """Links to folders that have such paths, and the folder itself if nobody can tell whether it has some."""
    folders: tuple[tuple[str, int | None], ...] = ()
    """Where to look next, and how many folders deep; None: to the bottom."""
    entries: int = 1
    is_at_rest: bool = False
    """Whether it may be remembered: a folder that changed a moment ago may change again without another time."""
    opened: tuple[str, ...] = ()
    """The folder itself, if a command had closed it."""
    fault: str = ""
    """Why nobody can look into it, whatever its mode; empty if anybody can."""

    @property
    def is_shut(self) -> bool:
        """Whether nobody can look into it, because of its mode."""
        return bool(self.masked) and self.masked == self.fixed_links


class Folders:
    """Looks into folders. Not safe for two threads at a time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], dict[str, Folder]] = {}
        """What each folder has in it, by the top that it was found below and how deep, the one looked at last at the
        end."""

    def below(self, top: str, *, deep: int | None = None) -> Iterator[Folder]:
        """Yield the folders from the top down, as they are before a command.

        Args:
            top: Where to begin.
            deep: How many folders deep; None: to the bottom.

        Raises:
            Refused: there are too many files, or a folder cannot be read, and its owner cannot let a command read it.
        """
        entries = 0
        for folder in self._walked(top, deep, None):
            if folder.fault:
                raise Refused(f"{NO_COMMANDS}: {folder.fault}. {ADVICE}")
            entries += folder.entries
            if entries > MAX_ENTRIES:
                raise Refused(f"{NO_COMMANDS}: it has more than {MAX_ENTRIES:,} files. {ADVICE}")
            yield folder

    def controlling(self, top: str, closed: Collection[str], *, deep: int | None = None) -> Iterator[Folder]:
        """Yield those that have something that controls programs, however many there are, when a command has ended.
        A folder that it closed to its owner is opened again.

        Args:
            top: Where to begin.
            closed: What was closed before. It stays so.
            deep: How many folders deep; None: to the bottom.

        Raises:
            OSError: a folder cannot be read now.
        """
        for folder in self._walked(top, deep, closed):
            if folder.fault and not folder.fixed_links:
                raise OSError(folder.fault)
            if folder.fixed or folder.fixed_links or folder.opened:
                yield folder

    def with_sockets(self, top: str) -> Iterator[Folder]:
        """Yield those that have sockets, not deep down."""
        return (folder for folder in self._walked(top, _SHALLOW, None) if folder.sockets)

    def _walked(self, top: str, deep: int | None, closed: Collection[str] | None) -> Iterator[Folder]:
        """Yield the folders. `closed`: None before a command."""
        known, now = self._known.pop((top, deep), {}), dict[str, Folder]()
        following = deque([(top, deep)])
        try:
            while following:
                path, left = following.popleft()
                folder = _looked_at(path, left, known.get(path))
                if closed is not None and folder is not None and folder.fixed_links == (path,):
                    folder = _opened(path, left, folder, closed)
                if folder is None:
                    continue
                if folder.is_at_rest and len(now) < _MOST_FOLDERS:
                    now[path] = folder
                yield folder
                following += folder.folders
        finally:
            self._known[top, deep] = now
            while len(self._known) > _MOST_TOPS:
                del self._known[next(iter(self._known))]


def deep_in_git(folder: str) -> int:
    """Return how many folders deep to look into the folder of a repository."""
    return _GIT_ITSELF if os.path.basename(folder) == GIT else _OF_GIT


def fixed(path: str, name: str, *, is_folder: bool) -> Iterator[str]:
    """Yield what nobody may change at a path, if this is its name."""
    for rest in fixed_places(name, is_folder=is_folder):
        yield os.path.join(path, *rest)


def _looked_at(path: str, left: int | None, known: Folder | None) -> Folder | None:
    """Return what one folder has in it; None if it is gone.

    Args:
        path: The folder.
        left: How many folders deep to look from here; None: to the bottom.
        known: What it had in it before. If it has not changed, it is not read again.
    """
    try:
        # A program can set the time of a change of the content, but not this one.
        changed_ns = os.lstat(path).st_ctime_ns
        if known is not None and known.changed_ns == changed_ns:
            return known
        return _shut(path) if is_closed(path) else _read(path, changed_ns, left)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        return _shut(path)
    except OSError as error:
        shown = path if len(path) <= _SHOWN_CHARS else f"{path[:_SHOWN_CHARS]}..."
        # Nobody can ever look into a path that is too long, so the folder itself may be one that controls programs.
        # What fails for another reason, as a disk that does not answer, may be read later.
        own = (path,) if error.errno == errno.ENAMETOOLONG else ()
        return Folder(0, fixed_links=own, fault=f"{shown} cannot be read ({error.strerror})")


def _shut(path: str) -> Folder:
    """Return what is known of a folder that nobody can look into. Its owner can let a command do so, and may know
    what is in it: a shell runs an `.envrc` also where nobody can list the folder.
    """
    return Folder(0, masked=(path,), fixed_links=(path,))


def _opened(path: str, left: int | None, folder: Folder, closed: Collection[str]) -> Folder | None:
    """Return what is in a folder that a command has closed, which is open then; the same folder if nobody can look
    into it, or if it was closed before.
    """
    if path in closed or folder.fault or not open_up(path):
        return folder
    found = _looked_at(path, left, None)
    return found if found is None else replace(found, opened=(path,))


def _read(path: str, changed_ns: int, left: int | None) -> Folder:
    """Return what one folder has in it. Holds no list of all names: there may be millions of them."""
    masked: list[str] = []
    sockets: list[str] = []
    links: list[str] = []
    fixed_links: list[str] = []
    folders: list[tuple[str, int | None]] = []
    count = 0
    read_ms = SYSTEM_CLOCK.now_ms()
    last = os.path.basename(path)
    # What is protected in a `.git` is found by its name.
    is_git = last != GIT and may_be_repository(path)
    found = [*fixed(path, GIT, is_folder=True)] if is_git else []
    fixed_links += _lists(path) if is_git else []
    with os.scandir(path) as entries:
        while some := [*islice(entries, _AT_ONCE)]:
            count += len(some)
            names = [entry.name for entry in some]
            # Most folders have neither, and one look at all names tells so.
            has_secrets = left is None and may_be_secret("\n".join([last, *names]))
            has_fixed = not _is_in_git(left) and may_have_fixed(names)
            for entry in some:
                if has_secrets and secret_rule(f"{last}/{entry.name}"):
                    if entry.is_symlink():
                        links.append(entry.path)
                    else:
                        masked.append(os.path.realpath(entry.path))
                    continue
                if has_fixed and may_be_fixed(entry.name):
                    here = [*fixed(entry.path, entry.name, is_folder=_is_folder(entry))]
                    found += here
                    fixed_links += [entry.path] if here and entry.is_symlink() else []
                    fixed_links += _lists(entry.path) if entry.name == GIT and _is_folder(entry) else []
                if entry.is_dir(follow_symlinks=False):
                    if _is_followed(entry.name, left, is_git=is_git):
                        folders.append((entry.path, _depth(entry.name, left)))
                elif _is_socket(entry):
                    sockets.append(os.path.realpath(entry.path))
    return Folder(
        changed_ns,
        tuple(masked),
        tuple(sockets),
        tuple(links),
        tuple(found),
        tuple(fixed_links),
        tuple(folders),
        count,
        is_at_rest=not is_fresh(changed_ns, read_ms),
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether something is a folder, or a link to one. Of a link that leads through a file, in a circle or to
    where nobody may look, `is_dir` would raise the error of a folder that is gone or closed.
    """
    try:
        return entry.is_dir()
    except OSError:
        return False


def _lists(folder: str) -> list[str]:
    """Return what must be folders in the one of a repository, and no links."""
    return [os.path.join(folder, name) for name in FOLDERS]


def _is_in_git(left: int | None) -> bool:
    return left in (_OF_GIT, _GIT_ITSELF)


def _is_followed(name: str, left: int | None, *, is_git: bool) -> bool:
    """Return whether to look into a folder. `is_git`: the one that has it is a git folder."""
    if left == _GIT_ITSELF or (left == _OF_GIT and is_git):
        return name in OF_OTHERS
    return name == GIT or left is None or bool(left)


def _depth(name: str, left: int | None) -> int | None:
    """Return how many folders deep to look below a folder; None: to the bottom."""
    if _is_in_git(left):
        return _OF_GIT
    if name == GIT:
        return _GIT_ITSELF
    if left is not None:
        return left - 1
    return OTHER_PEOPLES.get(name)


def _is_socket(entry: os.DirEntry[str]) -> bool:
    """Return whether a program outside may listen there, as an agent for keys or a database does."""
    # What the system tells with the names saves a look at each file.
    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
        return False
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:  # it is gone
        return False
