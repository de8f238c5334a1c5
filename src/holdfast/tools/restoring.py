"""Puts files back, each completely or not at all, and only if it is what it was when that was decided.

A file is walked to as a file tool does it: no link leads away, and nothing that a file tool may not write is written.
What is overwritten is kept, so that an undo can be undone. `views.edits` says what to put back.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH114, PTH118

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from holdfast.errors import StorageCorrupt
from holdfast.policy.paths import above
from holdfast.protocol.ports import Check
from holdfast.protocol.tools import FileRestore
from holdfast.storage.images import IMAGE_BYTES, Images
from holdfast.tools import writing
from holdfast.tools.blocking import Refused
from holdfast.tools.own import OwnPlaces, identity
from holdfast.tools.workspace import (
    MISSING,
    NotAFolder,
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
from holdfast.tools.writing import (
    changed,
    content_hash,
    is_same,
    listable,
    missing_folders,
    permissions,
    replace_file,
    sweep,
)
from holdfast.views import edits

LINK = stat.S_IFLNK
"""Stands for the permission bits of a symbolic link. Its content is where it leads."""
_LEADS_TO = b"\0link to "
"""Begins the content of a link, so that no usual file has the same."""
_ELSEWHERE = "a link leads elsewhere now"
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
    """Return what is at a place, and why it cannot be put back, if so. Under a file or link there is nothing."""
    if _is_under_link(where.workspace, where.path):
        return edits.Found("", odd=_ELSEWHERE)
    try:
        with place(Root(where.workspace, own), where.path, follows_last=False) as found:
            if _is_folder(found, where.path):
                return edits.Found("", odd=f"{where.path} is a folder, not a file.")
            _refuse_other(where.path, found)
            mark, mode = state_of(found, images)
            return edits.Found(mark, mode, odd=_ELSEWHERE if mode == LINK else "")
    except NotAFolder as error:
        return edits.Found("", odd=_reason(error))
    except (Refused, OSError) as error:
        return edits.Found("", 0, _reason(error))


def _is_under_link(workspace: str, path: str) -> bool:
    top = os.path.realpath(workspace)
    return any(os.path.islink(os.path.join(top, folder)) for folder in above(path))


def state_of(found: Place, images: Images) -> tuple[str, int]:
    """Return the mark and the permission bits of a file or link; ("", 0) if nothing is there."""
    facts = look(found)
    if facts is not None and stat.S_ISLNK(facts.st_mode):
        return images.mark(link_content(os.readlink(found.name, dir_fd=found.folder_fd))), LINK
    return content_hash(found, images.digest), permissions(facts)


def link_content(target: str) -> bytes:
    """Return what is kept of a symbolic link."""
    return _LEADS_TO + os.fsencode(target)


def target_in(content: bytes) -> str:
    """Return where a kept link leads."""
    return os.fsdecode(content.removeprefix(_LEADS_TO))


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


def put_back(
    own: OwnPlaces, goal: FileRestore, shelf: Shelf, check: Check, swept: set[tuple[int, int]]
) -> str:
    """Put one file back. Return why it was left as it is; empty if it is what it was. `swept`: the folders that were
    swept already. To list a folder for each of its files would take their square.

    Raises:
        StorageError: what is overwritten could not be kept. The file is whole.
        Fenced: the `check` failed. The file is whole.
    """
    content = shelf.content(goal.after) if goal.after not in ("", goal.before) else b""
    if content is None:
        return GONE
    root = Root(goal.workspace, own)
    if not goal.after and _is_under_link(goal.workspace, goal.path):
        return ""  # there is no such file
    new_folders = 0
    try:
        with place(root, goal.path, follows_last=False) as found:
            if not goal.after and _is_folder(found, goal.path):
                return ""  # nor here
            _refuse_other(goal.path, found)
            new_folders = missing_folders(found)
            _sweep(found, swept)
            facts, (now, mode) = look(found), state_of(found, shelf.images)
            if mode == LINK not in (goal.before_mode, goal.mode):
                return _ELSEWHERE
            if goal.before == goal.after == now and mode != goal.mode != LINK:
                return _change_mode(found, goal, mode, check)
            if now == goal.after:
                return ""
            if now != goal.before:
                return edits.since(now)
        with place(root, goal.path, makes_folders=bool(goal.after), follows_last=False) as found:
            if now and _kept(found, goal.path, shelf, mode) != now:
                return edits.CHANGED
            _make(found, goal, content, facts, check)
    except NotAFolder as error:
        return _reason(error) if goal.after else ""
    except (Refused, OSError) as error:
        writing.remove_folders(root, goal.path, new_folders, check)
        return _reason(error)
    return ""


def _sweep(found: Place, swept: set[tuple[int, int]]) -> None:
    if found.folder_fd != MISSING:
        with listable(found) as folder:
            if (at := identity(os.fstat(folder))) not in swept:
                sweep(folder)
                swept.add(at)


def _make(
    found: Place, goal: FileRestore, content: bytes, facts: os.stat_result | None, check: Check
) -> None:
    """Make a place what it is to be."""
    if not goal.after:
        _remove(found, goal.path, facts, check)
    elif goal.mode == LINK:
        _link(found, goal.path, content, facts, check)
    else:
        replace_file(found, goal.path, content, facts, check, goal.mode, is_swept=True)


def has(own: OwnPlaces, goal: FileRestore, images: Images) -> bool:
    """Return whether a place has what it was to get: a call may fail after its effect, as a sync of the folder."""
    found = look_at(own, images, edits.Place(goal.workspace, goal.path))
    if found.problem or found.sha256 != goal.after:
        return False
    return not goal.after or goal.mode in (0, found.mode)


def _is_folder(found: Place, path: str) -> bool:
    facts = look(found)
    return facts is not None and stat.S_ISDIR(facts.st_mode) and found.path == path


def _kept(found: Place, path: str, shelf: Shelf, mode: int) -> str:
    """Keep what is overwritten. Return its mark."""
    if mode == LINK:
        content = link_content(os.readlink(found.name, dir_fd=found.folder_fd))
        return shelf.images.put(shelf.session, content)
    with open_regular(found, path) as fd:
        return shelf.images.keep(shelf.session, fd)


def _change_mode(found: Place, goal: FileRestore, mode: int, check: Check) -> str:
    """Give a file other permission bits, and leave its content."""
    if mode != goal.before_mode:
        return edits.MODE
    with open_regular(found, goal.path) as fd:
        check()
        os.fchmod(fd, goal.mode)
        os.fsync(fd)
    return ""


def remove_folders(own: OwnPlaces, goals: Iterable[FileRestore], check: Check) -> None:
    """Remove the folders that were made for removed files and are empty now, the deepest first."""
    folders = {
        edits.Place(goal.workspace, folder)
        for goal in goals
        if not goal.after
        for folder in above(goal.path)[: goal.new_folders]
    }
    for where in sorted(folders, key=lambda each: each.path.count("/"), reverse=True):
        with suppress(Refused, OSError), place(Root(where.workspace, own), where.path) as found:
            if found.path == where.path and found.folder_fd != MISSING:
                check()
                os.rmdir(found.name, dir_fd=found.folder_fd)
                with listable(found) as folder:
                    os.fsync(folder)


def _refuse_other(path: str, found: Place) -> None:
    """Refuse what is not the file that was edited."""
    refuse_protected(path, found, "write")
    if found.path != path:
        raise PathRefused(_ELSEWHERE)
    facts = look(found)
    if facts is not None and not stat.S_ISLNK(facts.st_mode):
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


def _link(found: Place, path: str, content: bytes, before: os.stat_result | None, check: Check) -> None:
    """Put a symbolic link where a file, a link or nothing is."""
    # The name follows from the content: another attempt removes what a killed one left.
    draft = f".holdfast-{hashlib.sha256(content).hexdigest()[:16]}.tmp"
    with listable(found) as folder:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        os.symlink(target_in(content), draft, dir_fd=folder)
        try:
            check()
            if not is_same(before, look(found)):
                raise changed(path)
            os.rename(draft, found.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=folder)
            raise
        os.fsync(folder)


def _reason(error: Refused | OSError) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
