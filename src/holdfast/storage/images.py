"""Keeps the content of files from before an edit, so that `undo` can put it back.

A before-image is the original bytes: a masked copy would put back `[redacted]`. So it lies in a folder of its own,
for its owner alone, apart from journals and blobs. It is never exported, and shown only with secrets masked. The
journal says which image belongs to which edit: an intent has the hash and the mode of the file before it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.errors import StorageCorrupt
from holdfast.protocol.ports import Clock
from holdfast.storage.blobs import folders_in, make_folder, sync_folder, write_file
from holdfast.storage.errors import storage_errors

FILES = "files"
"""The folder in a home. It has one folder for each session that edited files."""
IMAGE_BYTES = 32 << 20
"""A larger file is not kept, and cannot be put back."""
KEEP_S = 30 * 86_400.0
_SWEPT = ".swept"
_SWEEP_MS = 86_400_000
_CHUNK_BYTES = 1 << 20


class Images:
    """The before-images of a home. Its methods block; tools call them in threads."""

    def __init__(self, home: Path, clock: Clock, keep_s: float = KEEP_S) -> None:
        self._root = home / FILES
        self._clock = clock
        self._keep_s = keep_s

    def keep(self, session: str, fd: int) -> str:
        """Keep the content of an open file durably, unless it is too large. Return its SHA-256 in hex.

        Raises:
            StorageError: it could not be kept.
        """
        content = _read_at_most(fd, IMAGE_BYTES + 1)
        digest = hashlib.sha256(content)
        if len(content) > IMAGE_BYTES:
            while chunk := os.read(fd, _CHUNK_BYTES):
                digest.update(chunk)
            return digest.hexdigest()
        self.put(session, content)
        return digest.hexdigest()

    def put(self, session: str, content: bytes) -> None:
        """Keep the bytes durably: first the file, then its name, then the folders that have the names."""
        path = self._root / session / hashlib.sha256(content).hexdigest()
        with storage_errors(path):
            self._sweep_daily()
            if path.exists():
                os.utime(path)  # its time begins anew
            else:
                for folder in (self._root, path.parent):
                    make_folder(folder)
                write_file(path, content)
            sync_folder(path.parent)

    def get(self, sessions: Sequence[str], sha256: str) -> bytes | None:
        """Return the bytes that one of the sessions kept; None if none of them has kept them until now.

        Raises:
            StorageCorrupt: they were changed.
        """
        for session in sessions:
            path = self._root / session / sha256
            with storage_errors(path), suppress(FileNotFoundError):
                content = path.read_bytes()
                if hashlib.sha256(content).hexdigest() != sha256:
                    raise StorageCorrupt(f"what was kept of a file in {path} was changed")
                return content
        return None

    def _sweep_daily(self) -> None:
        """Drop what is older than it is to be kept. One process a day looks."""
        mark, now_ms = self._root / _SWEPT, self._clock.now_ms()
        try:
            if abs(now_ms - _touched_ms(mark)) < min(_SWEEP_MS, self._keep_s * 1000):
                return
        except FileNotFoundError:
            if not self._root.exists():
                return
        self.sweep()
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(mark, (now_ms / 1000, now_ms / 1000))

    def sweep(self) -> None:
        """Drop what is older than it is to be kept."""
        limit_ms = self._clock.now_ms() - self._keep_s * 1000
        for path in images_in(self._root):
            with suppress(FileNotFoundError):
                if _touched_ms(path) < limit_ms:
                    path.unlink()
        for folder in folders_in(self._root):
            with suppress(OSError):
                folder.rmdir()  # only if it is empty


def drop_images(home: Path, session: str) -> None:
    """Remove everything that was kept for a session, durably."""
    folder = home / FILES / session
    with storage_errors(folder):
        if folder.exists():
            shutil.rmtree(folder)
            sync_folder(folder.parent)


def images_in(root: Path) -> Iterator[Path]:
    """Return the files with images, and what killed writers left of one."""
    for folder in folders_in(root):
        with suppress(FileNotFoundError):
            yield from (Path(entry.path) for entry in os.scandir(folder) if entry.is_file())


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hex; empty if it is gone."""
    with storage_errors(path), suppress(FileNotFoundError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def _read_at_most(fd: int, size: int) -> bytes:
    content = bytearray()
    while len(content) < size and (chunk := os.read(fd, min(_CHUNK_BYTES, size - len(content)))):
        content += chunk
    return bytes(content)


def _touched_ms(path: Path) -> float:
    return path.stat().st_mtime * 1000
