"""The flags that several commands share."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.paths import Home, find_home
from holdfast.config.values import duration
from holdfast.errors import UsageError

_SINCE = duration(1, 100 * 365 * 86_400)


def _or_before_the_command(context: typer.Context, value: str | None) -> str | None:
    given = context.find_root().params.get("home")
    return value or (given if isinstance(given, str) else None)


HomeFlag = Annotated[
    str | None,
    typer.Option(
        "--home", metavar="DIR", help="The home. Default: HOLDFAST_HOME, then the user's folders.",
        callback=_or_before_the_command,
    ),
]  # fmt: skip
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON; lists are one object per line.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="An id, a unique prefix of one, channel:chat, or last.")
]


def home_of(flag: str | None) -> Home:
    """Return the home that the flag or the environment names.

    Raises:
        UsageError: It is not a folder.
    """
    home = find_home(flag, os.environ)
    try:
        first = next(path for path in (home.folder, *home.folder.absolute().parents) if path.exists())
        is_possible = first.is_dir()
    except PermissionError:  # what opens the home reports this better
        is_possible = True
    except OSError:  # its name is too long
        is_possible = False
    if not is_possible:
        raise UsageError(f"The home {home.folder} is not a folder.", hint="Name another one with --home DIR.")
    return home


def since_ms(text: str) -> int:
    """Return the time that is so long ago; 0 for no text.

    Raises:
        UsageError: The text is not a length of time.
    """
    if not text:
        return 0
    try:
        return SYSTEM_CLOCK.now_ms() - int(_SINCE.read(text) * 1000)
    except ValueError:
        raise UsageError(f"--since must be {_SINCE.allowed}, not {text!r}.") from None
