"""Keeps copies of protected files while a command runs that could change them, and puts them back afterwards.

The sandbox `landlock` cannot keep a file in a folder that may be changed. So what is protected is read before each
call, and compared and put back after it: contents, modes, links, what was renamed or removed, and folders on the way
that were moved. What a command put in its place is set aside under another name, because a person may have made it.
"""

# Pathlib cannot work relative to a descriptor.
# ruff: noqa: PTH101, PTH115, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from holdfast.clock import SYSTEM_CLOCK, is_coarse, is_fresh
from holdfast.opening import by
from holdfast.policy.paths import is_inside, is_within
from holdfast.protocol.fence import Fence, Undone
from holdfast.tools.aside import (
    ASIDE,
    Place,
    at,
    folder_of,
    free_name,
    has,
    move,
    rename,
    seen,
)
from holdfast.tools.blocking import Refused
from holdfast.tools.identity import Identity, of_fd, of_folder
from holdfast.tools.in_place import make_folders, put_in_place

MAX_BYTES = 32 << 20
MAX_FILES = 4_000
_CHUNK_BYTES = 1 << 16
_MOST_HELD = 64
"""How many folders are held open, to find them if they are moved. The others are made again."""
_NAME_CHARS = 50
_DRAFT = f"{ASIDE}-draft"
"""Ends the name of a file that is being made again: nothing takes the place of another one before it is whole."""
_GIVEN = "/proc/self/fd/{}"
"""Where an open file is found again, whatever its path leads to by now."""
_TOO_MUCH = (
    'No command runs in a sandbox of Landlock in this workspace: {what}. Use [sandbox] mode = "bubblewrap", or work '
    "in another folder."
)
_MOVED = (
    "Nothing was run: {path} was moved, removed or replaced while it was read. Another command may have done it. It "
    "can be called again."
)
_MOVING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class _Copy(msgspec.Struct, frozen=True):
    """What lay at a path."""

    facts: tuple[int, int, int, int]
    """Device, inode, mode, and time of the last change."""
    content: bytes | None = None
    """What a file had in it."""
    target: str = ""
    """Where a link led."""
    times_ns: tuple[int, int] = (0, 0)

    @property
    def mode(self) -> int:
        return self.facts[2]


class Kept(msgspec.Struct, frozen=True):
    """What is protected, as it was."""

    copies: Mapping[str, _Copy]
    """By path. A folder comes before what is in it."""
    above: Mapping[str, Identity]
    """Folders that hold something protected, or lie in it and may be changed, a folder before what is in it."""
    tops: tuple[str, ...]
    """The paths that the fence protects."""
    roots: tuple[str, ...]
    """What the command may change."""
    read_ns: int
    names: Mapping[str, tuple[str, ...]] | None = None
    """What may be in folders, if not all of it is in `copies`. In a folder that is not named, anything may be. None:
    all is in `copies`.
    """

    def only(self, paths: Iterable[str]) -> Kept:
        """Return what is still needed where only these could not be put right. All else is right: who changes that
        later is a person.
        """
        stuck = {*paths}
        lost = [path for path in stuck if path in self.above]
        copies = {path: copy for path, copy in self.copies.items() if path in stuck or is_within(lost, path)}
        above = {path: each for path, each in self.above.items() if is_within(lost, path)}
        unlisted = {
            path for path, copy in copies.items() if is_within(lost, path) or _is_folder_again(path, copy)
        }
        names = {path: (*self._in(path),) for path in unlisted if self.names is None or path in self.names}
        return replace(self, copies=copies, above=above, names=names)

    def _in(self, folder: str) -> Iterator[str]:
        if self.names is not None:
            return iter(self.names[folder])
        return (os.path.basename(path) for path in self.copies if os.path.dirname(path) == folder)

    def may_be_there(self, path: str) -> bool:
        """Return whether it may be in its folder, which is protected."""
        if self.names is None:
            return path in self.copies
        folder, name = os.path.split(path)
        return folder not in self.names or name in self.names[folder]


