"""Locates a home and configuration files. Nothing is created or read here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs

from holdfast.errors import UsageError

USER_FILE = "config.toml"
PROJECT_FILE = "holdfast.toml"
ADMIN_FILE = Path("/etc") / "holdfast" / USER_FILE
LOCAL_TIME = Path("/etc") / "localtime"
"""A link to the time zone of the machine."""
HOME_VARIABLE = "HOLDFAST_HOME"
ADMIN_VARIABLE = "HOLDFAST_ADMIN_CONFIG"


class Home(msgspec.Struct, frozen=True):
    """One installation: its data, and the user's configuration file."""

    folder: Path
    """Database, blobs, caches and secrets."""
    user_file: Path


def find_home(given: str | None, environ: Mapping[str, str]) -> Home:
    """Return the home that a flag names, otherwise HOLDFAST_HOME, otherwise the user's folders on this system.

    Raises:
        UsageError: its name is not UTF-8 text, or begins with the name of no user.
    """
    named = given or environ.get(HOME_VARIABLE, "")
    if named:
        folder = settings = expanded(named).absolute()
    else:
        folder = Path(platformdirs.user_data_dir("holdfast", appauthor=False))
        settings = Path(platformdirs.user_config_dir("holdfast", appauthor=False))
    if not is_text(f"{folder}{settings}"):
        hint = "Name another one with --home or HOLDFAST_HOME."
        raise UsageError(f"The name of the home {str(folder)!r} is not UTF-8 text.", hint=hint)
    return Home(folder, settings / USER_FILE)


def expanded(named: str | Path) -> Path:
    """Return a path that a person named, with the folder of a user for `~` or `~USER` at its begin.

    Raises:
        UsageError: there is no such user.
    """
    try:
        return Path(named).expanduser()
    except RuntimeError:
        user = str(named).partition("/")[0][:80]
        hint = f"Write ./{user} if the name begins with a tilde."
        raise UsageError(f"{user} names no user of this machine.", hint=hint) from None


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder. A name that is too long for the system is none, like any other path that
    cannot be looked at.
    """
    return os.path.isdir(path)  # noqa: PTH112 - `Path.is_dir` raises for some of them


def is_text(name: str) -> bool:
    """Return whether a name can be stored: a system may allow any bytes in a file name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def admin_files(environ: Mapping[str, str], machine_file: Path = ADMIN_FILE) -> tuple[Path, ...]:
    """Return the files of an administrator: the machine's own, and one that a variable adds."""
    named = environ.get(ADMIN_VARIABLE, "")
    return (machine_file, Path(named)) if named else (machine_file,)
