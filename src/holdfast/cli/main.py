"""The way in: heeds signals before anything else is loaded, then `root` runs the command.

Nothing heavy is imported here: until the handlers stand, a signal ends the process as the system does it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from holdfast.cli.signals import deadly, interruptible

INTERRUPTED = 130
_ROOT = "holdfast.cli.root"


def main() -> None:
    """The entry point of the installed script."""
    try:
        interruptible()
        _mend_streams()
        code = import_module(_ROOT).run(sys.argv[1:])
    except KeyboardInterrupt:
        deadly()
        _leave_interrupted()
    sys.exit(code)


def _leave_interrupted() -> NoReturn:
    with suppress(OSError):  # the terminal may be gone
        sys.stderr.write("holdfast: interrupted\n")
        sys.stdout.flush()
    # Not by SystemExit: after an interrupt within an `exec`, as in a module that makes a dataclass, the
    # interpreter would end by SIGINT whatever code it is given.
    os._exit(INTERRUPTED)


def _mend_streams() -> None:
    """Have all three streams, and have them take any text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # started with the descriptor closed, as some daemons do
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open until the process ends
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
