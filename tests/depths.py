"""Folders as a program may nest them: deeper than the stack of Python, and then deeper than a path may be long."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

from holdfast import depths

REACHED = 1_050
"""So many of them can be named by a path. A stack of Python is not so deep."""
_BELOW = 20


@contextmanager
def nested(top: Path) -> Iterator[Path]:
    """Make such folders, and yield the deepest one that a path can name. They are removed at the end: pytest could
    not do it.
    """
    fd = os.open(top, os.O_RDONLY)
    for name in chain(repeat("a", REACHED), repeat("b" * 200, _BELOW)):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("last", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    try:
        yield top.joinpath(*repeat("a", REACHED))
    finally:
        for left in (path for path in (top / "a", *top.glob("a.put-aside*")) if path.is_dir()):
            depths.remove(str(left))


@contextmanager
def few_open_files() -> Iterator[None]:
    """Let this process have fewer files open than the folders are deep, as most may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_024), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
