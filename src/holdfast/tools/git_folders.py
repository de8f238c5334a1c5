"""Recognises the folders that git takes for a repository, whatever their names: bare, renamed, or of a worktree.

`policy.protected` knows folders called `.git` by their name. Here the disk is asked about all others.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH118, PTH119, PTH120

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from holdfast.opening import UNFOLLOWED, by
from holdfast.policy.paths import is_inside, is_within
from holdfast.policy.protected import fixed_places

OF_OTHERS = ("modules", "worktrees")
"""Folders with git folders of their own: those of submodules, and of linked working trees."""
FOLDERS = (*OF_OTHERS, "info", "objects", "objects/info")
"""What must be folders in the one of a repository, and no links."""
_MOST_BYTES = 5_000
_CONTROLLING = frozenset(fixed_places(".git", is_folder=True)) | {(name,) for name in OF_OTHERS}


def place_in_git(path: str, workspace: str) -> str:
    """Return where a path lies in the folder of a repository, as if that were called `.git`; empty if it lies in
    none. The folder itself does not lie in it.

    Args:
        path: Absolute, with every link followed.
        workspace: Only folders in it count, and the workspace itself.
    """
    here, names = path, list[str]()
    while here != workspace and is_inside(workspace, here):
        here, _, name = here.rpartition("/")
        names.insert(0, name)
        if may_be_repository(here) and (is_repository(here) or _controls(names)):
            return "/".join((".git", *names))
    return ""


def may_be_repository(folder: str) -> bool:
    """Return whether git may take a folder for a repository, or for the part of one that a worktree has: it has a
    HEAD, or working trees that use its configuration. What else it needs may lie elsewhere, or come later.
    """
    return os.path.lexists(os.path.join(folder, "HEAD")) or _has_working_trees(folder)


def is_repository(folder: str) -> bool:
    """Return whether git takes a folder for a repository now, or would if it looked less closely."""
    names = [name for name in ("HEAD", "objects", "refs") if os.path.lexists(os.path.join(folder, name))]
    return len(names) == 3 or ("HEAD" in names and os.path.lexists(os.path.join(folder, "commondir")))


def trees_elsewhere(places: Iterable[str], shown: Collection[str]) -> Iterator[str]:
    """Yield the folders of linked working trees that a process does not see. Its git takes them for gone, and would
    remove what a repository has of them.

    Args:
        places: What controls git. Each such folder has a file `gitdir` that names the tree.
        shown: What the process sees.
    """
    for path in places:
        folder, name = os.path.split(path)
        if name == "gitdir" and os.path.basename(os.path.dirname(folder)) == OF_OTHERS[1]:
            entry = os.path.realpath(os.path.join(folder, _line(path)))
            if os.path.lexists(entry) and not is_within(shown, entry):
                yield folder


def _line(path: str) -> str:
    """Return the first line of a short file; empty if it cannot be read."""
    with suppress(OSError), open(path, "rb", opener=by(UNFOLLOWED)) as file:
        line = os.fsdecode(file.readline(_MOST_BYTES)).rstrip("\n")
        return line if "\0" not in line else ""
    return ""


def _has_working_trees(folder: str) -> bool:
    """Return whether linked working trees are listed in a folder."""
    listed = os.path.join(folder, "worktrees")
    if not os.path.lexists(listed):  # most folders have none, and to ask is quicker than to fail
        return False
    with suppress(OSError), os.scandir(listed) as entries:
        return any(os.path.lexists(os.path.join(entry.path, "commondir")) for entry in entries)
    return False


def _controls(names: list[str]) -> bool:
    """Return whether a path below a repository is, or lies in, what controls git."""
    plain = [name.casefold() for name in names]
    return any(tuple(plain[:end]) in _CONTROLLING for end in range(1, len(plain) + 1))
