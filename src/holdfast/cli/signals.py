"""Which signals end a command, that each of them ends it as Ctrl-C does, and what a hang-up does to the streams.

Light on purpose: `main` needs it before anything else is loaded. What a signal means while a session is worked on
stands in `sitting`.
"""

from __future__ import annotations

import os
import signal
import stat
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded() -> tuple[signal.Signals, ...]:
    """The signals that end a command. A hang-up is none where it was ignored from the start, as by `nohup`."""
    is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in _ENDING if not (is_deaf and number == signal.SIGHUP))


def interruptible() -> None:
    """Let every signal that ends a command raise KeyboardInterrupt."""
    for number in heeded():
        signal.signal(number, _hang_up if number == signal.SIGHUP else signal.default_int_handler)


def _hang_up(number: int, frame: FrameType | None) -> None:
    leave_terminal()
    signal.default_int_handler(number, frame)


def leave_terminal() -> None:
    """The terminal is gone: what is still written to it goes nowhere and must not fail.

    It cannot be asked any more whether it is one, so that any other device than a file or a pipe counts.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        try:
            is_device = stat.S_ISCHR(os.fstat(fd).st_mode)
        except OSError:  # closed from the start
            continue
        if is_device:
            os.dup2(nowhere, fd)
    os.close(nowhere)


def deadly() -> None:
    """The command is over: whatever comes now ends the process without a word."""
    for number in heeded():
        signal.signal(number, signal.SIG_DFL)
