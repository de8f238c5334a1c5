"""Files and folders of a person that take their name when they are whole. Until then, each is a draft beside it.

Its writer locks a draft. A draft without a lock was left by a writer that was killed, and may hold secrets: the next
writer in the same folder removes it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast import depths
from holdfast.locks import is_named, try_lock

_NAME = re.compile(r"\.holdfast-[0-9a-f]{16}\.draft")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def draft_beside(path: Path, *, is_folder: bool = False) -> Iterator[tuple[Path, int]]:
    """Make a draft for its owner alone, and yield its path and a descriptor of it. At the end it is removed, unless
    it was renamed.

    Raises:
        OSError: it cannot be made.
    """
    sweep(path.parent)
    while True:
        draft = path.with_name(f".holdfast-{secrets.token_hex(8)}.draft")
        if is_folder:
            draft.mkdir(mode=0o700)
        fd = os.open(draft, _LOOK | os.O_DIRECTORY if is_folder else _NEW, 0o600)
        try:
            if try_lock(fd) == "theirs" or not is_named(fd, draft):  # somebody clears it away
                continue
            try:
                yield draft, fd
            finally:
                if is_named(fd, draft):
                    _remove(draft)
            return
        finally:
            os.close(fd)


def sweep(folder: Path) -> None:
    """Remove the drafts in a folder whose writers are gone."""
    with suppress(OSError):
        for draft in [Path(entry.path) for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove_unlocked(draft)


def _remove_unlocked(draft: Path) -> None:
    fd = os.open(draft, _LOOK)
    try:
        is_left = try_lock(fd) == "ours" and is_named(fd, draft)
        if is_left and os.fstat(fd).st_uid == os.geteuid():
            _remove(draft)
    finally:
        os.close(fd)


def _remove(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        with suppress(OSError):
            depths.remove(str(draft))
    else:
        draft.unlink()