def keep(fence: Fence, homes: Iterable[str]) -> Kept:
    """Read what a fence protects.

    Args:
        fence: The fence of a command.
        homes: Holdfast's own folders, which no command may read.

    Raises:
        Refused: it is too much, or cannot be read, or Holdfast's own files can be.
    """
    for home in homes:
        if is_within(fence.writable, home):
            raise Refused(
                _TOO_MUCH.format(what=f"a folder of [sandbox] write has Holdfast's own files ({home})")
            )
    read_ns = SYSTEM_CLOCK.now_ms() * 1_000_000
    copies: dict[str, _Copy] = {}
    left = MAX_BYTES
    for path in fence.protected:
        for each, copy in _readable(path, fence.writable):
            copies[each] = copy
            left -= len(copy.content or b"")
            if left < 0 or len(copies) > MAX_FILES:
                what = f"there is too much in it that must not be changed, like {path}"
                raise Refused(_TOO_MUCH.format(what=what))
    above = {path: found for path in _above(fence) if (found := of_folder(path)) is not None}
    return Kept(copies, above, fence.protected, fence.writable, read_ns)


def opened(kept: Kept) -> dict[str, int]:
    """Open the folders above what is protected, to find them wherever they are moved."""
    held: dict[str, int] = {}
    for path in [*kept.above][:_MOST_HELD]:
        with suppress(OSError):  # what is not held is looked for
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            if of_fd(fd) == kept.above[path]:
                held[path] = fd
            else:  # another command has put something else there
                os.close(fd)
    return held


def put_back(kept: Kept, held: Mapping[str, int] = MappingProxyType({})) -> Undone:
    """Make it again as it was.

    Args:
        kept: What was protected.
        held: The open folders above it; without them, those that were moved are looked for.
    """
    changed, stuck = put_in_place(kept.above, kept.roots, held)
    lost, unmade = [*stuck], list[str]()
    for path, copy in kept.copies.items():
        if is_within(lost, path):  # what is in it comes back with it
            continue
        try:
            if not _is_same(path, copy, kept.read_ns):
                changed.append(path)
                _make_again(path, copy, kept)
        except OSError as error:
            stuck[path] = error.strerror or str(error)
            unmade.append(path)
    for (
        path,
        copy,
    ) in kept.copies.items():  # what a killed process began to make again is no longer there by now
        if stat.S_ISDIR(copy.mode) and path not in kept.roots and not is_within(lost, path):
            _empty(path, kept, changed, stuck)
    for path in unmade:  # it may have been made with what is in it
        if _is_folder_again(path, kept.copies[path]):
            del stuck[path]
    changed = [*dict.fromkeys([*changed, *stuck])]
    return Undone(tuple(changed), tuple(stuck), next(iter(stuck.values()), ""))


def righted(
    kept: Kept,
    before: Mapping[str, Place],
    others: Callable[[Mapping[str, Place]], Undone],
    held: Mapping[str, int] = MappingProxyType({}),
) -> Undone:
    """Put back what was kept, and then the rest. What was kept may be another file now.

    Args:
        kept: What was protected.
        before: What lay at controlling places.
        others: Puts right what came at these places.
        held: The folders that hold it, as `opened` returned them.
    """
    undone = put_back(kept, held)
    known = {path: place for path, place in before.items() if path not in kept.copies}
    came = others({**known, **seen(kept.copies)})
    changed = tuple(dict.fromkeys([*undone.changed, *came.changed]))
    return Undone(changed, (*undone.stuck, *came.stuck), undone.why or came.why)


def _above(fence: Fence) -> list[str]:
    """Return the folders between what may be changed and what is protected there, and those in what is protected that
    may be changed, from the top down.
    """
    found = {root for root in fence.writable if is_within(fence.protected, root)} | {
        parent
        for path in fence.protected
        for parent in map(str, Path(path).parents)
        if any(parent != root and is_inside(root, parent) for root in fence.writable)
    }
    return sorted(found, key=lambda path: (path.count("/"), path))


def _unread(path: str, error: OSError) -> Refused:
    if error.errno in _MOVING:
        return Refused(_MOVED.format(path=path))
    return Refused(_TOO_MUCH.format(what=f"the protected file {path} cannot be read ({error.strerror})"))


