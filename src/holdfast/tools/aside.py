"""Puts aside what a command made that controls other programs, and puts links of that kind back.

A sandbox keeps what is there. It cannot keep a name free, because nothing can be mounted where nothing is, nor on a
link. So the places are compared afterwards. Nothing is removed: a person may have made the file meanwhile.
"""

# Pathlib cannot work relative to a descriptor, and makes an object for each name.
# ruff: noqa: PTH101, PTH115, PTH120

from __future__ import annotations

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
_NAME_CHARS = 200
_SUFFIX_BYTES = len(ASIDE) + 8
"""What may follow the name of something that is put aside."""


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
    """Return what lies at these paths now. In place of a path in a closed folder, this folder is there."""
    found: dict[str, Place] = {}
    for path in paths:
        try:
            found[path] = _place(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # what nobody can look at is not gone
            above = there(os.path.dirname(path))
            with suppress(OSError):
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
        return Place(identity, os.readlink(path), facts.st_ctime_ns)
    is_shut = stat.S_ISDIR(facts.st_mode) and is_closed(path)
    return Place(identity, "", facts.st_ctime_ns if is_shut else 0)


def there(path: str) -> str:
    """Return a path if something lies there; the folder on the way that nobody can look into, if there is one; empty
    if nothing lies there.
    """
    while True:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            path = os.path.dirname(path)
        else:
            return path


def place_of(fd: int) -> str:
    """Return where what is open lies now; empty if it is gone."""
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{fd}")
        there, held = os.lstat(path), os.fstat(fd)
        return path if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino) else ""
    return ""


def is_closed(folder: str) -> bool:
    """Return whether this process can neither list nor pass a folder, or one of both."""
    return not os.access(folder, os.R_OK | os.X_OK, effective_ids=True)


def open_up(folder: str) -> bool:
    """Open a folder to its owner, if that is the user. Return whether it was closed."""
    with suppress(OSError), folder_of(folder) as (above, name):
        fd = os.open(name, _PASSED | os.O_NOFOLLOW, dir_fd=above)
        try:
            facts = os.fstat(fd)
            mode = stat.S_IMODE(facts.st_mode)
            if mode & _LOOKED != _LOOKED and facts.st_uid == os.geteuid():
                os.chmod(f"/proc/self/fd/{fd}", mode | stat.S_IRWXU)
                return True
        finally:
            os.close(fd)
    return False


def put_right(
    before: Mapping[str, Place],
    paths: Iterable[str],
    gone: Collection[str] = (),
    led: Collection[str] = (),
) -> Undone:
    """Put aside what is new at these paths, and put back the links that were there before.

    Args:
        before: What lay there before.
        paths: Where something new may be.
        gone: What of that was no longer there when the command began. Something else at its place is new.
        led: Where something protected leads. Nothing new may stay there, whatever it is called.
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
        # What moved with its folder stays. What is still in its place has got a second name by a hard link.
        moved = {*before.values()} - {*seen(before).values()}
        made = [path for path in made if now[path] not in moved]
    places = {*paths, *before}
    wrong = (path for each in made for path in ((each,) if each in led else unwanted(each, places)))
    changed, stuck = opened, dict[str, str]()
    for path in wrong:
        try:
            rename(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            stuck[path] = error.strerror or str(error)
        changed.append(path)
    for path, place in before.items():
        if place.target and _target(path) != place.target and _put_back(path, place.target):
            changed.append(path)
    return Undone(tuple(sorted(changed)), tuple(stuck), next(iter(stuck.values()), ""))


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


def put_aside(path: str) -> bool:
    """Rename it. Return whether it succeeded."""
    with suppress(OSError):
        rename(path)
        return True
    return False


def rename(path: str) -> None:
    """Give something a name that says that it was put aside. Nothing on the way may be a link: a program may swap a
    folder at any moment.

    Raises:
        OSError: it could not be renamed.
    """
    with folder_of(path) as (folder, name):
        aside = free_name(name, folder)
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        with suppress(OSError):
            _take_other_names(aside, folder)


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
    return next(each for each in _names(os.fsdecode(os.fsencode(name)[:most])) if not _has(folder, each))


def is_aside(path: str) -> bool:
    """Return whether a relative path, or a folder on it, has a name as things have that were put aside."""
    return any(map(_PUT_ASIDE.search, path.split("/")))


def _has(folder: int, name: str) -> bool:
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


def _target(path: str) -> str:
    """Return where a link leads; empty if there is none."""
    with suppress(OSError):
        return os.readlink(path)
    return ""


def _put_back(path: str, target: str) -> bool:
    """Make a link again, if its folder is still there."""
    with suppress(OSError), folder_of(path) as (folder, name):
        if os.path.lexists(path):
            put_aside(path)
        os.symlink(target, name, dir_fd=folder)
        return True
    return False


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
        for again, mode in reversed(let_in):
            with suppress(OSError):
                os.chmod(f"/proc/self/fd/{again}", mode)
            os.close(again)


def _let_in(fd: int, let_in: list[tuple[int, int]]) -> None:
    """Open a folder to its owner, if a program has closed it. Note it, with its mode."""
    facts = os.fstat(fd)
    mode = stat.S_IMODE(facts.st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU and facts.st_uid == os.geteuid():
        with suppress(OSError):
            os.chmod(f"/proc/self/fd/{fd}", mode | stat.S_IRWXU)
            if len(let_in) < _MOST_CLOSED_AGAIN:
                let_in.append((os.dup(fd), mode))
