"""Knows the values in the secret files of workspaces, and notices when the files change.

Only few files at fixed depths are read, without following links. `redact.in_files` reads their text.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from typing import Any

import msgspec

from holdfast.clock import is_fresh
from holdfast.policy.paths import secret_rule
from holdfast.protocol.ports import Clock
from holdfast.redact import Redactor
from holdfast.redact.in_files import secrets_in
from holdfast.tools.blocking import in_thread

MAX_FILES = 64
MAX_FILE_BYTES = 256 * 1024
MAX_ENTRIES = 4096
"""The most names in folders that one scan reads."""
MAX_ENTRIES_OF_FOLDER = 1024
MAX_FOLDERS = 128
MAX_DEPTH = 2
MAX_VALUES = 256
"""The most values of one workspace for which a call is refused. The current ones come first."""
MAX_MASKED = 512
"""The most of its values that are masked, old ones included: each makes every search for secrets slower."""
SWEEP_MS = 2000
"""How often the folders below the top one are looked at for new files."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_USUAL = (
    ".env", ".env.local", ".env.development", ".env.development.local", ".env.test", ".env.test.local",
    ".env.staging", ".env.production", ".env.production.local", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass",
    ".git-credentials", ".docker/config.json", ".aws/credentials", ".aws/config", ".kube/config",
)  # fmt: skip
"""Found in the top folder however many files it has."""
_SKIPPED = frozenset(
    {
        ".git", ".hg", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".cache", ".mypy_cache",
        ".ruff_cache", ".pytest_cache", ".gradle", ".next", ".terraform", ".ssh", ".gnupg",
    }
)  # fmt: skip
"""Folders of other people's files, and of keys that have a shape."""

_Stamp = tuple[int, int, int, int]
_FRESH, _GONE = -2, -1
"""In place of the time of a folder that had just changed when it was read, so that it is read again, and of one that
is not there."""


class _File(msgspec.Struct, frozen=True):
    stamp: _Stamp | None
    """None: it had just changed when it was read, so it is read again."""
    values: tuple[tuple[str, str], ...]


class _Workspace(msgspec.Struct):
    files: dict[str, _File] = {}
    folders: dict[str, int] = {}
    """When each folder that was read last changed, as no program can set it."""
    swept_ms: int = 0
    names: dict[str, str] = {}
    """The name of each value, the newest last."""
    known: Redactor | None = None


class SecretFiles:
    """The secret files of all workspaces of a process.

    Their values are masked everywhere. A call is refused only for a value of its own workspace.

    Args:
        redact: Learns the values.
        clock: Tells whether a change is so recent that the next one may have the same time.
    """

    def __init__(self, redact: Redactor, clock: Clock) -> None:
        self._redact = redact
        self._clock = clock
        self._workspaces: dict[str, _Workspace] = {}
        self._lock = Lock()

    def look(self, workspace: str) -> Coroutine[Any, Any, None] | None:
        """Return what learns the values that are new since the last look; None if nothing changed, as a few `stat`s
        tell.
        """
        return None if self._is_same(workspace) else in_thread(lambda: self.read(workspace))

    def look_now(self, workspace: str) -> None:
        """Do `look`, and wait for the disk."""
        if not self._is_same(workspace):
            self.read(workspace)

    def named_in(self, text: str, workspace: str) -> str:
        """Return FILE:KEY of a value of this workspace in the text, plain or encoded; empty if it has none."""
        found = self._workspaces.get(workspace)
        return found.known.known_in(text) if found is not None and found.known is not None else ""

    def read(self, workspace: str) -> None:
        """Read the secret files of a workspace that changed."""
        with self._lock:
            before = self._workspaces.get(workspace, _Workspace())
            scan = _Scan(before.files, self._clock.now_ms())
            scan.run(workspace)
            names: dict[str, str] = {}
            for path, file in scan.files.items():
                for key, value in file.values:
                    names.setdefault(value, f"{path}:{key}" if key else path)
            older = [(value, name) for value, name in before.names.items() if value not in names]
            every = [*[*names.items()][:MAX_VALUES], *reversed(older)]
            kept, known = dict(every[:MAX_MASKED]), before.known
            if kept != before.names:
                self._redact.learn(kept, workspace)
                known = Redactor(_by_name(dict(every[:MAX_VALUES])))
            self._workspaces[workspace] = _Workspace(
                scan.files, scan.folders, self._clock.uptime_ms(), dict(reversed(kept.items())), known
            )

    def _is_same(self, workspace: str) -> bool:
        found = self._workspaces.get(workspace)
        if found is None:
            return False
        if _changed_ns(workspace) != found.folders.get("", _GONE):
            return False
        for path, file in found.files.items():
            if _stamp_at(f"{workspace}/{path}") != file.stamp:
                return False
        if self._clock.uptime_ms() < found.swept_ms + SWEEP_MS:
            return True
        found.swept_ms = self._clock.uptime_ms()
        return all(_changed_ns(f"{workspace}/{path}") == changed for path, changed in found.folders.items())


