"""The entry point: installs signal handlers, then loads `root` and runs the command.

This module imports nothing heavy, because a signal before the handlers are installed kills the process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from holdfast.cli.signals import deadly, interruptible
from holdfast.opening import by

INTERRUPTED = 130
_ROOT = "holdfast.cli.root"
_INSTALLED = "holdfast.sandbox.installed"
_STREAMS = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))
"""The standard streams by descriptor, and how a missing one is opened."""


def main() -> None:
    """Run the command line."""
    try:
        interruptible()
        _mend_streams()
        _mend_home()
        import_module(_INSTALLED).only_installed()
        code = import_module(_ROOT).run(sys.argv[1:])
    except KeyboardInterrupt:
        deadly()
        _leave_interrupted()
    _let_go()
    sys.exit(code)


def _leave_interrupted() -> NoReturn:
    with suppress(OSError):  # the terminal may be gone
        sys.stderr.write("holdfast: interrupted\n")
        sys.stdout.flush()
    # No SystemExit: if the interrupt came during an `exec`, as in a module with a dataclass, the
    # interpreter would die of SIGINT and ignore the exit code.
    os._exit(INTERRUPTED)


def _let_go() -> None:
    """Discard what a stream no longer takes. Python would fail to write it at its exit, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _mend_home() -> None:
    """Let an empty HOME count as none. Otherwise `~` would be `/` for Python and nothing for programs."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)


def _mend_streams() -> None:
    """Open missing standard streams, and make all three accept any text."""
    # Some daemons start programs with closed descriptors. Writing to a closed stdout fails, so that no answer is lost
    # silently. What goes to stderr may be lost.
    for name, mode, access in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, opener=by(access)))  # noqa: SIM115 - open until the end
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
