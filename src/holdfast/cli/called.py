"""Makes printed commands work when they are copied.

A user who passed `--home`, or whose shell does not find `holdfast`, needs both in the next command too. Only text for
people is changed: JSON has the plain command.
"""

from __future__ import annotations

import os
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
"""The value of `--home`; empty without one."""


def remember_call(arguments: Sequence[str]) -> None:
    """Remember the flags that printed commands must repeat."""
    home = home_flag(arguments)
    _home.set(os.path.abspath(os.path.expanduser(home)) if home else "")  # noqa: PTH100, PTH111 - never raise


def home_flag(arguments: Sequence[str]) -> str:
    """Return the value of `--home`; empty without one."""
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        if argument == _HOME:
            return following
        if argument.startswith(f"{_HOME}="):
            return argument.partition("=")[2]
    return ""


def as_called(command: str) -> str:
    """Return a command, like `holdfast show last`, as the user would have to type it."""
    home = f" {_HOME} {shlex.quote(_home.get())}" if _home.get() and _HOME not in command else ""
    return _COMMAND.sub(lambda match: f"{match[1]}{_program()}{match[2]}{home}", command)


def _program() -> str:
    """Return the name of this program if the shell finds it, otherwise its path."""
    script = Path(sys.executable).parent / "holdfast"
    found = shutil.which("holdfast")
    if found and (not script.exists() or Path(found).samefile(script)):
        return "holdfast"
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m holdfast"
