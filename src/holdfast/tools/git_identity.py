"""Knows who the user is for git, as their own configuration says. Inside a sandbox nothing else of it is seen."""

from __future__ import annotations

import json
import subprocess
from functools import cache

from holdfast.sandbox.system import program_outside

_GIT_S = 5.0


@cache
def git_identity() -> str:
    """Return the user's name and address as git's configuration has them; empty if it has none."""
    argv = (program_outside("git"), "config", "--global", "--null", "--get-regexp", r"^user\.(name|email)$")
    try:
        found = subprocess.run(argv, cwd="/", capture_output=True, timeout=_GIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    said = found.decode(errors="replace").split("\0")
    entries = dict(entry.partition("\n")[::2] for entry in said if entry)
    lines = (
        f"\t{key.removeprefix('user.')} = {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in entries.items()
    )
    return f"[user]\n{''.join(lines)}" if entries else ""
