"""Finds the entry points of a group without `importlib.metadata`, whose import takes longer than a whole turn.

It reads the `entry_points.txt` of the installed packages. Only a package that has one of the group is loaded.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

MEND = "Mend or uninstall the package."
"""What to do about a package that fails."""
_FOLDERS = (".dist-info", ".egg-info")


class EntryPoint(msgspec.Struct, frozen=True):
    """What a package offers."""

    name: str
    target: str
    """As "module:name"."""
    package: str

    def load(self) -> Any:
        """Return what it points to. Raises whatever the import raises."""
        module, _, names = self.target.partition(":")
        found: Any = import_module(module.strip())
        for name in names.split("[")[0].strip().split("."):
            found = getattr(found, name)
        return found

    def hint(self, error: Exception) -> str:
        """Return what a person can do about an error of `load`."""
        module = self.target.partition(":")[0].strip()
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            return (
                "If you develop this package (`pip install -e .`), name the folder of its modules in PYTHONPATH, "
                "and keep that folder out of where commands may write. Else install or uninstall the package."
            )
        return MEND


def entry_points(group: str, path: Sequence[str] | None = None) -> tuple[EntryPoint, ...]:
    """Return the entry points of the group, sorted by name. The first of two with the same name counts.

    Args:
        group: The name of the group.
        path: Where packages are looked for. The default is where Python looks for modules.
    """
    found: dict[str, EntryPoint] = {}
    for folder in sys.path if path is None else path:
        with suppress(OSError):
            for each in _offered(group, folder or ".", Path(folder or ".").stat().st_mtime_ns):
                found.setdefault(each.name, each)
    return tuple(found[name] for name in sorted(found))


@functools.lru_cache(maxsize=64)
def _offered(group: str, folder: str, changed_ns: int) -> tuple[EntryPoint, ...]:
    """Return what the packages in a folder offer. An installation changes the folder's time, and is seen."""
    header = f"[{group}]"
    tables = [(package, text) for package, text in _tables(folder) if header in text]
    return tuple(each for package, text in tables for each in _read(group, package, text))


def _tables(folder: str) -> Iterator[tuple[str, str]]:
    """Return the package and the text of each table of entry points in the folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(_FOLDERS))
        for name in names:
            with suppress(OSError, UnicodeDecodeError):
                table = Path(folder, name, "entry_points.txt").read_text("utf-8")
                yield name.rpartition(".")[0].split("-")[0], table


def _read(group: str, package: str, text: str) -> Iterator[EntryPoint]:
    current = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            current = line.strip("[]").strip()
        elif current == group and not line.startswith(("#", ";")):
            name, is_row, target = line.partition("=")
            if is_row:
                yield EntryPoint(name.strip(), target.strip(), package)
