"""Gives folders for work of Holdfast's own, where no command can change what lies in them.

TMPDIR may lie in a workspace, or in what `[sandbox] write` names, also that of another session. A command there could
lead git, which works outside of every sandbox, to a hook. So such work is done in a home, where no command may write.
"""

# The owner of a path and its kind are asked without a link followed.
# ruff: noqa: PTH102, PTH118

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from holdfast import depths
from holdfast.policy.paths import is_within
from holdfast.sandbox.own_folder import bases

_RUN = "run"
"""The folder in a home for what lives no longer than a process."""
_RARELY_NAMED = "/var/tmp"
"""Without a home, nobody knows what other processes let commands change. Few settings name this folder."""


@contextmanager
def work_folder(prefix: str, homes: Iterable[str] = (), writable: Iterable[str] = ()) -> Iterator[str]:
    """Make a folder, and remove it at the end. The arguments are those of `work_place`.

    Raises:
        OSError: it cannot be made.
    """
    folder = tempfile.mkdtemp(prefix=prefix, dir=work_place(homes, writable))
    try:
        yield folder
    finally:
        with suppress(OSError):
            depths.remove(folder)


def work_place(homes: Iterable[str] = (), writable: Iterable[str] = ()) -> str:
    """Return where such folders are made, with every link followed: in a home, else where no command may write.

    Args:
        homes: Holdfast's homes, the one in use first. Those that are not there do not count.
        writable: Where commands may write, as far as the caller knows.

    Raises:
        OSError: there is no such place.
    """
    roots = [*writable]
    for home in map(os.path.realpath, homes):
        run = os.path.join(home, _RUN)
        with suppress(OSError):
            if _is_ours(home) and not is_within(roots, home):
                with suppress(FileExistsError):
                    os.mkdir(run, 0o700)
                if _is_ours(run) and os.access(run, os.W_OK | os.X_OK):
                    return run
    for base in (_RARELY_NAMED, *bases()):
        if os.access(base, os.W_OK | os.X_OK) and not is_within(roots, base):
            return os.path.realpath(base)
    raise OSError(errno.EACCES, "Commands may write in each folder for temporary files")


def _is_ours(path: str) -> bool:
    """Return whether it is a folder of this user.

    Raises:
        OSError: nothing is there.
    """
    facts = os.lstat(path)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
