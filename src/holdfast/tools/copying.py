"""Copies a workspace, and finds out later what changed in the copy.

The base is what was copied, and not a commit: staged, unstaged and untracked changes are in it. What .gitignore
leaves out is copied too, because work needs it: installed packages, caches, files with keys. But its changes do not
count.
"""

# Pathlib cannot open relative to a descriptor, which keeps the walk inside.
# ruff: noqa: PTH118, PTH123, PTH211

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.policy.paths import is_among
from holdfast.policy.protected import HOME
from holdfast.protocol.counts import counted
from holdfast.sandbox.system import program_outside
from holdfast.storage.images import Images
from holdfast.tools.blocking import Refused
from holdfast.tools.cloning import clone
from holdfast.tools.ignoring import Ignoring, ignoring
from holdfast.tools.own import Identity, OwnPlaces, identity
from holdfast.tools.repository import find
from holdfast.tools.restoring import LINK, link_content

MAX_ENTRIES = 200_000
MAX_BYTES = 4 << 30
"""How much is copied at most. The history of a repository does not count."""
MAX_DEPTH = 100
NOTHING = ("", 0)
"""The state of what is not there."""
_GIT = ".git"
_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_USUAL = (
    "__pycache__/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/", ".venv/",
    "venv/", "node_modules/", ".cache/", ".gradle/", ".DS_Store",
)  # fmt: skip
"""What is left out beside .gitignore where there is no repository: caches, and what programs install."""
_NO_GIT = f"{_GIT}: git is not installed, or only where commands could change it"
_TOO_LARGE = (
    "The workspace {folder} is too large for a copy: it has more than {entries:,} files, or more than {gib} GiB. "
    "Name a smaller folder with -w, or list in .gitignore what is not your work."
)


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A file or link of the copy, as it was copied."""

    mode: int
    """Its permission bits; `LINK` for a link."""
    mark: str
    version: tuple[int, ...]
    """Its inode, size and times. No program can set the time of a change of the inode, so as long as all of them are
    the same, the content is. Empty: it may change and have the same ones, so only its content counts."""

    @property
    def state(self) -> tuple[str, int]:
        """What `restoring.state_of` returns for it."""
        return self.mark, self.mode


class Copied(msgspec.Struct, frozen=True):
    """What was copied."""

    items: dict[str, Item]
    """All files and links but the ignored ones, by their paths."""
    ignored: tuple[str, ...]
    """The topmost ignored files and folders."""
    exclude: str
    """Further lines, as in .gitignore."""
    left_out: tuple[str, ...]
    """What was not copied, with the reason, for people."""


class Change(msgspec.Struct, frozen=True):
    """A file or link that is not what was copied."""

    path: str
    before: tuple[str, int]
    """Mark and permission bits, as `restoring.state_of` returns them."""
    after: tuple[str, int]


def copy(workspace: str, to: Path, own: OwnPlaces, images: Images) -> Copied:
    """Copy a workspace into an empty folder of which nobody else knows.

    Raises:
        Refused: it is too large or too deep, or its repository cannot be cloned.
        OSError: it cannot be read, or the copy cannot be written.
    """
    left_out: list[str] = []
    tracked: tuple[str, ...] = ()
    exclude = ""
    is_repository = os.path.lexists(os.path.join(workspace, _GIT))
    if is_repository and (git := program_outside("git")):
        tracked = clone(git, find(workspace, own), to, own)
        with suppress(FileNotFoundError):
            exclude = (to / _GIT / "info" / "exclude").read_text(errors="surrogateescape")
    else:
        exclude = "\n".join(_USUAL)
        left_out += [_NO_GIT] if is_repository else []
    with ignoring(workspace, exclude, own.homes) as asked:
        work = _Copying(workspace, to, own, images, asked, left_out)
        work.copy(tracked)
    return Copied(_at_rest(work.items), tuple(work.ignored), exclude, tuple(left_out))


def _at_rest(items: dict[str, Item]) -> dict[str, Item]:
    """Return the items as they are when a copy is made. A program may change the last ones within their time."""
    now_ms = SYSTEM_CLOCK.now_ms()
    return {
        path: replace(item, version=()) if is_fresh(item.version[-1], now_ms) else item
        for path, item in items.items()
    }


class _Copying:
    """One copy: what was copied so far, and what is left of the bounds."""

    def __init__(
        self,
        workspace: str,
        to: Path,
        own: OwnPlaces,
        images: Images,
        asked: Ignoring | None,
        left_out: list[str],
    ) -> None:
        self._workspace, self._to, self._images, self._asked = workspace, to, images, asked
        self._homes = own.identities(HOME)
        self._left_out = left_out
        self._entries, self._bytes = MAX_ENTRIES, MAX_BYTES
        self._linked: dict[Identity, str] = {}
        """Where files with several names were copied to."""
        self.items: dict[str, Item] = {}
        self.ignored: list[str] = []

    def copy(self, tracked: Iterable[str]) -> None:
        with _opened(self._workspace) as folder:
            self._folder(folder, "", self._asked)
            ignored = set(self.ignored)
            known = [path for path in tracked if is_among(path, ignored)]
            # The smallest first: a large folder of results must not keep out the installed packages.
            sized = sorted((self._measured(folder, path), path) for path in self.ignored)
            for size, path in sized:
                if size[0] > self._bytes or size[1] > self._entries:
                    self._left_out.append(
                        f"{path}: .gitignore leaves it out, and it is too large for the copy"
                    )
                else:
                    self._ignored(folder, path)
        for path in known:  # .gitignore does not count for what git knows
            self._remember(path)

    def _folder(self, source: int, path: str, asked: Ignoring | None) -> None:
        """Copy what is in a folder. Without `asked`, it is ignored, and no content is remembered."""
        if path.count("/") > MAX_DEPTH:
            raise Refused(f"The workspace {self._workspace} has more than {MAX_DEPTH} folders in each other.")
        with os.scandir(source) as entries:
            names = sorted(entry.name for entry in entries)
        below = {name: f"{path}{name}" for name in names if name != _GIT}
        if _GIT in names and path:
            self._left_out.append(f"{path}{_GIT}: a repository within the workspace; its files are copied")
        outside = asked.of([*below.values()]) if asked is not None else set()
        for name, whole in below.items():
            if whole in outside:
                self.ignored.append(whole)
            else:
                self._entry(source, name, whole, asked)

    def _entry(self, source: int, name: str, path: str, asked: Ignoring | None) -> None:
        try:
            facts = os.stat(name, dir_fd=source, follow_symlinks=False)
            if identity(facts) in self._homes:
                return
            self._spend(facts.st_size if stat.S_ISREG(facts.st_mode) else 0)
            if stat.S_ISDIR(facts.st_mode):
                with _opened(name, source) as folder:
                    (self._to / path).mkdir()
                    self._folder(folder, f"{path}/", asked)
                (self._to / path).chmod(stat.S_IMODE(facts.st_mode) & 0o777 | 0o700)
            elif stat.S_ISLNK(facts.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), self._to / path)
            elif stat.S_ISREG(facts.st_mode):
                self._file(source, name, path)
            else:
                self._left_out.append(f"{path}: neither a file nor a folder nor a link")
                return
        except FileNotFoundError:  # it vanished meanwhile
            return
        except PermissionError:
            self._left_out.append(f"{path}: you may not read it")
            return
        if not stat.S_ISDIR(facts.st_mode) and asked is not None:
            self._remember(path)

    def _file(self, source: int, name: str, path: str) -> None:
        with _opened(name, source, _READ) as fd:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise FileNotFoundError
            if facts.st_nlink > 1 and self._is_named_again(identity(facts), path):
                return
            _copy_file(fd, facts, str(self._to / path))

    def _is_named_again(self, file: Identity, path: str) -> bool:
        """Give a file that was copied already a further name in the copy. Return whether it was.

        A secret file may have an ordinary name, too. In two files, only one of them would be masked.
        """
        first = self._linked.setdefault(file, path)
        if first == path:
            return False
        try:
            os.link(self._to / first, self._to / path)
        except OSError as error:
            self._left_out.append(f"{path}: it cannot become another name of {first} ({error.strerror})")
        return True

    def _remember(self, path: str) -> None:
        """Remember what a file of the copy is."""
        gone = suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with gone, _parent(self._to, path) as (folder, name):
            self.items[path] = _item(folder, name, self._images)

    def _measured(self, folder: int, path: str) -> tuple[int, int]:
        """Return how many bytes and entries an ignored file or folder has, at most so many as count."""
        bytes_, entries = 0, 0
        for facts in _facts_of(folder, path):
            # A folder has a size of its own on some disks.
            bytes_ += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
            entries += 1
            if bytes_ > MAX_BYTES or entries > MAX_ENTRIES:
                break
        return bytes_, entries

    def _ignored(self, folder: int, path: str) -> None:
        above, _, name = path.rpartition("/")
        with suppress(FileNotFoundError, NotADirectoryError), _down(folder, above) as source:
            self._entry(source, name, path, None)

    def _spend(self, size: int) -> None:
        self._entries -= 1
        self._bytes -= size
        if self._entries < 0 or self._bytes < 0:
            gib = MAX_BYTES >> 30
            raise Refused(_TOO_LARGE.format(folder=self._workspace, entries=MAX_ENTRIES, gib=gib))


def changes(folder: str, copied: Copied, images: Images, own: OwnPlaces) -> list[Change]:
    """Return what is not as it was copied. What .gitignore leaves out now, and was not there before, does not count.

    Raises:
        Refused: it cannot be found out.
        OSError: a file cannot be read.
    """
    found: dict[str, tuple[str, int]] = {}
    ignored = set(copied.ignored)

    def walk(source: int, path: str, asked: Ignoring | None) -> None:
        if path.count("/") > MAX_DEPTH:
            raise Refused(f"The copy {folder} has more than {MAX_DEPTH} folders in each other.")
        with os.scandir(source) as entries:
            names = sorted(entry.name for entry in entries if entry.name != _GIT)
        below = [f"{path}{name}" for name in names]
        below = [whole for whole in below if whole not in ignored]
        outside = asked.of(below) if asked is not None else set()
        for whole in below:
            if whole in outside:
                continue
            if len(found) > 2 * MAX_ENTRIES:
                raise Refused(f"The copy {folder} has more than {counted(len(found), 'file')}.")
            name = whole[len(path) :]
            facts = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                with _opened(name, source) as inner:
                    walk(inner, f"{whole}/", asked)
            elif stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
                found[whole] = _state(source, name, images, copied.items.get(whole))

    with ignoring(folder, copied.exclude, own.homes) as asked, _opened(folder) as top:
        walk(top, "", asked)
    for path, item in copied.items.items():
        if path not in found:
            gone = suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
            with gone, _parent(Path(folder), path) as (source, name):
                found[path] = _state(source, name, images, item)
    before = {path: item.state for path, item in copied.items.items()}
    both = [
        Change(path, before.get(path, NOTHING), found.get(path, NOTHING))
        for path in sorted({*found, *before})
    ]
    return [each for each in both if each.before != each.after]


def _state(source: int, name: str, images: Images, item: Item | None) -> tuple[str, int]:
    facts = os.stat(name, dir_fd=source, follow_symlinks=False)
    if item is not None and _version(facts) == item.version:
        return item.state
    return _item(source, name, images).state


def _item(source: int, name: str, images: Images) -> Item:
    facts = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        return Item(LINK, images.mark(link_content(os.readlink(name, dir_fd=source))), _version(facts))
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError
    with _opened(name, source, _READ) as fd:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError
        digest = images.digest()
        while chunk := os.read(fd, _CHUNK_BYTES):
            digest.update(chunk)
        return Item(stat.S_IMODE(facts.st_mode) & 0o777, digest.hexdigest(), _version(facts))


def _version(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def copy_file(top: Path, path: str, to: str) -> None:
    """Copy a file of a folder with its mode and times. No link on the way is followed: a command may put one there at
    any moment.

    Raises:
        OSError: it is gone, or no file, or there is a link on the way.
    """
    with _parent(top, path) as (folder, name), _opened(name, folder, _READ) as fd:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        _copy_file(fd, facts, to)


def _copy_file(fd: int, facts: os.stat_result, to: str) -> None:
    with open(to, "xb") as target:
        _copy_content(fd, target.fileno())
        os.fchmod(target.fileno(), stat.S_IMODE(facts.st_mode) & 0o777)
        os.utime(target.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _copy_content(source: int, target: int) -> None:
    """Copy a content, on some file systems without reading it."""
    with suppress(OSError):
        while os.copy_file_range(source, target, _CHUNK_BYTES << 6):
            pass
        return
    while chunk := os.read(source, _CHUNK_BYTES):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(target, rest) :]


@contextmanager
def _opened(name: str, folder: int | None = None, flags: int = _FOLDER) -> Iterator[int]:
    fd = os.open(name, flags, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _down(folder: int, path: str) -> Iterator[int]:
    """Open a folder below another one, without following links."""
    here = os.dup(folder)
    try:
        for name in filter(None, path.split("/")):
            below = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


@contextmanager
def _parent(top: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a file. Yield it with the file's name."""
    above, _, name = path.rpartition("/")
    with _opened(str(top)) as fd, _down(fd, above) as folder:
        yield folder, name


def _facts_of(folder: int, path: str) -> Iterator[os.stat_result]:
    """Yield what is known of a file, or of everything in a folder. What cannot be read is passed over."""
    above, _, name = path.rpartition("/")
    with suppress(OSError), _down(folder, above) as source:
        facts = os.stat(name, dir_fd=source, follow_symlinks=False)
        yield facts
        if stat.S_ISDIR(facts.st_mode) and path.count("/") <= MAX_DEPTH:
            with _opened(name, source) as inner, os.scandir(inner) as entries:
                names = [entry.name for entry in entries]
            for below in names:
                yield from _facts_of(folder, f"{path}/{below}")
