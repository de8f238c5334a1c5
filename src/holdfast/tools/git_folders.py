"""Recognises the folders that git takes for a repository, whatever their names: bare, renamed, or of a worktree.

`policy.protected` knows folders called `.git` by their name. Here the disk is asked about all others.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH112, PTH113, PTH118

from __future__ import annotations

import os

from holdfast.policy.paths import is_inside


def place_in_git(path: str, workspace: str) -> str:
    """Return where a path lies in the folder of a repository, as if that were called `.git`; empty if it lies in
    none. The folder itself does not lie in it.

    Args:
        path: Absolute, with every link followed.
        workspace: Only folders in it count, and the workspace itself.
    """
    here, below = path, ""
    while here != workspace and is_inside(workspace, here):
        here, _, name = here.rpartition("/")
        below = f"/{name}{below}"
        if is_repository(here):
            return f".git{below}"
    return ""


def is_repository(folder: str) -> bool:
    """Return whether git takes a folder for a repository, or for the part of one that a worktree has."""
    if not os.path.lexists(os.path.join(folder, "HEAD")):
        return False
    has_own = os.path.isdir(os.path.join(folder, "objects")) and os.path.isdir(os.path.join(folder, "refs"))
    return has_own or os.path.isfile(os.path.join(folder, "commondir"))
