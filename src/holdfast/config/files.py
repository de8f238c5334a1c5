"""Reads a file that somebody named, up to a limit: never a device, a pipe, or a larger file.

Every file that a person, a flag or a configuration names is read here. Other rooms read the files of a home and the
files of tools.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

TEXT_MAX_BYTES = 1_000_000
"""The limit for text that goes to a model: more would fill its window."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""If a pipe takes the file's place just before it is opened, do not wait for its writer."""


class Unreadable(Exception):
    """The file cannot be read. The message says why, as the end of a sentence."""


class Missing(Unreadable):
    """There is no such file."""


@contextmanager
def read_opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read it inside the block, within `reading`. Other errors of the block are its own.

    Raises:
        Missing: there is no such file.
        Unreadable: it is not a regular file, or the system refuses it.
    """
    try:
        with reading():
            _check(path.stat())  # opening a device may have an effect on it
            fd = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a zero byte
        raise Missing("does not exist") from None
    with open(fd, "rb") as file:  # noqa: PTH123 - the flags are what matters
        _check(os.fstat(fd))
        yield file


@contextmanager
def reading() -> Iterator[None]:
    """Say what goes wrong when a file is read.

    Raises:
        Unreadable: the system refuses it.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise Unreadable(f"cannot be read: {(error.strerror or 'unknown error').lower()}") from None


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises as `read_opened`, and if it is too large."""
    with read_opened(path) as file:
        return _whole(file, max_bytes)


def read_text(path: Path, max_bytes: int) -> str:
    """Return the content of a regular file as text. Raises as `read_file`, and if it is not UTF-8."""
    content = read_file(path, max_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8 text") from None


def read_stream(stream: IO[bytes], max_bytes: int) -> bytes:
    """Return what a stream has until its end.

    Raises:
        Unreadable: it is too much, or cannot be read.
    """
    return _whole(stream, max_bytes)


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Unreadable("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("is a device, a pipe or a socket, not a file")


def _whole(file: IO[bytes], max_bytes: int) -> bytes:
    with reading():
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise Unreadable(f"is larger than {max_bytes:,} bytes")
    return content
