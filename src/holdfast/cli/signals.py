"""Signals that end a command: each of them works like Ctrl-C.

Closing a terminal or ending a service may send several. Only a second Ctrl-C asks for a hurried end.

`main` needs this module before anything else, so it imports little. `sitting` handles signals during a run.
"""

from __future__ import annotations

import os
import signal
import stat
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command. SIGHUP is not one if it was ignored from the start, as by `nohup`."""
    is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in _ENDING if not (is_deaf and number == signal.SIGHUP))


def interruptible() -> None:
    """Make every signal that ends a command raise KeyboardInterrupt."""
    for number in heeded():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)


def _end(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        leave_terminal()
    unhurried()
    signal.default_int_handler(number, frame)


def unhurried() -> None:
    """Let only Ctrl-C cut the end short that has begun."""
    for number in heeded():
        if number != signal.SIGINT:
            # Not SIG_IGN: what this process starts would inherit it.
            signal.signal(number, lambda *_: None)


def leave_terminal() -> None:
    """Discard further output to a terminal that is gone, so that writing does not fail.

    A terminal that is gone cannot be recognised as one, so every character device counts.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        try:
            is_device = stat.S_ISCHR(os.fstat(fd).st_mode)
        except OSError:  # it was closed from the start
            continue
        if is_device:
            os.dup2(nowhere, fd)
    os.close(nowhere)


def deadly() -> None:
    """Let signals kill the process silently from now on, because the command is over."""
    for number in heeded():
        signal.signal(number, signal.SIG_DFL)
