"""Puts files back, each completely or not at all, and only if it is what it was when that was decided.

A file is walked to as a file tool does it: no link leads away, and nothing that a file tool may not write is written.
What is overwritten is kept, so that an undo can be undone. `views.edits` says what to put back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from holdfast.errors import StorageCorrupt
from holdfast.protocol.ports import Check
from holdfast.protocol.tools import FileRestore
from holdfast.storage.images import IMAGE_BYTES, Images
from holdfast.tools.blocking import Refused
from holdfast.tools.own import OwnPlaces
from holdfast.tools.workspace import (
    MISSING,
    PathRefused,
    Place,
    Root,
    look,
    open_regular,
    open_to_read,
    place,
    refuse_other_kinds,
    refuse_protected,
)
from holdfast.tools.writing import changed, content_hash, is_same, listable, permissions, replace_file, sweep
from holdfast.views import edits

GONE = "its old content is not kept, or was dropped"


class Shelf(msgspec.Struct, frozen=True):
    """Where the content of edited files is kept for a session and those that it branched off from."""

    images: Images
    session: str
    lineage: tuple[str, ...]

    def content(self, mark: str) -> bytes | None:
        """Return what was kept; None if it was not kept or was changed."""
        try:
            return self.images.get(self.lineage, mark)
        except StorageCorrupt:
            return None


def look_at(own: OwnPlaces, images: Images, where: edits.Place) -> edits.Found:
    """Return what is at a place, and why it cannot be put back, if so."""
    try:
        with place(Root(where.workspace, own), where.path) as found:
            _refuse_other(where.path, found)
            return edits.Found(content_hash(found, images.digest), permissions(look(found)))
    except (Refused, OSError) as error:
        return edits.Found("", 0, _reason(error))


def content_at(own: OwnPlaces, where: edits.Place) -> bytes | None:
    """Return the content of a file for a diff; None if the file does not exist, is too large, or may not be read."""
    try:
        with (
            open_to_read(Root(where.workspace, own), where.path) as (fd, _),
            open(fd, "rb", closefd=False) as file,
        ):
            content = file.read(IMAGE_BYTES + 1)
    except (Refused, OSError):
        return None
    return content if len(content) <= IMAGE_BYTES else None


def put_back(own: OwnPlaces, goal: FileRestore, shelf: Shelf, check: Check) -> str:
    """Put one file back. Return why it was left as it is; empty if it is what it was.

    Raises:
        StorageError: what is overwritten could not be kept. The file is whole.
        Fenced: the `check` failed. The file is whole.
    """
    content = shelf.content(goal.after) if goal.after not in ("", goal.before) else b""
    if content is None:
        return GONE
    root = Root(goal.workspace, own)
    try:
        with place(root, goal.path) as found:
            _refuse_other(goal.path, found)
            if found.folder_fd != MISSING:
                with listable(found) as folder:
                    sweep(folder)
            facts, now = look(found), content_hash(found, shelf.images.digest)
            if now == goal.after:
                return ""
            if now != goal.before:
                return edits.since(now)
        with place(root, goal.path, makes_folders=bool(goal.after)) as found:
            if now:
                with open_regular(found, goal.path) as fd:
                    if shelf.images.keep(shelf.session, fd) != now:
                        return edits.CHANGED
            if goal.after:
                replace_file(found, goal.path, content, facts, check, goal.mode)
            else:
                _remove(found, goal.path, facts, check)
    except (Refused, OSError) as error:
        return _reason(error)
    return ""


def remove_folders(own: OwnPlaces, goals: Iterable[FileRestore], check: Check) -> None:
    """Remove the folders that were made for removed files and are empty now, the deepest first."""
    folders = {
        edits.Place(goal.workspace, folder)
        for goal in goals
        if not goal.after
        for folder in _above(goal.path, goal.new_folders)
    }
    for where in sorted(folders, key=lambda each: each.path.count("/"), reverse=True):
        with suppress(Refused, OSError), place(Root(where.workspace, own), where.path) as found:
            if found.path == where.path and found.folder_fd != MISSING:
                check()
                os.rmdir(found.name, dir_fd=found.folder_fd)
                with listable(found) as folder:
                    os.fsync(folder)


def _above(path: str, count: int) -> Sequence[str]:
    names = path.split("/")[:-1]
    return ["/".join(names[: len(names) - up]) for up in range(min(count, len(names)))]


def _refuse_other(path: str, found: Place) -> None:
    """Refuse what is not the file that was edited."""
    refuse_protected(path, found, "write")
    if found.path != path:
        raise PathRefused("a link leads elsewhere now")
    facts = look(found)
    if facts is not None:
        refuse_other_kinds(path, facts.st_mode)
        if facts.st_nlink > 1:
            raise PathRefused("it has other names (hard links)")


def _remove(found: Place, path: str, before: os.stat_result | None, check: Check) -> None:
    check()
    if not is_same(before, look(found)):
        raise changed(path)
    with listable(found) as folder:
        os.unlink(found.name, dir_fd=folder)
        os.fsync(folder)


def _reason(error: Refused | OSError) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
