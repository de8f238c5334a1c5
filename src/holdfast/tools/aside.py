"""Puts aside what a command made that controls other programs, and puts links of that kind back.

A sandbox keeps what is there. It cannot keep a name free, because nothing can be mounted where nothing is, nor on a
link. So the places are compared afterwards. Nothing is removed: a person may have made the file meanwhile.
"""

# Pathlib cannot work relative to a descriptor, and makes an object for each name.
# ruff: noqa: PTH101, PTH115, PTH120

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from holdfast.opening import UNFOLLOWED, by
from holdfast.protocol.fence import Undone
from holdfast.tools.git_made import unwanted

ASIDE = ".put-aside"
_PUT_ASIDE = re.compile(rf"{re.escape(ASIDE)}(?:-\d+|-draft)?\Z")
_PASSED = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder on the way is opened. Others may let the user pass it and not list it, as many a `/home` does."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOKED = stat.S_IRUSR | stat.S_IXUSR
"""What the owner needs to look into a folder."""
_MOST_CLOSED_AGAIN = 64
"""So many folders on the way to a path are closed again. Each takes an open file until then."""
_SHOWN = 100
"""What is not named is only counted, and a person would have to look for it."""
NOT_YET = "Holdfast keeps what was there, and tries again before the next command."
_OPEN = "/proc/self/fd/{}"
_NAME_CHARS = 200
_SUFFIX_BYTES = len(ASIDE) + 8
"""What may follow the name of something that is put aside."""


