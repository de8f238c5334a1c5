"""The flags that many commands share, and what they mean. A flag of one command stands with that command."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from holdfast.config.paths import Home, find_home


def _or_before_the_command(context: typer.Context, value: str | None) -> str | None:
    given = context.find_root().params.get("home")
    return value or (given if isinstance(given, str) else None)


HomeFlag = Annotated[
    str | None,
    typer.Option(
        "--home", metavar="DIR", help="The home; else HOLDFAST_HOME, else the user's folders.",
        callback=_or_before_the_command,
    ),
]  # fmt: skip
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON; lists are one object a line.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="An id, a unique beginning of one, channel:chat, or last.")
]


def home_of(flag: str | None) -> Home:
    """The home that the flag, or else the environment, names."""
    return find_home(flag, os.environ)
