"""What a command may do: builds its fence from the settings of the run and from what the workspace has in it.

Every command gets a fence of its own, because a file may have become secret or protected since the last one. `policy`
has the lists of names. `sandbox` keeps the process inside.
"""

# Pathlib makes an object for each of a hundred thousand names.
# ruff: noqa: PTH110, PTH111, PTH118, PTH119

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.paths import is_inside, secret_rule
from holdfast.policy.protected import fixed_places
from holdfast.protocol.fence import Fence
from holdfast.protocol.settings import Walls
from holdfast.tools.blocking import Refused
from holdfast.tools.git_folders import is_repository
from holdfast.tools.own import OwnPlaces
from holdfast.tools.repository import find

MAX_ENTRIES = 1_000_000
"""The most names in a workspace that are looked at."""
_NO_COMMANDS = "No command runs in a sandbox in this workspace"
_ADVICE = "Work in a smaller folder; files can be read and written with the file tools."
_SKIPPED = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__"})
"""Folders of other people's files. What is protected in a `.git` is found by its whole path."""
_GIT = ".git"
_FRESH_MS = 50
"""A folder that changed so recently may change again without another time."""


class _Folder(msgspec.Struct, frozen=True):
    changed_ns: int
    masked: tuple[str, ...]
    fixed: tuple[str, ...]
    """The paths of it that would be protected. Not all of them need to exist."""
    folders: tuple[str, ...]
    entries: int


class Fences:
    """Builds fences. Remembers what each folder has in it until the folder changes.

    Args:
        own: Holdfast's own files, which no command may see.
        home: The folder of the user, which is an empty one inside.
    """

    def __init__(self, own: OwnPlaces, home: str) -> None:
        self._own = own
        self._home = os.path.realpath(home)
        self._folders: dict[str, _Folder] = {}
        self._lock = Lock()

    def fence(self, workspace: str, walls: Walls) -> Fence:
        """Return the fence of a command. Reads each folder that is new or has changed.

        Raises:
            Refused: no command may run in such a workspace.
        """
        self._check(workspace)
        with self._lock:
            found = [*self._below(workspace)]
        git, fixed_in_git = self._repository(workspace)
        fixed = [*(path for folder in found for path in folder.fixed), *fixed_in_git]
        writable = (workspace, *git, *map(_real, walls.write))
        return Fence(
            writable=writable,
            readable=tuple(map(_real, walls.read)),
            private=(self._home,),
            masked=tuple(path for folder in found for path in folder.masked),
            protected=tuple(_protected(fixed, writable)),
        )

    def _repository(self, workspace: str) -> tuple[list[str], list[str]]:
        """Return the folders of a repository that lies elsewhere, as a worktree's and a submodule's do, and what
        nobody may change in them. One that does not lead back to the workspace is not shown.
        """
        try:
            repository = find(workspace, self._own)
        except (Refused, OSError):
            return [], []
        folders = [repository.common, repository.folder]
        if repository.top != workspace or is_inside(workspace, repository.folder):
            return [], []
        return folders, [path for folder in folders for path in _fixed(folder, _GIT, is_folder=True)]

    def _check(self, workspace: str) -> None:
        for home in self._own.homes:
            if is_inside(workspace, home):
                raise Refused(f"{_NO_COMMANDS}: Holdfast's own files are in it ({home}). {_ADVICE}")
        if is_inside(workspace, self._home):
            raise Refused(f"{_NO_COMMANDS}: it is, or holds, the home folder {self._home}. {_ADVICE}")

    def _below(self, top: str) -> Iterator[_Folder]:
        following, entries = [top], 0
        while following:
            folder = self._folder(following.pop())
            if folder is None:
                continue
            entries += folder.entries
            if entries > MAX_ENTRIES:
                raise Refused(f"{_NO_COMMANDS}: it has more than {MAX_ENTRIES:,} files. {_ADVICE}")
            yield folder
            following += folder.folders

    def _folder(self, path: str) -> _Folder | None:
        try:
            # A program can set the time of a change of the content, but not this one.
            changed_ns = os.lstat(path).st_ctime_ns
            known = self._folders.get(path)
            if known is None or known.changed_ns != changed_ns:
                known = _read(path, changed_ns)
                if SYSTEM_CLOCK.now_ms() - changed_ns // 1_000_000 > _FRESH_MS:
                    self._folders[path] = known
        except OSError:
            self._folders.pop(path, None)
            return None
        return known


def _fixed(path: str, name: str, *, is_folder: bool) -> Iterator[str]:
    """Yield what nobody may change at a path, if this is its name."""
    for rest in fixed_places(name, is_folder=is_folder):
        yield os.path.join(path, *rest)


def _protected(paths: Iterable[str], writable: Sequence[str]) -> Iterator[str]:
    """Yield what is there at the paths, with links followed, if a command could change it.

    What is protected is shown inside. So a link `.vscode -> ~` would show the home.
    """
    roots = [_real(root) for root in writable]
    for path in dict.fromkeys(map(os.path.realpath, paths)):
        is_above = any(is_inside(path, root) for root in roots)
        if not is_above and any(is_inside(root, path) for root in roots) and os.path.exists(path):
            yield path


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _read(path: str, changed_ns: int) -> _Folder:
    """Return what one folder has in it."""
    masked: list[str] = []
    fixed: list[str] = []
    folders: list[str] = []
    with os.scandir(path) as entries:
        found = [*entries]
    if is_repository(path):
        fixed += _fixed(path, _GIT, is_folder=True)
    for entry in found:
        if secret_rule(f"{os.path.basename(path)}/{entry.name}"):
            masked.append(os.path.realpath(entry.path))
            continue
        fixed += _fixed(os.path.realpath(entry.path), entry.name, is_folder=entry.is_dir())
        if entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
    return _Folder(changed_ns, tuple(masked), tuple(fixed), tuple(folders), len(found))