_GONE = (FileNotFoundError, NotADirectoryError)
_SHUT = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""A program can make these errors last. All others are a matter of the machine."""


class Place(msgspec.Struct, frozen=True):
    """What lies at a place."""

    identity: tuple[int, int]
    """Device and inode."""
    target: str = ""
    """Where it leads, if it is a link."""
    changed_ns: int = 0
    """Of a link or a closed folder, the time of its last change, which no program can set. No sandbox holds a link.
    If a program removes one, the next file that is made may get its inode.
    """

    @property
    def is_shut(self) -> bool:
        """Whether it is a folder that nobody can look into."""
        return bool(self.changed_ns) and not self.target


def seen(paths: Iterable[str]) -> dict[str, Place]:
    """Return what lies at these paths now. In place of a path in a closed folder, this folder is there.

    Raises:
        OSError: nobody can tell, as when a disk fails. What lies there then must not count as gone, or as new.
    """
    found: dict[str, Place] = {}
    for path in paths:
        try:
            found[path] = _place(path)
        except _GONE:
            continue
        except OSError as error:  # what nobody can look at is not gone
            if error.errno not in _SHUT:
                raise
            above = there(os.path.dirname(path))
            with suppress(*_GONE):
                found[above] = _place(above)
    return found


def _place(path: str) -> Place:
    """Look at one place.

    Raises:
        OSError: it is gone, or nobody can look at it.
    """
    facts = os.lstat(path)
    identity = facts.st_dev, facts.st_ino
    if stat.S_ISLNK(facts.st_mode):
        try:
            return Place(identity, os.readlink(path), facts.st_ctime_ns)
        except OSError as error:
            if error.errno == errno.EINVAL:  # something else came there in this moment
                return _place(path)
            raise
    is_shut = stat.S_ISDIR(facts.st_mode) and is_closed(path)
    return Place(identity, "", facts.st_ctime_ns if is_shut else 0)


def there(path: str) -> str:
    """Return a path if something lies there; the folder on the way that nobody can look into, if there is one; empty
    if nothing lies there.

    Raises:
        OSError: nobody can tell.
    """
    while True:
        try:
            os.lstat(path)
        except _GONE:
            return ""
        except OSError as error:
            if error.errno not in _SHUT:
                raise
            path = os.path.dirname(path)
        else:
            return path


def place_of(fd: int) -> str:
    """Return where what is open lies now; empty if it is gone.

    Raises:
        OSError: nobody can tell.
    """
    path, held = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd)
    found = at(path)
    return path if found is not None and os.path.samestat(found, held) else ""


def at(path: str) -> os.stat_result | None:
    """Return facts of what lies at a path; None if nothing does. Looks also behind folders that a program closed.

    Raises:
        OSError: nobody can tell.
    """
    try:
        try:
            return os.lstat(path)
        except OSError as error:
            if error.errno not in _SHUT:
                raise
        with folder_of(path) as (folder, name):
            return os.lstat(name, dir_fd=folder)
    except _GONE:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link is on the way
            return None
        raise


def is_closed(folder: str) -> bool:
    """Return whether this process can neither list nor pass a folder, or one of both."""
    return not os.access(folder, os.R_OK | os.X_OK, effective_ids=True)


def open_up(folder: str) -> bool:
    """Open a folder to its owner, if that is the user. Return whether it was closed.

    Raises:
        OSError: it is closed, and cannot be opened.
    """
    try:
        with folder_of(folder) as (above, name):
            fd = os.open(name, _PASSED | os.O_NOFOLLOW, dir_fd=above)
            try:
                facts = os.fstat(fd)
                mode = stat.S_IMODE(facts.st_mode)
                if mode & _LOOKED != _LOOKED and facts.st_uid == os.geteuid():
                    os.chmod(_OPEN.format(fd), mode | stat.S_IRWXU)
                    return True
            finally:
                os.close(fd)
    except OSError as error:
        # It is gone, or something else than a folder, or belongs to somebody else.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, *_SHUT):
            raise
    return False


def put_right(
    before: Mapping[str, Place],
    paths: Iterable[str],
    gone: Collection[str] = (),
    led: Collection[str] = (),
    *,
    is_mounted: bool = True,
) -> Undone:
    """Put aside what is new at these paths, and put back the links that were there before.

    Args:
        before: What lay there before.
        paths: Where something new may be.
        gone: What of that was no longer there when the command began. Something else at its place is new.
        led: Where something protected leads. Nothing new may stay there, whatever it is called.
        is_mounted: A mount was upon what lay there before, so the command could not move it.
    """
    paths = [*paths, *led]
    now = seen(paths)
    known = {*before, *paths}
    opened = [
        path
        for path, place in now.items()
        if (path not in known or _is_closed_now(place, before.get(path))) and open_up(path)
    ]
    if opened:
        now = seen(paths)
    made = [
        path
        for path, place in now.items()
        if _is_new(place, before.get(path)) or _is_another(path, place, before, gone)
    ]
    if made:
        # What a person moved meanwhile stays, under the name that it had. What is still in its place has got a second
        # name by a hard link.
        moved = {*_held(before, is_mounted=is_mounted)} - {*_held(seen(before), is_mounted=is_mounted)}
        made = [path for path in made if (_name(path), now[path]) not in moved]
    places = {*paths, *before}
    wrong = (path for each in made for path in ((each,) if each in led else unwanted(each, places)))
    changed, stuck = opened, dict[str, str]()
    for path in wrong:
        try:
            rename(path)
        except _GONE:
            continue
        except OSError as error:
            stuck[path] = error.strerror or str(error)
        changed.append(path)
    for path, place in before.items():
        try:
            if place.target and leads_to(path) != place.target:
                put_link_back(path, place.target)
                changed.append(path)
        except OSError as error:
            if not _is_gone(error):  # with its folder
                stuck[path] = error.strerror or str(error)
                changed.append(path)
    return Undone(tuple(sorted({*changed})), tuple(stuck), next(iter(stuck.values()), ""))


def _held(places: Mapping[str, Place], *, is_mounted: bool) -> Iterator[tuple[str, Place]]:
    """Yield what no command could have moved or removed by itself, so that nothing else got its inode: what had a
    mount upon it, and links, whose time tells. Some folders of a repository have no mount, and keep their names.
    """
    for path, place in places.items():
        if place.target or is_mounted:
            yield _name(path), place


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_gone(error: OSError) -> bool:
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _is_closed_now(now: Place, was: Place | None) -> bool:
    return was is not None and now.is_shut and not was.is_shut


def _is_new(now: Place, was: Place | None) -> bool:
    """Return whether something came to a place: also a link in the place of something else. A folder that is closed,
    and was, may have been open meanwhile.
    """
    return was is None or bool(now.target and not was.target) or (was.is_shut and now.is_shut and now != was)


def _is_another(path: str, place: Place, before: Mapping[str, Place], gone: Collection[str]) -> bool:
    """Return whether something else came to a place that had become empty."""
    return path in gone and not before[path].target and place.identity != before[path].identity


def told(undone: Undone, workspace: str) -> str:
    """Return what the model reads of it at the end of a result; empty if there is nothing to say."""
    return f"\n[{sentence(undone, workspace)}]" if undone.changed else ""


def sentence(undone: Undone, workspace: str) -> str:
    """Return what happened, in words."""
    stuck = f"Not put back: {not_put_back(undone, workspace)}. {NOT_YET} " if undone.stuck else ""
    but = ", but for these" if undone.stuck else ""
    return (
        f"{stuck}While it ran, files came or changed that control other programs: "
        f"{names(undone.changed, workspace)}. Commands in a sandbox may not do that. What came was put aside "
        f"under a name with {ASIDE}, and what was there before was put back{but}. A person can make or change them."
        f"{_stays(undone, workspace)}"
    )


def again(undone: Undone, workspace: str) -> str:
    """Return in words what another try changed, after the first one had failed."""
    done = names([path for path in undone.changed if path not in undone.stuck], workspace)
    right = f"What could not be put back before is right now: {done}. What came has a name with {ASIDE}."
    return f"{right if done else ''}{_stays(undone, workspace)}".strip()


def _stays(undone: Undone, workspace: str) -> str:
    if not undone.since:
        return ""
    return (
        f" Before it could be put back, somebody changed {names(undone.since, workspace)}: that stays. A file that "
        f"was there before the command lies beside it, with {ASIDE} in its name."
    )


def not_put_back(undone: Undone, workspace: str) -> str:
    """Return which files could not be put back, and why."""
    return names(undone.stuck, workspace) + (f" ({undone.why})" if undone.why else "")


def names(paths: Collection[str], workspace: str) -> str:
    """Return the names of files in a sentence."""
    found = [_shown(os.path.relpath(path, workspace)) for path in paths]
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _shown(name: str) -> str:
    """Return a name on one line, and not too long: a command chose it, and Holdfast says it."""
    plain = name if name.isprintable() else ascii(name)[1:-1]
    return plain if len(plain) <= _NAME_CHARS else f"...{plain[-_NAME_CHARS:]}"


def rename(path: str) -> None:
    """Give something a name that says that it was put aside. Nothing on the way may be a link: a program may swap a
    folder at any moment.

    Raises:
        OSError: it could not be renamed.
    """
    with folder_of(path) as (folder, name):
        aside = free_name(name, folder)
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        with suppress(
            OSError
        ):  # it controls nothing there, and `other_names` finds the rest if it is given its name back
            _take_other_names(aside, folder)


def move(name: str, folder: int, new: str, target: int) -> None:
    """Move something into another folder; both are open. Its `..` changes then: who may not write in it may not do
    that, so it is open to its owner meanwhile.

    Raises:
        OSError: it could not be moved.
    """
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    let_in: list[tuple[int, int]] = []
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _let_in(fd, let_in)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=target)
    finally:
        os.close(fd)
        _close_again(let_in)


def put_link_back(path: str, target: str) -> None:
    """Make a link again. What is there instead is put aside.

    Raises:
        OSError: it could not be made, or its folder is gone.
    """
    with folder_of(path) as (folder, name):
        if has(folder, name):
            rename(path)
        os.symlink(target, name, dir_fd=folder)


def _take_other_names(name: str, folder: int) -> None:
    """Make a file one of its own if it has other names: else who knows these could change it after a person has
    looked at it and given its name back.
    """
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink == 1:
        return
    with open(name, "rb", opener=by(UNFOLLOWED, folder=folder)) as old:
        copy = free_name(name, folder)
        try:
            with open(copy, "wb", opener=by(_NEW, folder=folder)) as new:
                shutil.copyfileobj(old, new)
                os.fchmod(new.fileno(), stat.S_IMODE(facts.st_mode))
            os.replace(copy, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:  # the disk may be full
            os.unlink(copy, dir_fd=folder)


def free_name(name: str, folder: int) -> str:
    """Return a name for what is put aside, which nothing in the folder of the descriptor has."""
    # A name may be as long as any can be, and what cannot be renamed would stay.
    most = os.fpathconf(folder, "PC_NAME_MAX") - _SUFFIX_BYTES
    return next(each for each in _names(os.fsdecode(os.fsencode(name)[:most])) if not has(folder, each))


def is_aside(path: str) -> bool:
    """Return whether a relative path, or a folder on it, has a name as things have that were put aside."""
    return any(map(_PUT_ASIDE.search, path.split("/")))


def has(folder: int, name: str) -> bool:
    """Return whether an open folder has something of this name."""
    # A list of all names for each of thousands would take the square of the time.
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _names(name: str) -> Iterator[str]:
    yield name + ASIDE
    number = 2
    while True:
        yield f"{name}{ASIDE}-{number}"
        number += 1


def leads_to(path: str) -> str:
    """Return what a link says; empty if it says nothing.

    Raises:
        OSError: nobody can tell.
    """
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR, *_SHUT):
            return ""
        raise


@contextmanager
def folder_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a path, and return its descriptor with the last name. If a program has closed folders to
    their owner, they are open to them meanwhile; of a great many, some stay so.

    Raises:
        OSError: a part of the path is a link, or gone.
    """
    *folders, name = path.split("/")[1:]
    let_in: list[tuple[int, int]] = []
    fd = os.open("/", _PASSED)
    try:
        for each in folders:  # there may be more of them than files may be open
            above, fd = fd, os.open(each, _PASSED | os.O_NOFOLLOW, dir_fd=fd)
            os.close(above)
            _let_in(fd, let_in)
        # What is only passed cannot be listed.
        above, fd = fd, os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        os.close(above)
        yield fd, name
    finally:
        os.close(fd)
        _close_again(let_in)


def _close_again(let_in: list[tuple[int, int]]) -> None:
    for fd, mode in reversed(let_in):
        with suppress(OSError):  # then it stays open to its owner, and to nobody else
            os.chmod(_OPEN.format(fd), mode)
        os.close(fd)


def _let_in(fd: int, let_in: list[tuple[int, int]]) -> None:
    """Open a folder to its owner, if a program has closed it. Note it, with its mode."""
    facts = os.fstat(fd)
    mode = stat.S_IMODE(facts.st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU and facts.st_uid == os.geteuid():
        with suppress(OSError):  # who cannot pass it hears of that from the next step
            os.chmod(_OPEN.format(fd), mode | stat.S_IRWXU)
            if len(let_in) < _MOST_CLOSED_AGAIN:
                let_in.append((os.dup(fd), mode))
