"""Opens files with flags that `open` does not have, and leaves none open if it turns out to be something else."""

from __future__ import annotations

import os
from collections.abc import Callable

UNFOLLOWED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""To read what others may have put there: no link is followed, and a pipe without a writer is not waited for."""


def by(flags: int, mode: int = 0o600, folder: int | None = None) -> Callable[[str, int], int]:
    """Return what `open` takes as its `opener`. A folder is closed again; `open(os.open(...))` leaves it open.

    Args:
        flags: As of `os.open`.
        mode: Of a new file.
        folder: The path is seen from here.
    """
    return lambda path, _: os.open(path, flags, mode, dir_fd=folder)
