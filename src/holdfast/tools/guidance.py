"""Reads the files in which people say how to work in a folder: AGENTS.md and CLAUDE.md.

They come from the workspace and the folders above it, up to the root of its repository. A clone may come from
anywhere, so they are data: bounded, without hidden characters, and never read from outside the repository.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from contextlib import suppress

from holdfast.policy.protected import Own
from holdfast.protocol.prompt import Guidance
from holdfast.tools.blocking import Refused
from holdfast.tools.own import own_places
from holdfast.tools.workspace import Root, open_to_read

NAMES = ("AGENTS.md", "CLAUDE.md")
MAX_CHARS = 20_000
"""So much of one file is read."""
MAX_TOTAL_CHARS = 40_000
"""So much of all files is read, the nearest first."""
MAX_FOLDERS = 32
_MAX_BYTES = 4 * MAX_CHARS
"""A character has at most four bytes."""


def guidance(own: Own, workspace: str) -> tuple[Guidance, ...]:
    """Return what the files of a workspace say, nearest last. A file that cannot be read counts as missing.

    Args:
        own: Holdfast's own files, which nobody reads.
        workspace: An absolute path.
    """
    folders = _folders(workspace)
    if not any(_named(folder) for folder in folders):
        return ()
    root = Root(folders[-1], own_places(own))
    known: set[str] = set()
    found: list[Guidance] = []
    left = MAX_TOTAL_CHARS
    for folder in folders:  # the nearest has the first right to the room
        here: list[Guidance] = []
        for name in _named(folder):
            text = _text(root, os.path.join(folder, name))  # noqa: PTH118 -- the name is joined as it is
            if not text or text in known:  # CLAUDE.md is often a link to AGENTS.md
                continue
            known.add(text)
            kept = text[: min(MAX_CHARS, left)].rstrip()
            left -= len(kept)
            path = os.path.relpath(os.path.join(folder, name), workspace)  # noqa: PTH118
            here.append(Guidance(path, kept, len(kept) < len(text)))
        found = here + found
    return tuple(found)


def _named(folder: str) -> list[str]:
    return [name for name in NAMES if os.path.lexists(os.path.join(folder, name))]  # noqa: PTH118


def _folders(workspace: str) -> list[str]:
    """Return the workspace and the folders above it up to the root of its repository; without one, the workspace."""
    above = [workspace, *_parents(workspace)][:MAX_FOLDERS]
    for count, folder in enumerate(above, 1):
        if _is_repository(folder, workspace):
            return above[:count]
    return [workspace]


def _parents(folder: str) -> Iterator[str]:
    while (parent := os.path.dirname(folder)) != folder:  # noqa: PTH120 -- of text, without a look at the disk
        yield parent
        folder = parent


def _is_repository(folder: str, workspace: str) -> bool:
    """Return whether it is the root of a repository that is the user's own, or belongs to the owner of the workspace.

    Somebody else may have made `/tmp/.git`, so that `/tmp/AGENTS.md` speaks to all who work below.
    """
    with suppress(OSError):
        owner = os.lstat(os.path.join(folder, ".git")).st_uid  # noqa: PTH118
        return owner in (os.geteuid(), os.stat(workspace).st_uid)  # noqa: PTH116
    return False


def _text(root: Root, path: str) -> str:
    """Return the beginning of the file; one more character than is kept shows that it goes on."""
    try:
        with open_to_read(root, path) as (fd, _), open(fd, "rb", closefd=False) as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, Refused):
        return ""
    if b"\0" in content:
        return ""
    return _shown(content.decode("utf-8", "replace"))


def _shown(text: str) -> str:
    """Return the text without what people do not see when they read the file: control and format characters."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff").strip()
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [each for each in text if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cf", "Cs")]
    )
