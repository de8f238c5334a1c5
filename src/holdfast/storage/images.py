"""Keeps the content of files from before an edit, so that `undo` can put it back.

A before-image is the original bytes: a masked copy would put back `[redacted]`. So it lies in a folder of its own,
for its owner alone, apart from journals and blobs. It is never exported, and shown only with secrets masked. The
journal says which image belongs to which edit: an intent has the mark and the mode of the file before it.

A mark is a hash with a key that only this home has. A plain hash of a file with a short secret would tell the secret
to everybody who reads the journal and can guess.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from holdfast.errors import StorageCorrupt
from holdfast.opening import by
from holdfast.protocol.ports import Clock
from holdfast.storage.blobs import folders_in, make_folder, sync_folder, write_file
from holdfast.storage.errors import storage_errors

FILES = "files"
"""The folder in a home. It has one folder for each session that edited files."""
IMAGE_BYTES = 32 << 20
"""A larger file is not kept, and cannot be put back."""
KEEP_S = 30 * 86_400.0
KEY = ".key"
"""The file with the key of the marks, beside the folders. Nothing else knows the key."""
_KEY_BYTES = 32
_SWEPT = ".swept"
_SWEEP_MS = 86_400_000
_CHUNK_BYTES = 1 << 20
_OTHERS = 100
"""How many files of other sessions are asked for the key."""


class Digest(Protocol):
    """What makes a mark or a hash of bytes that come one after another."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Images:
    """The before-images of a home. Its methods block; tools call them in threads."""

    def __init__(self, home: Path, clock: Clock, keep_s: float = KEEP_S) -> None:
        self._root = home / FILES
        self._clock = clock
        self._keep_s = keep_s
        self._key = b""

    def digest(self) -> Digest:
        """Return what makes the mark of a content.

        Raises:
            StorageError: the home has no key yet, and none can be made.
        """
        self._key = self._key or _made_key(self._root)
        return hmac.new(self._key, digestmod="sha256")

    def mark(self, content: bytes) -> str:
        """Return the mark of a content: 64 hex digits that tell nothing without the key."""
        digest = self.digest()
        digest.update(content)
        return digest.hexdigest()

    def keep(self, session: str, fd: int) -> str:
        """Keep the content of an open file durably, unless it is too large. Return its mark.

        Raises:
            StorageError: it could not be kept.
        """
        content = _read_at_most(fd, IMAGE_BYTES + 1)
        if len(content) > IMAGE_BYTES:
            digest = self.digest()
            digest.update(content)
            while chunk := os.read(fd, _CHUNK_BYTES):
                digest.update(chunk)
            return digest.hexdigest()
        return self.put(session, content)

    def put(self, session: str, content: bytes) -> str:
        """Keep the bytes durably: first the file, then its name, then the folders that have the names. Return their
        mark.
        """
        mark = self.mark(content)
        path = self._root / session / mark
        with storage_errors(path):
            self._sweep_daily()
            if path.exists():
                os.utime(path)  # its time begins anew
            else:
                for folder in (self._root, path.parent):
                    make_folder(folder)
                write_file(path, content)
            sync_folder(path.parent)
        return mark

    def get(self, sessions: Sequence[str], mark: str) -> bytes | None:
        """Return the bytes that one of the sessions kept; None if none of them has kept them until now.

        Raises:
            StorageCorrupt: they were changed.
        """
        for session in sessions:
            path = self._root / session / mark
            with storage_errors(path), suppress(FileNotFoundError):
                content = path.read_bytes()
                if not hmac.compare_digest(self.mark(content), mark):
                    raise StorageCorrupt(f"what was kept of a file in {path} was changed")
                return content
        return None

    def check_key(self, sessions: Sequence[str]) -> None:
        """Check that something that was kept for the sessions has the key of this home.

        Raises:
            StorageCorrupt: nothing has: the key is of another home. Every file would look as if it had changed.
        """
        folders = [self._root / session for session in sessions]
        with storage_errors(self._root):
            kept = [path for folder in folders for path in _files_in(folder) if not path.name.startswith(".")]
            self._key = self._key or (_made_key(self._root) if kept else b"")
            others = islice(images_in(self._root), _OTHERS)  # for a session whose only file was changed
            if kept and not any(file_mark(path, self._key) == path.name for path in chain(kept, others)):
                raise _no_key(self._root / KEY, "is not the key of what was kept")

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
        yield from _files_in(folder)


def _files_in(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from (Path(entry.path) for entry in os.scandir(folder) if entry.is_file())


def key_of(home: Path) -> bytes:
    """Return the key of the home's marks; empty without one."""
    path = home / FILES / KEY
    with storage_errors(path), suppress(StorageCorrupt):
        return _read_key(path)
    return b""


def file_mark(path: Path, key: bytes) -> str:
    """Return the mark of a file's content; empty if it is gone."""
    with storage_errors(path), suppress(FileNotFoundError), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hmac.new(key, digestmod="sha256")).hexdigest()
    return ""


def _made_key(root: Path) -> bytes:
    """Return the key of the marks. The first process that needs it draws it."""
    path = root / KEY
    with storage_errors(path):
        if not (key := _read_key(path)):
            make_folder(root)
            with _locked(root):
                if not (key := _read_key(path)):  # otherwise another process was faster
                    if any(images_in(root)):  # another key would tell lies about all that is kept
                        raise _no_key(path, "is gone")
                    key = secrets.token_bytes(_KEY_BYTES)
                    write_file(path, key)
                    sync_folder(root)
    return key


def _read_key(path: Path) -> bytes:
    """Return the key in the file; empty if there is no file.

    Raises:
        StorageCorrupt: there is something else.
    """
    try:
        with open(path, "rb", opener=by(os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            key = file.read(_KEY_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except FileNotFoundError:
        return b""
    except IsADirectoryError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise _no_key(path, "was changed")
    return key


def _no_key(path: Path, what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} {what}, so nobody can tell which content of a file belongs to which edit",
        hint=f"Restore it from a backup, or remove {path.parent}. What was edited until now can then not be undone.",
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_at_most(fd: int, size: int) -> bytes:
    content = bytearray()
    while len(content) < size and (chunk := os.read(fd, min(_CHUNK_BYTES, size - len(content)))):
        content += chunk
    return bytes(content)


def _touched_ms(path: Path) -> float:
    return path.stat().st_mtime * 1000
