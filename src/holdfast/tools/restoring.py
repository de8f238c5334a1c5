"""Puts files back, each completely or not at all, and only if it is what it was when that was decided.

A file is walked to as a file tool does it: no link leads away, and nothing that a file tool may not write is written.
What is overwritten is kept, so that an undo can be undone. `views.edits` says what to put back.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH112, PTH114, PTH118

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from holdfast.depths import walked
from holdfast.errors import StorageCorrupt
from holdfast.policy.paths import above
from holdfast.protocol.ports import Check
from holdfast.protocol.tools import FileRestore
from holdfast.storage.images import IMAGE_BYTES, Images
from holdfast.tools.blocking import Refused
from holdfast.tools.own import OwnPlaces, identity
from holdfast.tools.workspace import (
    MISSING,
    NotAFolder,
    PathRefused,
    Place,
    Root,
    kind_of,
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
from holdfast.tools.writing import remove_folders as remove_made
from holdfast.views import edits

LINK = stat.S_IFLNK
"""Stands for the permission bits of a symbolic link. Its content is where it leads."""
_LEADS_TO = b"\0link to "
"""Begins the content of a link, so that no usual file has the same."""
_ELSEWHERE = "a link leads elsewhere now"
GONE = "its old content is not kept, or was dropped"
UNREADABLE = "nobody can tell what is there now"
_ANOTHER_KIND = "a device, pipe or socket"
HowFar = Literal["done", "before", "other", "unknown"]
"""What is there now. done: what the goal says. before: what was there when it was decided. other: what something else
made of it. unknown: it cannot be read.
"""


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
            facts = look(found)
            if facts is not None and stat.S_ISDIR(facts.st_mode) and found.path == where.path:
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


def _is_no_file(workspace: str, path: str) -> bool:
    """Return whether there cannot be a file: the path leads through a link, or a folder has it."""
    whole = os.path.join(workspace, path)
    return _is_under_link(workspace, path) or (os.path.isdir(whole) and not os.path.islink(whole))


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


def how_far(own: OwnPlaces, goal: FileRestore, images: Images) -> HowFar:
    """Return how far a file is from its goal, by what is there now. A step that failed may have had its effect."""
    try:
        now, mode = _now(own, goal, images)
    except (Refused, OSError):
        return "unknown"
    is_mode_alone = goal.before == goal.after
    if now == goal.after and (not is_mode_alone or mode == goal.mode):
        return "done"
    return "before" if now == goal.before and (not is_mode_alone or mode == goal.before_mode) else "other"


def _now(own: OwnPlaces, goal: FileRestore, images: Images) -> tuple[str, int]:
    """Return the mark and the permission bits of what is there, also if Holdfast may not write it."""
    if _is_no_file(goal.workspace, goal.path):
        return "", 0
    try:
        with place(Root(goal.workspace, own), goal.path, follows_last=False) as found:
            kind = kind_of(facts.st_mode) if (facts := look(found)) is not None else ""
            if kind == "other":
                return _ANOTHER_KIND, 0
            return state_of(found, images) if kind in ("file", "link") else ("", 0)
    except NotAFolder:
        return "", 0


def is_blocked(goal: FileRestore, going: Collection[str]) -> bool:
    """Return whether a folder is where the file is to be, and holds no file but those that are going themselves. What
    cannot be read counts as such a folder.
    """
    top = os.path.join(goal.workspace, "")
    whole = top + goal.path
    try:
        if not stat.S_ISDIR(os.lstat(whole).st_mode):
            return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    files = (
        each for _, found in walked(whole) for each in found or () if not each.is_dir(follow_symlinks=False)
    )
    return all(each.path.removeprefix(top) in going for each in files)


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
    if not goal.after and _is_no_file(goal.workspace, goal.path):
        return ""
    folders = 0
    try:
        with place(root, goal.path, follows_last=False) as found:
            _refuse_other(goal.path, found)
            if found.folder_fd != MISSING:
                _clear(found, goal, shelf, swept)
            facts, (now, mode) = look(found), state_of(found, shelf.images)
            if mode == LINK not in (goal.before_mode, goal.mode):
                return _ELSEWHERE
            if goal.before == goal.after == now and mode != goal.mode != LINK:
                return _change_mode(found, goal, mode, check)
            if now == goal.after:
                return _confirmed(found)
            if now != goal.before:
                return edits.since(now)
            folders = missing_folders(found)
        with place(root, goal.path, makes_folders=bool(goal.after), follows_last=False) as found:
            if now and _kept(found, goal.path, shelf, mode) != now:
                return edits.CHANGED
            _change(found, goal, content, facts, check)
    except NotAFolder as error:
        return _reason(error) if goal.after else ""
    except (Refused, OSError) as error:
        remove_made(root, goal.path, folders, check)
        return _reason(error)
    return ""


def _change(
    found: Place, goal: FileRestore, content: bytes, before: os.stat_result | None, check: Check
) -> None:
    if not goal.after:
        _remove(found, goal.path, before, check)
    elif goal.mode == LINK:
        _link(found, goal.path, content, before, check)
    else:
        replace_file(found, goal.path, content, before, check, goal.mode, is_swept=True)


def _clear(found: Place, goal: FileRestore, shelf: Shelf, swept: set[tuple[int, int]]) -> None:
    """Remove what killed writers left in the folder of a file."""
    with listable(found) as folder:
        if (at := identity(os.fstat(folder))) not in swept:
            sweep(folder)
            swept.add(at)
        for mark, mode in ((goal.before, goal.before_mode), (goal.after, goal.mode)):
            if mark and mode == LINK and (content := shelf.content(mark)) is not None:
                with suppress(FileNotFoundError):
                    os.unlink(_link_draft(content), dir_fd=folder)


def _confirmed(found: Place) -> str:
    """Make durable what is there: the one that put it back may have been killed before that."""
    if found.folder_fd != MISSING:
        with listable(found) as folder:
            os.fsync(folder)
    return ""


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
        # A disk that fails once may be well again. Nobody would be told of an empty folder that stays.
        if not _remove_folder(own, where, check):
            _remove_folder(own, where, check)


def _remove_folder(own: OwnPlaces, where: edits.Place, check: Check) -> bool:
    """Remove a folder if it is empty. Return False if the disk failed."""
    try:
        with place(Root(where.workspace, own), where.path) as found:
            if found.path == where.path and found.folder_fd != MISSING:
                check()
                os.rmdir(found.name, dir_fd=found.folder_fd)
                with listable(found) as folder:
                    os.fsync(folder)
    except Refused:
        return True
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST)
    return True


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
    draft = _link_draft(content)
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
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        os.fsync(folder)


def _link_draft(content: bytes) -> str:
    """Return the name of a link until it has its own. It follows from the content: another attempt, or the one that
    takes it back, removes what a killed one left.
    """
    return f".holdfast-{hashlib.sha256(content).hexdigest()[:16]}.tmp"


def _reason(error: Refused | OSError) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
