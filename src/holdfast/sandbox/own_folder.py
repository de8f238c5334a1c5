"""The folder that a program has for itself, where its sandbox cannot give it a file system of its own.

Its name has the key of the call, by which the next driver finds what a killed one has left, and a part that nobody
can know before.
"""

# There may be a great many names in the folder for temporary files.
# ruff: noqa: PTH101, PTH118, PTH208

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection
from contextlib import suppress

from holdfast.sandbox.keeper import guard_name

_PREFIX = "holdfast-"


def new_name(key: str) -> str:
    """Return the path of a folder for a call. Makes nothing."""
    return os.path.join(tempfile.gettempdir(), f"{_PREFIX}{guard_name(key)}-{secrets.token_hex(8)}")


def remove(path: str) -> None:
    """Remove a folder, if it was made, with all that is in it."""
    with suppress(OSError):
        if os.lstat(path).st_uid == os.getuid():
            _open_up(path)
    shutil.rmtree(path, ignore_errors=True)


def remove_left(keys: Collection[str]) -> None:
    """Remove what calls with these keys have left, because their driver was killed. Their trees have ended."""
    prefixes = tuple(f"{_PREFIX}{guard_name(key)}-" for key in keys)
    base = tempfile.gettempdir()
    with suppress(OSError):
        for name in os.listdir(base):
            if name.startswith(prefixes) and os.lstat(os.path.join(base, name)).st_uid == os.getuid():
                remove(os.path.join(base, name))


def _open_up(path: str) -> None:
    """Let the owner into each folder: a program may have closed some."""
    for folder, names, _ in os.walk(path):
        for each in (folder, *(os.path.join(folder, name) for name in names)):
            facts = os.lstat(each)
            if stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(each, stat.S_IRWXU)
