"""Reads a file that somebody named, whole and up to a bound: never a device, a pipe, or more than fits.

Whatever a person, a flag or a configuration names as a file is read here. The files of a home, and those that
tools work on, are read by the rooms that own them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

TEXT_MAX_BYTES = 1_000_000
"""Of words for a model: more of them would fill its window."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Should a pipe take the file's place just before it is opened, nobody waits for its writer."""


class Unreadable(Exception):
    """What was named cannot be read; the message says why, as the end of a sentence."""


class Missing(Unreadable):
    """There is nothing by that name."""


def read_file(path: Path, max_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        Missing: there is nothing by that name.
        Unreadable: it is something else, it is too large, or the system refuses it.
    """
    try:
        _check(path.stat())  # opening a device may do something to it
        with open(os.open(path, _FLAGS), "rb") as file:  # noqa: PTH123 - the flags are what matters
            _check(os.fstat(file.fileno()))
            return _whole(file, max_bytes)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a zero byte
        raise Missing("is not there") from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {(error.strerror or 'unknown error').lower()}") from None


def read_text(path: Path, max_bytes: int) -> str:
    """The content of a regular file as UTF-8 text; raises as `read_file`, and where it is no such text."""
    content = read_file(path, max_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Unreadable("is no UTF-8 text") from None


def read_stream(stream: IO[bytes], max_bytes: int) -> bytes:
    """What a stream holds until its end.

    Raises:
        Unreadable: it is too much.
    """
    return _whole(stream, max_bytes)


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Unreadable("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("is a device, a pipe or a socket, not a file")


def _whole(file: IO[bytes], max_bytes: int) -> bytes:
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise Unreadable(f"is larger than {max_bytes:,} bytes")
    return content
