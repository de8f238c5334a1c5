"""Opens files inside a root, with no way out, even while somebody replaces folders by symbolic links.

It walks a path one name at a time from an open folder and never follows a link: it reads the link and walks to its
target inside the same root. So it opens what was judged, whatever changes meanwhile. If a name changes during the
walk, it refuses. `policy.paths` decides which paths are secret; `files` and `search` use the open files.

Hard links: a file with several names is never written, because one may lie outside the workspace, and replacing the
file would separate them silently. It is read and searched, unless it is a known secret file under another name: one
of the machine's, or one of the workspace. Finding others would need a search of the whole disk.
"""

# Pathlib cannot open relative to a descriptor, which keeps the walk inside.
# ruff: noqa: PTH111, PTH116, PTH118, PTH208

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from holdfast.policy.paths import is_inside, is_kernel_path, malformed, secret_rule
from holdfast.policy.protected import Access, own_problem, steering_problem
from holdfast.tools.blocking import Refused
from holdfast.tools.folders import OTHER_PEOPLES
from holdfast.tools.git_folders import place_in_git
from holdfast.tools.own import GLANCE_FILES, OwnPlaces, identity

_MAX_LINKS = 40
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_NAMES = 100_000
"""How many names of a workspace are looked at for secret files."""
_TOO_MANY = (
    f"A file with several names (hard links) may be a secret one, and among more than {_MOST_NAMES:,} names nobody "
    "can tell. Nothing was read."
)
MISSING = -1
"""A folder that does not exist (yet). Nothing under it exists either."""

_ACCOUNT_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/passwd")
_KEY_FOLDERS = ("~/.ssh", "~/.aws", "~/.kube", "~/.azure", "~/.docker", "/etc/ssh")
_KEY_FILES = ("~/.netrc", "~/.pgpass", "~/.git-credentials", "~/.npmrc", "~/.pypirc", "~/.env")


class PathRefused(Refused):
    """File tools may not touch this path."""


class NotAFolder(PathRefused):
    """A name on the way is not a folder, so nothing can be under it."""


class Root(msgspec.Struct, frozen=True):
    """The folder of the file tools, and Holdfast's own files."""

    folder: str
    own: OwnPlaces = OwnPlaces()


class Place(msgspec.Struct, frozen=True):
    """The target of a path: an open folder, and a name in it that is not a symbolic link."""

    folder_fd: int
    """`-1` if the folder does not exist."""
    name: str
    """`.` for the folder itself."""
    path: str
    """Relative to the root, with every link followed; `.` for the root."""
    root: Root
    """Its folder, absolute, with every link followed."""
    own: str
    """Which of Holdfast's own files it is, as in `OwnPlaces`."""

    @property
    def whole(self) -> str:
        """The absolute path."""
        return self.root.folder if self.path == "." else os.path.join(self.root.folder, self.path)


@contextmanager
def place(
    root: Root, given: str, *, makes_folders: bool = False, follows_last: bool = True
) -> Iterator[Place]:
    """Walk to a path. The folder stays open, so that the effect happens there.

    Args:
        root: An existing, absolute folder.
        given: Relative to the root, or absolute and inside it.
        makes_folders: Make missing folders on the way.
        follows_last: Follow the last name too, if it is a link. Otherwise the place is the link.

    Raises:
        PathRefused: the path leads out of the root, changed during the walk, or is malformed.
        OSError: a folder on the way cannot be opened or made.
    """
    if problem := malformed(given):
        raise PathRefused(problem)
    walk = _Walk(root, given, makes_folders, follows_last)
    try:
        yield walk.to_the_end()
    finally:
        walk.close()


@contextmanager
def open_to_read(root: Root, given: str) -> Iterator[tuple[int, Place]]:
    """Open a regular file. Yield its descriptor and its place.

    Raises:
        PathRefused: as for `place`; also if it is a secret or not a regular file.
        OSError: it cannot be opened.
    """
    with place(root, given) as found:
        refuse_protected(given, found, "read")
        if found.folder_fd == MISSING:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), given)
        with open_regular(found, given) as fd:
            yield fd, found