class _Scan:
    """One look through a workspace."""

    def __init__(self, before: dict[str, _File], now_ms: int) -> None:
        self._before = before
        self._now_ms = now_ms
        self._entries = 0
        self.files: dict[str, _File] = {}
        self.folders: dict[str, int] = {}

    def run(self, workspace: str) -> None:
        for path in _USUAL:
            with _folder(workspace, path.rpartition("/")[0]) as folder:
                if folder is not None:
                    self._file(folder, path)
        level = [""]
        for depth in range(MAX_DEPTH + 1):
            level = [below for path in level for below in self._below(workspace, path, depth)]

    def _below(self, workspace: str, path: str, depth: int) -> list[str]:
        """Read the secret files of a folder, and return the folders in it."""
        found: list[str] = []
        if len(self.folders) >= MAX_FOLDERS or self._entries >= MAX_ENTRIES:
            return found
        with _folder(workspace, path) as folder:
            if folder is None:
                return found
            changed_ns = os.fstat(folder).st_ctime_ns
            self.folders[path] = _FRESH if is_fresh(changed_ns, self._now_ms) else changed_ns
            for entry in self._listed(folder):
                whole = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and entry.name not in _SKIPPED:
                        found.append(whole)
                elif entry.name == ".pgpass" or secret_rule(whole):
                    self._file(folder, whole)
        return found

    def _listed(self, folder: int) -> list[os.DirEntry[str]]:
        most = min(MAX_ENTRIES_OF_FOLDER, MAX_ENTRIES - self._entries)
        try:
            with os.scandir(folder) as entries:
                found = list(islice(entries, most))
        except OSError:
            return []
        self._entries += len(found)
        return found

    def _file(self, folder: int, path: str) -> None:
        """Read a file, unless it is a link, no regular file, or the same as before."""
        if path in self.files or len(self.files) >= MAX_FILES or not _is_text(path):
            return
        name = path.rpartition("/")[2]
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode):
                return
            before = self._before.get(path)
            if before is not None and before.stamp == _stamp(facts):
                self.files[path] = before
                return
            handle = os.open(name, _READ, dir_fd=folder)
        except OSError:
            return
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                return
            content = os.pread(handle, MAX_FILE_BYTES, 0)
        except OSError:
            return
        finally:
            os.close(handle)
        text = content.decode("utf-8", "replace").removeprefix("\ufeff")
        stamp = None if is_fresh(facts.st_ctime_ns, self._now_ms) else _stamp(facts)
        self.files[path] = _File(stamp, tuple(secrets_in(name, text)))


@contextmanager
def _folder(workspace: str, path: str) -> Iterator[int | None]:
    """Open a folder of the workspace without following a link; None if that is not possible."""
    handle: int | None = None
    try:
        try:
            handle = os.open(workspace, _FOLDER)
            for name in filter(None, path.split("/")):
                below = os.open(name, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
        except OSError:
            if handle is not None:
                os.close(handle)
            handle = None
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _by_name(values: dict[str, str]) -> dict[str, str]:
    """Return the values by name. A name that several values have gets a number."""
    found: dict[str, str] = {}
    for value, name in values.items():
        number = 1
        told = name
        while told in found:
            number += 1
            told = f"{name} ({number})"
        found[told] = value
    return found


def _is_text(path: str) -> bool:
    return path.isprintable()


def _stamp(facts: os.stat_result) -> _Stamp:
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_ctime_ns


def _stamp_at(path: str) -> _Stamp | None:
    try:
        return _stamp(os.lstat(path))
    except OSError:
        return None


def _changed_ns(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return _GONE
