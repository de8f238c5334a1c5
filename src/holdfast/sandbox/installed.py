"""Where Holdfast and its Python are installed, from where programs outside of the sandbox come. It imports little, as
every command begins with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
"""The folder that has the package."""
OURS = tuple(
    dict.fromkeys(
        (
            sys.prefix,
            sys.exec_prefix,
            sys.base_prefix,
            sys.base_exec_prefix,
            str(Path(os.__file__).parent),
            str(Path(sys.executable).absolute().parent),
            str(Path(sys.executable).resolve().parent),
            str(Path(__file__).parents[1]),
        )
    )
)
"""These folders may lie in the workspace. A virtual environment takes its library from another Python."""
CODE = (str(Path(os.__file__).parent), str(Path(__file__).resolve().parents[1]))
"""The library of Python, and the package."""
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def only_installed() -> None:
    """Look for modules only where packages are installed, where Holdfast and its Python lie, and where PYTHONPATH
    says.

    A project that is installed for editing (`pip install -e .`) has its own folder in the path, or a finder of its
    own. Commands of some run may have written modules there, which would be loaded outside of every sandbox.
    """
    # An empty entry would be whatever folder Holdfast begins in.
    named = {*map(_whole, filter(None, named_folders()))}
    sys.path[:] = [each for each in sys.path if each in named or _is_installed(Path(each).resolve())]
    sys.meta_path[:] = filter(_is_of_python, sys.meta_path)


def named_folders() -> list[str]:
    """Return the folders that PYTHONPATH names. An empty one is the current folder."""
    named = os.environ.get("PYTHONPATH", "")
    return named.split(os.pathsep) if named else []


def _whole(folder: str) -> str:
    """Return a path as Python has it in its own list."""
    try:
        return os.path.abspath(folder)  # noqa: PTH100 (no link is followed)
    except OSError:  # the current folder is gone
        return folder


def _is_of_python(finder: object) -> bool:
    module = getattr(finder, "__module__", "") or ""
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_installed(folder: Path) -> bool:
    return str(folder) == ROOT or folder.name in _PACKAGES or any(map(folder.is_relative_to, OURS))
