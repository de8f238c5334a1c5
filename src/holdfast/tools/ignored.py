"""Says whether git would take up a file as a new one: whether it ignores it, or knows it already."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from holdfast.policy.paths import is_inside

IGNORES = ".gitignore"
_MAX_BYTES = 65_536
_MAX_INDEX_BYTES = 16 * 1024 * 1024


def is_ignored(path: str, workspace: str, *, is_folder: bool) -> bool:
    """Return whether a plain line ignores a path by its name, and no line takes a name like it back.

    Args:
        path: The file or folder, below the workspace. What lies in an ignored folder is not asked about.
        workspace: Where the lines begin to count.
        is_folder: Whether it is a folder.
    """
    beside, _, name = path.rpartition("/")
    folder, found = beside, False
    while is_inside(workspace, folder):
        for line in _lines(folder):
            pattern = line.removeprefix("!").rstrip("/").rpartition("/")[2]
            is_odd = "[" in line or "\\" in line
            if line.startswith("!") and (is_odd or fnmatchcase(name, pattern)):
                return False
            is_here = line.rstrip("/").count("/") == 0 or (
                line.rstrip("/") == f"/{pattern}" and folder == beside
            )
            is_kind = is_folder or not line.endswith("/")
            found = found or (is_here and is_kind and not is_odd and fnmatchcase(name, pattern))
        folder = folder.rpartition("/")[0]
    return found


def is_tracked(path: str, workspace: str) -> bool:
    """Return whether the repository of the workspace knows a file already, as far as its index shows the path."""
    folder = workspace
    while folder:
        try:
            with Path(folder, ".git", "index").open("rb") as file:
                index = file.read(_MAX_INDEX_BYTES)
        except OSError:
            folder = folder.rpartition("/")[0]
            continue
        name = path[len(folder) + 1 :].encode(errors="surrogateescape")
        return b"%s%s\0" % (len(name).to_bytes(2, "big"), name) in index  # an entry begins with its length
    return False


def _lines(folder: str) -> list[str]:
    try:
        with Path(folder, IGNORES).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_BYTES)
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
