"""Walks through folders, and removes them, however deep they are. A program may nest them deeper than any path or
stack, and close them to their owner.

`os.walk`, `os.fwalk`, `shutil.rmtree`, `shutil.copytree` and `Path.rglob` call themselves for each level. So nothing
here may use them where a program has written.
"""

# Pathlib makes an object for each name, and cannot work relative to a descriptor.
# ruff: noqa: PTH101, PTH106, PTH208

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_O_PATH = getattr(os, "O_PATH", 0)
"""Opens also what is closed to its owner, where the system has it."""
_PASSED = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | _O_PATH


def walked(top: str) -> Iterator[tuple[str, Sequence[os.DirEntry[str]] | None]]:
    """Yield each folder with what is in it, a folder before those in it. None: it cannot be listed, so nobody knows.
    No link is followed.
    """
    following = [top]
    while following:
        folder = following.pop()
        try:
            with os.scandir(folder) as listed:
                entries = [*listed]
        except OSError:  # its path may also be too long
            yield folder, None
            continue
        yield folder, entries
        following += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def remove(top: str) -> None:
    """Remove a folder with all that is in it.

    Raises:
        OSError: a file or a link lies there, or something in it cannot be removed.
    """
    fd = _opened(top, None)
    faults: list[OSError] = []
    try:
        while sum(_is_less(fd, name, faults) for name in os.listdir(fd)):
            faults.clear()
    finally:
        os.close(fd)
    try:
        os.rmdir(top)
    except OSError as error:  # the first fault says more than that the folder is not empty
        raise (faults or [error])[0] from None


def _opened(name: str, above: int | None) -> int:
    """Open a folder whose owner is let in, also if a program has closed it.

    Raises:
        OSError: it is not a folder, or somebody else has it.
    """
    fd = os.open(name, _PASSED, dir_fd=above)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{fd}" if _O_PATH else fd, stat.S_IRWXU)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


def _is_less(top: int, name: str, faults: list[OSError]) -> bool:
    """Remove what lies at a name; the folders in it move up to the top. Return whether anything was removed or moved.
    Note what fails.
    """
    is_less = False
    with _noted(faults):
        if not _is_folder(top, name):
            os.unlink(name, dir_fd=top)
            return True
        folder = _opened(name, top)
        try:
            for each in os.listdir(folder):
                with _noted(faults):
                    if _is_folder(folder, each):
                        os.close(_opened(each, folder))  # its owner may move it then
                        os.rename(each, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
                    else:
                        os.unlink(each, dir_fd=folder)
                    is_less = True
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)
        return True
    return is_less


@contextmanager
def _noted(faults: list[OSError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        faults.append(error)


def _is_folder(above: int, name: str) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode)