def _readable(path: str, roots: Collection[str]) -> Iterator[tuple[str, _Copy]]:
    """Yield the same as `_below`.

    Raises:
        Refused: something cannot be read.
    """
    try:
        yield from _below(path, roots)
    except OSError as error:
        raise _unread(str(error.filename or path), error) from error


def _below(path: str, roots: Collection[str]) -> Iterator[tuple[str, _Copy]]:
    """Yield a path and, if it is a folder, all that is in it, without what is in a root, each with what is there."""
    following = [path]
    while following:
        each = following.pop()
        with _reached(each) as (fd, found):
            yield each, _copy(fd, found)
            if stat.S_ISDIR(found.st_mode) and each not in roots:
                below = sorted(os.listdir(_GIVEN.format(fd)), reverse=True)
                following += [os.path.join(each, name) for name in below]


@contextmanager
def _reached(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Return a descriptor of what lies at a path, and facts about it. No link on the way is followed: a command that
    runs in the background may put one there at any moment, and Holdfast may read more than it.

    Raises:
        OSError: it is gone, or there is a link on the way.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if os.readlink(_GIVEN.format(fd)) != path:
                _check_way(path, found)
            yield fd, found
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _check_way(path: str, found: os.stat_result) -> None:
    """Refuse what was reached by a link. A file system may only write the names in another way.

    Raises:
        OSError: it was.
    """
    with folder_of(path) as (folder, name):
        there = os.lstat(name, dir_fd=folder)
        if (there.st_dev, there.st_ino) != (found.st_dev, found.st_ino):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _facts(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns


def _copy(fd: int, found: os.stat_result) -> _Copy:
    """Return what an open file, folder or link has in it."""
    times_ns = found.st_atime_ns, found.st_mtime_ns
    if stat.S_ISLNK(found.st_mode):
        return _Copy(_facts(found), target=os.readlink("", dir_fd=fd))
    if stat.S_ISREG(found.st_mode):
        return _Copy(_facts(found), _content(fd), times_ns=times_ns)
    return _Copy(_facts(found), times_ns=times_ns)


def _content(fd: int) -> bytes:
    """Return what is in a file, but not much more than may be kept."""
    file = os.open(_GIVEN.format(fd), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        chunks, left = [os.read(file, _CHUNK_BYTES)], MAX_BYTES
        while chunks[-1] and left >= 0:
            left -= len(chunks[-1])
            chunks.append(os.read(file, _CHUNK_BYTES))
        return b"".join(chunks)
    finally:
        os.close(file)


def _is_same(path: str, copy: _Copy, read_ns: int) -> bool:
    """Return whether a path has what it had. Reads the file only if its time says that it may have changed.

    Raises:
        OSError: nobody can tell.
    """
    try:
        found = os.lstat(path)
        if _facts(found) == copy.facts and _is_proof(found.st_ctime_ns, read_ns // 1_000_000):
            return True
        if stat.S_ISDIR(copy.mode) or copy.mode != found.st_mode:
            # What is in a folder is compared by itself. It does not matter who made the folder.
            return copy.mode == found.st_mode
        with _reached(path) as (fd, found):
            now = _copy(fd, found)
    except OSError as error:
        if error.errno in (*_MOVING, errno.EACCES):
            return False
        raise
    return (now.mode, now.content, now.target) == (copy.mode, copy.content, copy.target)


def _is_proof(changed_ns: int, read_ms: int) -> bool:
    """Return whether a file is the same as long as it has this time. A file system that counts whole seconds may have
    no time that a program cannot set.
    """
    return not is_coarse(changed_ns) and not is_fresh(changed_ns, read_ms)


def _make_again(path: str, copy: _Copy, kept: Kept) -> None:
    """Make a file, a folder or a link as it was. What is there instead is put aside.

    Raises:
        OSError: that is not possible.
    """
    make_folders(path, kept.roots)
    with folder_of(path) as (folder, name):
        if has(folder, name):
            if _has_its_mode_again(folder, name, copy):
                return
            set_aside(path, kept.tops)
        if stat.S_ISLNK(copy.mode):
            os.symlink(copy.target, name, dir_fd=folder)
        elif stat.S_ISDIR(copy.mode):
            os.mkdir(name, stat.S_IMODE(copy.mode), dir_fd=folder)
        elif copy.content is not None:
            _write(folder, name, copy)


def _write(folder: int, name: str, copy: _Copy) -> None:
    """Make a file, which is there whole or not at all.

    Raises:
        OSError: it could not be made, as when the disk is full.
    """
    draft = name[:_NAME_CHARS] + _DRAFT
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    if has(folder, draft):  # of a process that was killed meanwhile, or a trap of a command
        if stat.S_ISDIR(os.lstat(draft, dir_fd=folder).st_mode):
            os.rename(draft, free_name(draft, folder), src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(draft, dir_fd=folder)
    try:
        with open(draft, "wb", opener=by(flags, folder=folder)) as file:
            file.write(copy.content or b"")
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(copy.mode))
            os.utime(file.fileno(), ns=copy.times_ns)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):  # the next try removes it
            os.unlink(draft, dir_fd=folder)
        raise


def keep_aside(path: str, kept: Kept) -> bool:
    """Make what was at a path again beside what somebody has made there since, unless that is the same. Return
    whether it is not.

    Raises:
        OSError: it could not be made.
    """
    copy = kept.copies[path]
    if _is_same(path, copy, kept.read_ns):
        return False
    with aside_of(path, kept.tops) as (_, _, folder, name):
        if stat.S_ISLNK(copy.mode):
            os.symlink(copy.target, name, dir_fd=folder)
        elif copy.content is not None:
            _write(folder, name, copy)
    return True


def _has_its_mode_again(folder: int, name: str, copy: _Copy) -> bool:
    """Give a file or folder its mode again, if it differs in nothing else. Return whether it has it.

    Raises:
        OSError: it could not be given.
    """
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if stat.S_IFMT(found.st_mode) != stat.S_IFMT(copy.mode) or stat.S_ISLNK(copy.mode):
            return False
        if not stat.S_ISDIR(copy.mode):
            try:
                if _copy(fd, found).content != copy.content:
                    return False
            except PermissionError:  # a program closed it to its owner
                return False
        os.chmod(_GIVEN.format(fd), stat.S_IMODE(copy.mode))
        return True
    finally:
        os.close(fd)


def _is_folder_again(path: str, copy: _Copy) -> bool:
    """Return whether a folder lies where one was, with the mode that it had."""
    try:
        return stat.S_ISDIR(copy.mode) and os.lstat(path).st_mode == copy.mode
    except OSError:  # then it is tried again
        return False


def _empty(path: str, kept: Kept, changed: list[str], stuck: dict[str, str]) -> None:
    """Put aside what came into a protected folder. Notes what it was, and what failed."""
    try:
        found = at(path)
        if found is None or not stat.S_ISDIR(found.st_mode):  # it could not be made, which is said
            return
        names = os.listdir(path)
    except OSError as error:
        stuck[path] = error.strerror or str(error)
        return
    for name in names:
        each = os.path.join(path, name)
        if kept.may_be_there(each):
            continue
        try:
            set_aside(each, kept.tops)
        except FileNotFoundError:
            continue
        except OSError as error:
            stuck[each] = error.strerror or str(error)
        changed.append(each)


def set_aside(path: str, tops: Iterable[str]) -> None:
    """Put aside what lies at a path, out of the protected folder: its programs may read all that is in it.

    Raises:
        OSError: that is not possible.
    """
    with aside_of(path, tops) as (source, name, target, aside):
        if source == target:
            rename(path)
        else:
            move(name, source, aside, target)


@contextmanager
def aside_of(path: str, tops: Iterable[str]) -> Iterator[tuple[int, str, int, str]]:
    """Return the folder of a path, its name, and where it would be put aside: a folder, and a name there.

    Raises:
        OSError: that is not possible.
    """
    top = next((each for each in tops if each != path and is_inside(each, path)), "")
    with folder_of(path) as (source, name):
        if not top:
            yield source, name, source, free_name(name, source)
            return
        with folder_of(top) as (target, above):
            yield source, name, target, free_name(f"{above}.{name}", target)
