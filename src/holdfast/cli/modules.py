"""Keeps the modules of Python that a run loads out of what its commands may change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from holdfast.errors import UsageError
from holdfast.policy.paths import is_within
from holdfast.sandbox.installed import OURS, named_folders


def only_from_elsewhere(writable: Iterable[str]) -> None:
    """Look for modules in none of these folders from now on, but in what no command may change there, as a virtual
    environment of Holdfast's own.

    Raises:
        UsageError: PYTHONPATH names such a folder. What it names comes first, before anything could be left out.
    """
    roots = [*map(os.path.realpath, writable)]
    for folder in named_folders():
        if is_within(roots, _real(folder)):
            shown = folder or "the current folder, by an empty entry"
            raise UsageError(
                f"PYTHONPATH names {shown}, where commands of the run may write. At its next start, Holdfast would "
                "load modules from there, outside of the sandbox.",
                hint="Start it as `env -u PYTHONPATH holdfast ...`.",
            )
    reals = {each: _real(each) for each in sys.path}
    sys.path[:] = [
        each for each, real in reals.items() if is_within(OURS, real) or not is_within(roots, real)
    ]


def _real(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except OSError:  # the current folder is gone
        return folder
