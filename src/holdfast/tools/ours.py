"""Tells whether a file is still what a file tool of this session made of it: a command may overwrite it unasked.

The content decides, by its mark. What a command or somebody else has changed since is nobody's to lose.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.protocol.tools import MARK_DIGITS, Written
from holdfast.tools.blocking import Refused
from holdfast.tools.workspace import Root, open_to_read

if TYPE_CHECKING:
    from holdfast.tools.writing import NewDigest

MAX_BYTES = 1 << 20
"""A larger file takes too long to compare inside a commit."""
MAX_FILES = 16
"""How many files are compared for one call."""

IsOurs = Callable[[str], bool]
"""Whether an absolute path, which no link is part of, is such a file."""


def nothing_is_ours(path: str) -> bool:
    """Nothing is known of what file tools wrote."""
    return False


def ours(workspace: str, written: Sequence[Written], new_digest: NewDigest) -> IsOurs:
    """Return what tells the files that file tools of a session wrote, and that nothing has changed since."""
    marks = {each.path: each.mark for each in written}
    found: dict[str, str] = {}

    def is_ours(path: str) -> bool:
        inside = path.removeprefix(f"{workspace}/")
        mark = marks.get(inside, "") if inside != path else ""
        if mark and inside not in found and len(found) < MAX_FILES:
            found[inside] = _mark_of(workspace, inside, new_digest)
        return bool(mark) and found.get(inside) == mark

    return is_ours


def _mark_of(workspace: str, path: str, new_digest: NewDigest) -> str:
    """Return the mark of a file; empty if it has none."""
    try:
        with open_to_read(Root(workspace), path) as (fd, found):
            # Another name of the file may be one that nobody wrote.
            if found.path != path or os.fstat(fd).st_nlink > 1:
                return ""
            content = _read(fd)
    except (Refused, OSError):
        return ""
    digest = new_digest()
    digest.update(content)
    return digest.hexdigest()[:MARK_DIGITS] if len(content) <= MAX_BYTES else ""


def _read(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)
