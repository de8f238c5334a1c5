"""Surveys a workspace: one digest of all its files, the same when the files are the same again.

A file that did not change since the session began counts with its size and times, any other with its content, which
is read once for each change. So a file that was touched, or written and then put back, is the same file.
"""

# A survey runs in a thread, and pathlib takes several times as long.
# ruff: noqa: PTH118

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence

from holdfast.clock import COARSE_MS, SYSTEM_CLOCK, is_fresh
from holdfast.protocol.evidence import PARTIAL
from holdfast.tools.own import Identity, OwnPlaces, identity

MAX_FILES = 20_000
MAX_FOLDERS = 20_000
FILE_BYTES = 1 << 20
"""A larger file counts with its times."""
READ_BYTES = 24 << 20
READ_FILES = 1_000
"""How much one survey reads. What it has not read counts with its times until it changes again."""
MAX_MS = 3_000
"""How long one survey may take. On a slow file system the others would wait for its thread."""
MAX_MARKS = 50_000

_PASSED_OVER = frozenset(
    {".git", ".hg", ".svn", ".jj", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis",
     ".tox", ".nox", ".venv", "venv", "node_modules", ".cache", ".gradle", ".DS_Store"}
)  # fmt: skip
"""What programs write beside their work: caches, and what they install."""

_Version = tuple[int, int, int, int, int]
_BITS = (1 << 64) - 1


class Surveyor:
    """Surveys the workspaces of a runtime. It keeps the digests of contents that it has read."""

    def __init__(self, own: OwnPlaces) -> None:
        self._own = own
        self._marks: dict[_Version, str] = {}

    def survey(self, workspace: str, since_ms: int, named: Sequence[str]) -> str:
        """Implements `ports.Tools.survey`."""
        look = _Look(self._marks, (since_ms - COARSE_MS) * 1_000_000)
        if len(self._marks) > MAX_MARKS:
            self._marks.clear()
        total = look.tree(workspace, self._own)
        if total is not None:
            return f"{total:016x}"
        return f"{PARTIAL}{look.files(workspace, named):016x}"


class _Look:
    """One survey."""

    def __init__(self, marks: dict[_Version, str], since_ns: int) -> None:
        self._marks = marks
        self._since_ns = since_ns
        self._begun_ms = SYSTEM_CLOCK.now_ms()
        self._bytes_left = READ_BYTES
        self._files_left = READ_FILES

    def tree(self, workspace: str, own: OwnPlaces) -> int | None:
        """Return the sum over all folders, in whatever order they come; None if they are too many, or
        take too long."""
        homes = own.identities()
        total, files, seen = 0, 0, 0
        until_ms = SYSTEM_CLOCK.uptime_ms() + MAX_MS
        folders = [""]
        while folders:
            folder = folders.pop()
            seen += 1
            found = self._folder(workspace, folder, homes)
            if found is None:
                continue
            lines, below = found
            files += len(lines)
            if files > MAX_FILES or seen + len(folders) + len(below) > MAX_FOLDERS:
                return None
            if SYSTEM_CLOCK.uptime_ms() >= until_ms:
                return None
            folders += below
            total = (total + _number(folder, lines)) & _BITS
        return total

    def files(self, workspace: str, named: Sequence[str]) -> int:
        """Return the sum over these files."""
        lines = []
        for name in named:
            path = os.path.join(workspace, name)
            try:
                lines.append(f"{name}\0{self._mark(path, os.lstat(path))}")
            except OSError:
                lines.append(f"{name}\0")
        return _number("", lines)

    def _folder(
        self, workspace: str, folder: str, homes: dict[Identity, str]
    ) -> tuple[list[str], list[str]] | None:
        """Return a line for each file in a folder, and the folders below it; None if nobody can list it."""
        lines: list[str] = []
        below: list[str] = []
        since = self._since_ns
        try:
            with os.scandir(os.path.join(workspace, folder)) as entries:
                for entry in entries:
                    name = entry.name
                    if name in _PASSED_OVER:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if not homes or identity(entry.stat(follow_symlinks=False)) not in homes:
                            below.append(f"{folder}{name}/")
                        continue
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if homes and identity(facts) in homes:
                        continue
                    if facts.st_ctime_ns < since:
                        lines.append(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}")
                    else:
                        lines.append(f"{name}\0{self._mark(entry.path, facts)}")
        except OSError:
            return None
        return lines, below

    def _mark(self, path: str, facts: os.stat_result) -> str:
        """Return what tells the content of a file that has changed."""
        version = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        mark = self._marks.get(version)
        if mark is None:
            mark = self._read(path, facts)
            if not is_fresh(facts.st_ctime_ns, self._begun_ms):
                self._marks[version] = mark
        return mark

    def _read(self, path: str, facts: os.stat_result) -> str:
        times = f"{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ctime_ns}"
        is_read = stat.S_ISREG(facts.st_mode) and facts.st_size <= FILE_BYTES
        if not is_read or self._files_left <= 0 or self._bytes_left < facts.st_size:
            return times
        self._files_left -= 1
        self._bytes_left -= facts.st_size
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return times
        try:
            return hashlib.blake2b(os.read(fd, FILE_BYTES), digest_size=8).hexdigest()
        except OSError:
            return times
        finally:
            os.close(fd)


def _number(folder: str, lines: list[str]) -> int:
    lines.sort()
    text = "\n".join([folder, *lines]).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
