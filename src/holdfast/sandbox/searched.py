"""The search path of a process that sees more files than it may use, as under Landlock.

A shell takes the first program that is there, and fails if it may not run it. Where others are hidden, it finds the
next one.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH113, PTH117

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from holdfast.clock import COARSE_MS, SYSTEM_CLOCK
from holdfast.policy.paths import is_within
from holdfast.sandbox.system import SYSTEM

_OF_SYSTEM = frozenset({"/usr/sbin", "/usr/bin", "/sbin", "/bin"})
"""What their links lead to comes with the system."""
_MOST_FOLDERS = 64
"""How many folders are remembered."""


class _Folder(NamedTuple):
    changed_ns: int
    led_out: tuple[tuple[str, str], ...]
    """Its links that lead out of the folders of the system, and where."""


class SearchPaths:
    """Makes search paths. Remembers the links of each folder until it changes."""

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}

    def inside(self, path: str, shown: Collection[str]) -> tuple[str, Mapping[str, str]]:
        """Return a search path without the folders that a process cannot read, and scripts by name that must come
        first: each stands for a link to a program that it may not run, and starts the next one of this name.

        Args:
            path: The search path outside.
            shown: What a process may use beside the folders of the system.
        """
        roots = (*SYSTEM, *shown)
        folders = [
            folder
            for folder in path.split(os.pathsep)
            if not os.path.isabs(folder) or is_within(roots, os.path.realpath(folder))
        ]
        return os.pathsep.join(folders) or os.defpath, dict(self._instead(folders, roots))

    def _instead(self, folders: Sequence[str], roots: Collection[str]) -> Iterator[tuple[str, str]]:
        seen = set[str]()
        for number, folder in enumerate(folders):
            for name, target in self._led_out(folder):
                if name in seen or is_within(roots, target):
                    continue
                seen.add(name)
                if any(_is_program(f"{each}/{name}") for each in folders[:number]):
                    continue
                later = (f"{each}/{name}" for each in folders[number + 1 :])
                found = (
                    each for each in later if _is_program(each) and is_within(roots, os.path.realpath(each))
                )
                if program := next(found, ""):
                    # A link would lie to a program about its place: a virtual environment would be made of it.
                    yield name, f'#!/bin/sh\nexec {shlex.quote(program)} "$@"\n'

    def _led_out(self, folder: str) -> Sequence[tuple[str, str]]:
        """Return the links to programs in a folder that lead out of the system's, and where."""
        if not os.path.isabs(folder) or folder in _OF_SYSTEM:
            return ()
        known = self._known.pop(folder, None)
        with suppress(OSError):
            changed_ns = os.stat(folder).st_ctime_ns  # noqa: PTH116
            if known is None or known.changed_ns != changed_ns:
                # What has just changed may change again and have the same time.
                age_ms = SYSTEM_CLOCK.now_ms() - changed_ns // 1_000_000
                known = _Folder(changed_ns if age_ms > COARSE_MS else 0, tuple(_links(folder)))
            self._known[folder] = known
            while len(self._known) > _MOST_FOLDERS:
                del self._known[next(iter(self._known))]
            return known.led_out
        return ()


def _links(folder: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and _is_program(entry.path):
                target = os.path.realpath(entry.path)
                if not is_within(SYSTEM, target):
                    yield entry.name, target


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
