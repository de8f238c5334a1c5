"""A disk without power: what is left of a home when all that was not synced may be gone.

A process writes down each call that changes its disk, with all bytes, and between them what it was told is kept. From
that the disk is made anew as it may look after a power cut at any moment: what was synced is there; of the rest any
part may be, a last write also by halves. A name is kept when its folder was synced, whatever became of its file.
"""

from __future__ import annotations

import atexit
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

SHIM = Path(__file__).parents[1] / "torture" / "disk_shim.c"


class Call(NamedTuple):
    """Something that changed the disk, or `mark`: a word of the process."""

    what: str
    path: str
    number: int
    """Where bytes begin, or how many are left."""
    data: bytes
    other: str
    """The old name, of a rename."""


def recorded(book: Path) -> list[Call]:
    """The calls that the shim wrote down."""
    content, at, calls = book.read_bytes(), 0, list[Call]()
    while at < len(content):
        end = content.index(b"\n", at)
        what, path, number, size, other = content[at:end].decode().split("\t")
        at = end + 1 + int(size)
        calls.append(Call(what, path, int(number), content[end + 1 : at], other))
    return calls


@cache
def built_shim() -> Path:
    """The shim, built by the compiler of this machine; it is taken away when this process ends."""
    built = Path(tempfile.mkdtemp(prefix="shim-")) / "shim.so"
    atexit.register(shutil.rmtree, built.parent, ignore_errors=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(built), str(SHIM), "-ldl"], check=True)
    return built


Keep = Callable[[int], int]
"""How many of so many things that were not synced are there after all."""


def nothing(_: int) -> int:
    """A disk that keeps what it must."""
    return 0


def everything(count: int) -> int:
    """A disk that was quick."""
    return count


def some(seed: int) -> Keep:
    """A disk that keeps what it likes."""
    chance = random.Random(seed)
    return lambda count: chance.randint(0, count)


@dataclass
class File:
    """Bytes, and what was done to them since they were synced."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Call] = field(default_factory=list)

    def after(self, keep: Keep) -> bytes:
        """What is left: of some writes, each is there, or not, or begun."""
        content = bytearray(self.synced)
        for call in self.pending:
            if call.what == "cut":
                if keep(1):
                    _cut(content, call.number)
            else:
                _write(content, call.number, call.data[: keep(len(call.data))])
        return bytes(content)

    def sync(self) -> None:
        """Keep all."""
        self.synced = bytearray(self.after(everything))
        self.pending.clear()


def _cut(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _write(content: bytearray, at: int, data: bytes) -> None:
    if data:
        content.extend(bytes(max(0, at - len(content))))
        content[at : at + len(data)] = data


@dataclass
class Folder:
    """The names in a folder, and the changes since the last sync: each a name with its new content, or None."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        """Do it, and keep in mind that it is not synced."""
        _apply(self.names, names)
        self.pending.append(names)

    def sync(self) -> None:
        """Keep all names; what they stand for is not synced by that."""
        self.synced = dict(self.names)
        self.pending.clear()

    def after(self, keep: Keep) -> dict[str, File | Folder]:
        """The names that are left: changes of a folder reach the disk in their order."""
        found = dict(self.synced)
        for names in self.pending[: keep(len(self.pending))]:
            _apply(found, names)
        return found

    def make(self, path: Path, keep: Keep) -> None:
        """Make it on a real disk as it is after a power cut."""
        path.mkdir(exist_ok=True)
        for name, what in self.after(keep).items():
            if isinstance(what, Folder):
                what.make(path / name, keep)
            else:
                (path / name).write_bytes(what.after(keep))


def _apply(names: dict[str, File | Folder], changes: dict[str, File | Folder | None]) -> None:
    for name, what in changes.items():
        if what is None:
            names.pop(name, None)
        else:
            names[name] = what


@dataclass
class Disk:
    """A disk, and what a process was told is kept on it."""

    root: Folder = field(default_factory=Folder)
    marks: list[str] = field(default_factory=list)

    def do(self, call: Call) -> None:
        """What the call does to the disk."""
        if call.what == "mark":
            self.marks.append(call.path)
            return
        folder, name = self._at(PurePosixPath(call.path).parent), PurePosixPath(call.path).name
        match call.what:
            case "create":
                folder.change({name: File()})
            case "mkdir":
                folder.change({name: Folder()})
            case "unlink":
                folder.change({name: None})
            case "rename":
                old = PurePosixPath(call.other).name
                folder.change({old: None, name: folder.names[old]})
            case "sync":
                (folder.names[name] if name else folder).sync()
            case _:
                file = folder.names[name]
                assert isinstance(file, File)
                file.pending.append(call)

    def _at(self, path: PurePosixPath) -> Folder:
        folder = self.root
        for name in path.parts[1:]:
            found = folder.names[name]
            assert isinstance(found, Folder)
            folder = found
        return folder


class Cut(NamedTuple):
    """A moment without power."""

    calls: int
    """So many calls were done."""
    disk: Disk
    before: Call
    """The call that is done next."""


def cuts(calls: Sequence[Call], first: int = 0) -> Iterator[Cut]:
    """Each moment from the first one on; the disk is always the same one, as it is then."""
    disk = Disk()
    for number, call in enumerate(calls):
        if number >= first:
            yield Cut(number, disk, call)
        disk.do(call)
    yield Cut(len(calls), disk, Call("mark", "the end", 0, b"", ""))


def run_recorded(program: str, folder: Path, book: Path, *, ends_at: int = 0) -> int:
    """Run a Python program in its own process, with what it does below the folder written down; its exit code.

    It finds the folder in `sys.argv[1]` and has a function `kept(word)`.
    """
    head = (
        "import ctypes, os, sys\n"
        "shim = ctypes.CDLL(os.environ.pop('LD_PRELOAD'))\n"
        "def kept(word): shim.disk_mark(word.encode())\n"
        f"shim.disk_record(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.c_long({ends_at}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + program, str(folder), str(book)],
        env={"LD_PRELOAD": str(built_shim()), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 9), done.stderr
    return done.returncode
