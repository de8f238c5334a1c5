"""Where the command looks for modules of Python: not in folders in which the commands of its runs may write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.policy.paths import is_within
from holdfast.sandbox.installed import OURS

_PATH = "PYTHONPATH"
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_HOLDFAST = str(Path(__file__).resolve().parents[2])


def only_installed() -> None:
    """Look for modules only where packages are installed, where Holdfast and its Python lie, and where PYTHONPATH
    says.

    A project that is installed for editing (`pip install -e .`) has its own folder in the path. Commands of some run
    may have written modules there, which would be loaded outside of every sandbox.
    """
    named = {*os.environ.get(_PATH, "").split(os.pathsep)}
    sys.path[:] = [each for each in sys.path if each in named or _is_installed(os.path.realpath(each))]


def _is_installed(folder: str) -> bool:
    return (
        folder == _HOLDFAST or os.path.basename(folder) in _PACKAGES or is_within(OURS, folder)  # noqa: PTH119
    )


def only_from_elsewhere(writable: Iterable[str]) -> None:
    """Look for modules in none of these folders from now on, but in what no command may change there, as a virtual
    environment of Holdfast's own.

    Raises:
        UsageError: PYTHONPATH names such a folder. What it names comes first, before anything could be left out.
    """
    roots = [*map(os.path.realpath, writable)]
    for folder in filter(None, os.environ.get(_PATH, "").split(os.pathsep)):
        if is_within(roots, os.path.realpath(folder)):
            raise UsageError(
                f"{_PATH} names {folder}, where commands of the run may write. At its next start, Holdfast would "
                "load modules from there, outside of the sandbox.",
                hint=f"Start it as `env -u {_PATH} holdfast ...`.",
            )
    reals = {each: os.path.realpath(each) for each in sys.path}
    sys.path[:] = [
        each for each, real in reals.items() if is_within(OURS, real) or not is_within(roots, real)
    ]
