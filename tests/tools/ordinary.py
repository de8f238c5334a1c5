"""Nothing keeps root out of a folder: tests of what modes do run as an ordinary user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 54_321


@contextmanager
def as_an_ordinary_user(top: Path) -> Iterator[None]:
    """Let a user who is not root have all below a folder, and be that user inside the block."""
    user = os.geteuid()
    for path in (top, *top.rglob("*")):
        os.chown(path, user or _NOBODY, -1, follow_symlinks=False)
    for path in top.parents:
        if path.stat().st_uid == user and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    os.seteuid(user or _NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
