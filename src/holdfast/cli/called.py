"""How this program was called, so that the commands it prints work when they are copied.

Somebody who passed `--home`, or whose shell does not find `holdfast`, needs both in the next command too. Only what
people read is written so: JSON has the plain command.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path

_COMMAND = re.compile(r"^(`?)holdfast\b([^`]*)")
_HOME = "--home"
_home: ContextVar[str] = ContextVar("home", default="")
"""The home that a flag named; empty when none did."""


def remember_call(arguments: Sequence[str]) -> None:
    """Remember what the next commands must repeat."""
    home = home_flag(arguments)
    _home.set(str(Path(home).expanduser().absolute()) if home else "")


def home_flag(arguments: Sequence[str]) -> str:
    """The value of `--home`; empty when it is not given."""
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        if argument == _HOME:
            return following
        if argument.startswith(f"{_HOME}="):
            return argument.partition("=")[2]
    return ""


def as_called(command: str) -> str:
    """The command as it would have to be typed here: `holdfast show last` with the same program and home."""
    home = f" {_HOME} {shlex.quote(_home.get())}" if _home.get() and _HOME not in command else ""
    return _COMMAND.sub(lambda match: f"{match[1]}{_program()}{match[2]}{home}", command)


def _program() -> str:
    """What starts this very installation: its name where the shell finds it by that, else its path."""
    script = Path(sys.executable).parent / "holdfast"
    found = shutil.which("holdfast")
    if found and (not script.exists() or Path(found).samefile(script)):
        return "holdfast"
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m holdfast"
