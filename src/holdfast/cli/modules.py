"""Where the command looks for modules of Python: not in folders in which the commands of its runs may write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from holdfast.errors import UsageError
from holdfast.policy.paths import is_within
from holdfast.sandbox.installed import OURS

_PATH = "PYTHONPATH"


def only_from_elsewhere(writable: Iterable[str]) -> None:
    """Look for modules in none of these folders from now on, but in what no command may change there.

    A project that is installed beside Holdfast (`pip install -e .`) has its folder in the path. A module that a
    command writes there would be loaded outside of every sandbox.

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
