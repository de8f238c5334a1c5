"""Loaded by a Python process that has this folder on its path. Where its environment says so, it sends itself a
signal at a moment that is counted and not timed, so that the same moment comes on any machine.

    MOMENT=.100         at the hundredth thing that it asks of the system: a file to open, a module to load
    MOMENT=S10          at the tenth statement that another thread than the main one asks of the database
    MOMENT=R1           when a file of a folder that it holds open was replaced for the first time
    SIGNAL=9            this signal; without it none
    SEEN=FILE           a file that gets a `.`, an `S` or an `R` for each of them
    FIRST_DELAY_MS=10   so soon a failed model call is tried again for the first time
    LEASE_MS=600000     so long a lease lasts
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from typing import Any

_UNTIL, _SIGNAL = os.environ.get("MOMENT", ""), int(os.environ.get("SIGNAL", "0"))
_MAIN = threading.main_thread()
_counts = dict.fromkeys(".SR", 0)


def see(seen: int, what: str) -> None:
    """Count it, and send the signal if it is time."""
    _counts[what] += 1
    if seen >= 0:
        os.write(seen, what.encode())
    if f"{what}{_counts[what]}" == _UNTIL and _SIGNAL:
        os.kill(os.getpid(), _SIGNAL)


def watch() -> None:
    """See whatever is asked of the system and of the database."""
    seen = -1
    if "SEEN" in os.environ:
        seen = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    plain = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = plain(*args, **kwargs)
        # In the main thread SQLite would swallow what a signal's handler raises.
        connection.set_trace_callback(lambda _: threading.current_thread() is _MAIN or see(seen, "S"))
        return connection

    sqlite3.connect = connect
    rename = os.rename

    def renamed(*args: Any, **kwargs: Any) -> None:
        rename(*args, **kwargs)
        if "src_dir_fd" in kwargs:
            see(seen, "R")

    os.rename = renamed
    sys.addaudithook(lambda event, arguments: see(seen, "."))


def change_times() -> None:
    """What is waited for is shorter, or longer."""
    if "FIRST_DELAY_MS" in os.environ:
        from holdfast.core import retry

        retry.FIRST_DELAY_MS = int(os.environ["FIRST_DELAY_MS"])
    if "LEASE_MS" in os.environ:
        from holdfast.runtime import holder

        holder.LEASE_MS = int(os.environ["LEASE_MS"])
        holder.RENEW_MS = holder.LEASE_MS // 3


if _UNTIL or "SEEN" in os.environ:
    watch()
change_times()
