"""Bytes in files named by their SHA-256, in two levels of folders, beside the database.

A blob is on disk, whole, under its name, before `put` returns. This does not know who refers to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StorageCorrupt, StorageError
from holdfast.opening import by
from holdfast.protocol.ports import Clock
from holdfast.storage.errors import storage_errors

_REMEMBERED = 4096
"""How many hashes are remembered as written: a prompt that is stored again costs no thread and no file."""
YOUNG_MS = 24 * 3600 * 1000
"""How long a file is spared after its bytes were put last: a process may be about to refer to them."""
_FRESH_MS = YOUNG_MS // 24
"""How long a hash is remembered as written. After it, the file is put again and so is young again."""
_FILE = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.\d+\.\d+")
"""The name of a blob, or of what a killed writer left of one."""

ATTACHED = b'"attachments":'
"""A stored command that names blobs has this."""
_NAMED = re.compile(rb'"blob":"([0-9a-f]{64})"')


def attached_in(command: bytes) -> set[str]:
    """Return the blobs that a stored command names. It may be of a newer version, so this reads only their names."""
    return {name.decode() for name in _NAMED.findall(command)} if ATTACHED in command else set()


class FileBlobs:
    """A `protocol.ports.Blobs` in one folder. The threads of `executor` write and read its files."""

    def __init__(self, root: Path, executor: Executor, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root
        self._executor = executor
        self._clock = clock
        self._written: dict[str, int] = {}
        """When each hash was written, by the uptime."""

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        now_ms = self._clock.uptime_ms()
        is_fresh = now_ms - self._written.get(sha256, now_ms - _FRESH_MS) < _FRESH_MS
        if not is_fresh or not blob_path(self._root, sha256).exists():
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, write_blob, self._root, sha256, content)
            if len(self._written) >= _REMEMBERED:
                self._written.clear()
            self._written[sha256] = now_ms
        return sha256

    async def get(self, sha256: str) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, read_blob, self._root, sha256)


def blob_path(root: Path, sha256: str) -> Path:
    """Return the path of the bytes with that hash."""
    return root / sha256[:2] / sha256[2:4] / sha256


def write_blob(root: Path, sha256: str, content: bytes) -> None:
    """Keep the bytes: first the file, then its name, then the folder that has the name.

    Raises:
        StorageError: StorageFull, StorageReadOnly, or another error of the file system.
    """
    path = blob_path(root, sha256)
    with storage_errors(path):
        try:
            os.utime(path)  # it is young again
        except FileNotFoundError:
            for folder in (root, path.parent.parent, path.parent):
                make_folder(folder)
            write_file(path, content)
        # Even if it was there: its writer may have died between the name and this.
        sync_folder(path.parent)


def check_blobs(root: Path, hashes: Iterable[str]) -> None:
    """Refuse to refer to bytes that somebody deleted since they were put: they were in use nowhere else.

    Raises:
        StorageError: says which are gone.
    """
    for sha256 in hashes:
        if not blob_path(root, sha256).exists():
            raise gone(sha256)


def gone(sha256: str) -> StorageError:
    """Return the refusal to refer to bytes that are not there."""
    return StorageError(
        f"the blob {sha256} was deleted with another session meanwhile; nothing was written",
        hint="Try again.",
    )


def remove_blobs(root: Path, hashes: Iterable[str]) -> None:
    """Remove the bytes, durably. Those that are not there are removed already."""
    remove_files(blob_path(root, sha256) for sha256 in hashes)


def old_files(root: Path, before_ms: int) -> Iterator[Path]:
    """Yield the files, with what killed writers left, whose bytes were put before that time.

    Raises:
        StorageError: they cannot be listed.
    """
    with storage_errors(root):
        for folder in [inner for outer in folders_in(root) for inner in folders_in(outer)]:
            for entry in os.scandir(folder):
                path = Path(entry.path)
                if _FILE.fullmatch(entry.name) and is_older(path, before_ms):
                    yield path


def is_older(path: Path, before_ms: int) -> bool:
    """Whether there is such a file, written or touched before that time."""
    with suppress(FileNotFoundError):
        return path.lstat().st_mtime_ns // 1_000_000 < before_ms
    return False


def folders_in(root: Path) -> list[Path]:
    """Return the folders in a folder; none if it is not there."""
    with suppress(FileNotFoundError):
        return [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    return []


def remove_files(files: Iterable[Path]) -> None:
    """Remove the files, durably. Those that are not there are removed already."""
    folders = set()
    for path in files:
        with storage_errors(path), suppress(FileNotFoundError):
            path.unlink()
            folders.add(path.parent)
    for folder in folders:
        sync_folder(folder)


def read_blob(root: Path, sha256: str) -> bytes:
    """Return the bytes with that hash, checked.

    Raises:
        StorageCorrupt: they are missing or were changed.
    """
    path = blob_path(root, sha256)
    with storage_errors(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise StorageCorrupt(f"the blob {sha256} is missing") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StorageCorrupt(f"the blob {sha256} was changed")
    return content


def write_file(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, durably but for its name: nobody sees a half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(draft, "wb", opener=by(os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make the folder for its owner alone, durably, unless it is there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)  # Make the names in the folder durable.


def sync_folder(folder: Path) -> None:
    """Make what is named in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
