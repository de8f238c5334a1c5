"""Real hooks of a few lines, and the calls that they are asked about."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from holdfast.app import factories
from holdfast.extensions.hooks import ConfiguredHooks
from holdfast.protocol.hooks import Hook, HookSource, digest_of
from holdfast.redact import Redactor

SECRET = "-".join(("hunter2", "hunter2", "hunter2"))


def hook(name: str, script: str, **changes: Any) -> HookSource:
    """A hook that runs a script of the shell."""
    command = ("/bin/sh", "-c", script)
    given: dict[str, Any] = {"on": ("before_tool",), "digest": digest_of(command), **changes}
    return HookSource(Hook(name, **given), command)


def saying(name: str, answer: object, **changes: Any) -> HookSource:
    """A hook that always gives this answer."""
    return hook(name, f"printf %s {shlex.quote(json.dumps(answer))}", **changes)


def rewriting(name: str, old: str, new: str, **changes: Any) -> HookSource:
    """A hook that replaces a text in the arguments."""
    script = (
        f"""sed -n 's/.*"arguments":\\({{.*}}\\)}}$/{{"arguments":\\1}}/; s/{old}/{new}/gp; t; s/.*/{{}}/p'"""
    )
    return hook(name, script, **changes)


def noting(name: str, file: Path, answer: str = "{}", **changes: Any) -> HookSource:
    """A hook that keeps what it reads, one line for each event."""
    return hook(
        name, f"cat >> {shlex.quote(str(file))}; echo >> {shlex.quote(str(file))}; echo '{answer}'", **changes
    )


def asked(*sources: HookSource, redact: Redactor | None = None) -> ConfiguredHooks:
    """The hooks of a runtime."""
    return ConfiguredHooks(sources, redact or Redactor({"HUNTER": SECRET}), os.environ, factories())