@contextmanager
def open_regular(found: Place, given: str) -> Iterator[int]:
    """Open the file at a place, without waiting and without side effects: a pipe or device is refused before it is
    opened, and checked again after.

    Raises:
        PathRefused: it is not a regular file, changed meanwhile, or is a secret file under another name.
        OSError: it cannot be opened.
    """
    facts = os.stat(found.name, dir_fd=found.folder_fd, follow_symlinks=False)
    refuse_other_kinds(given, facts.st_mode)
    # Before it is opened: closing a database would drop this process's locks on it.
    _refuse_other_names(given, found, facts)
    try:
        fd = os.open(found.name, _READ, dir_fd=found.folder_fd)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise PathRefused(f"{given} changed while it was opened. Nothing was read.") from None
    try:
        facts = os.fstat(fd)
        refuse_other_kinds(given, facts.st_mode)
        _refuse_other_names(given, found, facts)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_folder(root: Root, given: str) -> Iterator[tuple[int, Place]]:
    """Open a folder to list it. Raises what `open_to_read` raises."""
    with place(root, given) as found:
        refuse_protected(given, found, "read")
        if found.folder_fd == MISSING:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), given)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(found.name, flags, dir_fd=found.folder_fd)
        try:
            yield fd, found
        finally:
            os.close(fd)


def _refuse_other_names(given: str, found: Place, facts: os.stat_result) -> None:
    """Refuse to read a file if one of its names would be refused."""
    if facts.st_nlink < 2:
        return
    folder = found.root.folder
    if identity(facts) in secret_identities(folder) or identity(facts) in deeper_secrets(folder):
        raise PathRefused(f"{given} is another name of a secret file. Work without its content.")
    if problem := own_problem(given, found.root.own.by_link(facts), "read"):
        raise PathRefused(problem)


def refuse_protected(given: str, found: Place, access: Access) -> None:
    """Refuse forbidden paths by their real target, when they are opened."""
    if problem := own_problem(given, found.own, access):
        raise PathRefused(problem)
    if rule := secret_rule(given) or secret_rule(found.whole):
        raise PathRefused(f"{given} names a secret ({rule}). Work without its content.")
    # Check the given name too: /proc/self/root leads everywhere.
    root = found.root.folder
    named = os.path.normpath(os.path.join(root, given))
    if is_kernel_path(found.whole, root) or is_kernel_path(named, root):
        raise PathRefused(f"{given}: file tools may not use /proc, /sys and /dev.")
    steered = None
    if access != "read":
        steered = steering_problem(given, found.whole, root, place_in_git(found.whole, root))
    if steered is not None and steered.verdict == "deny":
        raise PathRefused(steered.reason)


def kind_of(mode: int) -> Literal["file", "folder", "link", "other"]:
    """Return the kind of file from the mode of a `stat` result."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def look(found: Place) -> os.stat_result | None:
    """Return what is at a place now; None if nothing is."""
    if found.folder_fd == MISSING:
        return None
    try:
        return os.stat(found.name, dir_fd=found.folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def refuse_other_kinds(given: str, mode: int) -> None:
    """Raise `PathRefused` unless the mode is a regular file's."""
    kind = kind_of(mode)
    if kind == "folder":
        raise PathRefused(f"{given} is a folder, not a file.")
    if kind != "file":
        raise PathRefused(f"{given} is not a regular file (a device, pipe, socket or link): refused.")


def secret_identities(root: str) -> set[tuple[int, int]]:
    """Return device and inode of the well-known secret files of the machine, and of those at the top of a workspace,
    to recognise them under any name.
    """
    names = [*_ACCOUNT_FILES, *(os.path.expanduser(name) for name in _KEY_FILES)]
    with suppress(OSError):
        names += [os.path.join(root, name) for name in os.listdir(root) if secret_rule(name)]
    for folder in map(os.path.expanduser, _KEY_FOLDERS):
        with suppress(OSError):
            names += [os.path.join(folder, name) for name in os.listdir(folder)]
    identities = set()
    for name in names:
        with suppress(OSError):
            identities.add(identity(os.stat(name)))
    return identities


