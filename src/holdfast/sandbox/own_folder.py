"""The folder that a program has for itself, where its sandbox cannot give it a file system of its own.

Its name has the key of the call, by which the next driver finds what a killed one has left, and a part that nobody
can know before.
"""

# There may be a great many names in the folder for temporary files.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Collection
from contextlib import suppress

from holdfast import depths
from holdfast.errors import SandboxUnavailable
from holdfast.policy.paths import is_within
from holdfast.sandbox.trees import guard_name

_PREFIX = "holdfast-"
_NO_PLACE = (
    "The command did not run: it needs a folder of its own, and commands may write in each folder for temporary "
    "files. Take /var/tmp out of [sandbox] write."
)


def new_name(key: str, writable: Collection[str]) -> str:
    """Return the path of a folder for a call, where no command may write. Makes nothing.

    Raises:
        SandboxUnavailable: there is no such place.
    """
    # A command that is left in the background could move the folder away, and put its own there.
    usable = (
        base for base in bases() if not is_within(writable, base) and os.access(base, os.W_OK | os.X_OK)
    )
    base = next(usable, "")
    if not base:
        raise SandboxUnavailable(_NO_PLACE)
    return os.path.join(base, f"{_PREFIX}{guard_name(key)}-{secrets.token_hex(8)}")


def remove(path: str) -> None:
    """Remove a folder, if it was made, with all that is in it, however deep that is."""
    with suppress(OSError):
        if os.lstat(path).st_uid == os.getuid():
            depths.remove(path)


def remove_left(keys: Collection[str]) -> None:
    """Remove what calls with these keys have left, because their driver was killed. Their trees have ended."""
    prefixes = tuple(f"{_PREFIX}{guard_name(key)}-" for key in keys)
    for base in bases():
        with suppress(OSError):
            for name in os.listdir(base):
                if name.startswith(prefixes):
                    remove(os.path.join(base, name))


def bases() -> tuple[str, ...]:
    """Return the folders for temporary files, with every link followed.

    That of the environment comes last: it may lie in the workspace of another session.
    """
    return tuple(dict.fromkeys(map(os.path.realpath, ("/tmp", "/var/tmp", tempfile.gettempdir()))))
