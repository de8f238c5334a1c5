"""A command with a bug in it."""

from __future__ import annotations

from holdfast.cli.options import HomeFlag

SECRET = "ghp" + "_" + "a1B2c3D4e5F6" * 3


def broken(home: HomeFlag = None) -> None:
    """Fail as no command should."""
    raise ZeroDivisionError("the token is " + SECRET + " as odd as can be")