def deeper_secrets(root: str) -> Iterator[tuple[int, int]]:
    """Yield device and inode of the secret files in a workspace, without those in folders of other people's files.

    Raises:
        PathRefused: there are too many names to look at.
    """
    following, left = deque([(root, False)]), _MOST_NAMES
    while following:
        folder, is_secret = following.popleft()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    raise PathRefused(_TOO_MANY)
                is_kept = is_secret or bool(secret_rule(entry.path[len(root) + 1 :]))
                if not entry.is_dir(follow_symlinks=False):
                    if is_kept:
                        with suppress(OSError):
                            yield identity(os.stat(entry.path))
                elif entry.name != ".git" and entry.name not in OTHER_PEOPLES:
                    following.append((entry.path, is_kept))


class _Walk:
    """One walk: the open folders from the root to here, their names, and the names still to walk."""

    def __init__(self, root: Root, given: str, makes_folders: bool, follows_last: bool) -> None:
        self._root = os.path.realpath(root.folder)
        self._own = root.own
        self._identities = root.own.identities()
        self._given = given
        self._makes_folders = makes_folders
        self._follows_last = follows_last
        self._folders: list[int] = []
        self._marks: list[str] = []
        """Which of Holdfast's own files each of the folders is."""
        self._names: list[str] = []
        self._todo = self._steps(given)
        self._links = 0

    def to_the_end(self) -> Place:
        self._folders.append(os.open(self._root, _FOLDER))
        self._marks.append(self._own.find(self._root, self._identities))
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._leave()
            elif (self._todo or self._follows_last) and (target := self._link_target(name)) is not None:
                self._follow(target)
            elif self._todo:
                self._enter(name)
            else:
                return self._place(name)
        return self._place(".")

    def _place(self, name: str) -> Place:
        path = "/".join(self._names if name == "." else [*self._names, name])
        root = Root(self._root, self._own)
        found = Place(self._folders[-1], name, path or ".", root, self._marks[-1])
        if name == ".":
            return found
        facts = look(found) if self._identities else None
        own = self._mark(name, found.whole, facts)
        if facts is not None and not own:
            own = self._own.by_link(facts, GLANCE_FILES)
        return msgspec.structs.replace(found, own=own)

    def _mark(self, name: str, whole: str, facts: os.stat_result | None) -> str:
        """Return which of Holdfast's own files a name in the last folder is."""
        if self._marks[-1]:
            return f"{self._marks[-1]}/{name}"
        return self._own.by_path(whole) or (
            self._identities.get(identity(facts), "") if facts is not None else ""
        )

    def close(self) -> None:
        while self._folders:
            if (fd := self._folders.pop()) != MISSING:
                os.close(fd)

    def _steps(self, path: str) -> list[str]:
        """Return the names of a path from the root of the walk, last first."""
        if path.startswith("/"):
            real = os.path.realpath(path)
            if not is_inside(self._root, real):
                raise PathRefused(_outside(self._given))
            path = os.path.relpath(real, self._root)
        return [part for part in reversed(path.split("/")) if part not in ("", ".")]

    def _leave(self) -> None:
        if not self._names:
            raise PathRefused(_outside(self._given))
        self._names.pop()
        self._marks.pop()
        if (fd := self._folders.pop()) != MISSING:
            os.close(fd)

    def _link_target(self, name: str) -> str | None:
        if self._folders[-1] == MISSING:
            return None
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            if error.errno == errno.ENOTDIR:
                raise NotAFolder(f"{self._given}: a name on the way is a file, not a folder.") from None
            raise

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise PathRefused(f"{self._given}: its symbolic links form a loop.")
        steps = self._steps(target)
        if target.startswith("/"):
            while self._names:
                self._leave()
        self._todo += steps

    def _enter(self, name: str) -> None:
        here = self._folders[-1]
        self._names.append(name)
        self._folders.append(MISSING)
        self._marks.append(self._mark(name, "/".join([self._root.rstrip("/"), *self._names]), None))
        if here == MISSING:
            return
        if self._makes_folders:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
        try:
            fd = self._folders[-1] = os.open(name, _FOLDER, dir_fd=here)
            if self._identities and not self._marks[-1]:
                self._marks[-1] = self._identities.get(identity(os.fstat(fd)), "")
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise NotAFolder(
                f"{self._given}: {name} is not a folder, or changed while it was opened. Nothing was done."
            ) from None


def _outside(given: str) -> str:
    return f"{given} leads out of the workspace. File tools stay inside it."
