"""Loaded by a Python process that has this folder on its path. Where its environment says so, it sends itself a
signal at a moment that is counted and not timed, so that the same moment comes on any machine; and it sees other
lengths of time, or another clock.

    MOMENT=.100         at the hundredth thing that it asks of the system: a file to open, a module to load
    MOMENT=S10          at the tenth statement of another thread than the main one that adds to the database, or
                        changes a session: what it looks at, and how often it renews a lease, depends on the time
    MOMENT=R1           when a file of a folder that it holds open was replaced for the first time
    SIGNAL=9            this signal; without it none
    SEEN=FILE           a file that gets a `.`, an `S` or an `R` for each of them
    FIRST_DELAY_MS=10   so soon a failed model call is tried again for the first time
    LEASE_MS=600000     so long a lease lasts
    LAPSE_S=0.1         so often it looks for leases that lapsed
    CLOCK=FILE          holds by how many milliseconds the clock on the wall is wrong, at any moment

The process stops itself at the named moment, once, as if somebody had sent it SIGSTOP then. With a number
behind it, as in `written:3`, it does so when the moment comes for the third time.

    SLEEPS_AT=accepted      a command is on disk, and nobody has read it
    SLEEPS_AT=commit:TYPE   a commit with a record of that type is on disk, and nothing has come of it yet
    SLEEPS_AT=rendered      a request is ready, and nothing tells of it yet
    SLEEPS_AT=judged        the gates let a call pass, and nothing tells of it yet
    SLEEPS_AT=written       the new content of a file is on disk beside the file, which it is about to replace
    SLEEPS_AT=connected     a connection to the model's server is there, and nothing was sent on it
    SLEEPS_AT=starting      the lease was found to hold, and a program is about to be started
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

_UNTIL, _SIGNAL = os.environ.get("MOMENT", ""), int(os.environ.get("SIGNAL", "0"))
_MAIN = threading.main_thread()
_counts = dict.fromkeys(".SR", 0)
_came: list[str] = []
"""How often the moment to sleep at came."""


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
        connection.set_trace_callback(lambda sql: writes(sql) and see(seen, "S"))
        return connection

    def writes(sql: str) -> bool:
        return sql.startswith(("INSERT", "UPDATE sessions")) and threading.current_thread() is not _MAIN

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
        change("core.retry", FIRST_DELAY_MS=int(os.environ["FIRST_DELAY_MS"]))
    if "LEASE_MS" in os.environ:
        lease_ms = int(os.environ["LEASE_MS"])
        change("runtime.holder", LEASE_MS=lease_ms, RENEW_MS=lease_ms // 3)
        change("runtime.heartbeat", BEAT_S=min(1.0, lease_ms / 6_000))
    if "LAPSE_S" in os.environ:
        change("runtime.lookout", LAPSE_S=float(os.environ["LAPSE_S"]))


def change(room: str, **values: object) -> None:
    """Give a module other values, and all that took them from it before: everything may be loaded already."""
    plain = import_module(f"holdfast.{room}")
    for name, value in values.items():
        assert name in vars(plain), name
        for module in [each for path, each in sys.modules.items() if path.startswith("holdfast.")]:
            if name in vars(module):
                setattr(module, name, value)


def change_clock() -> None:
    """The clock on the wall is as wrong as the file says at each look; no other clock is touched."""
    fd, plain = os.open(os.environ["CLOCK"], os.O_RDONLY | os.O_CLOEXEC), time.time_ns

    def time_ns() -> int:
        return plain() + int(os.pread(fd, 20, 0)) * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


# --- sleep --------------------------------------------------------------------------------------


def sleep(count: int) -> None:
    """Stop until somebody sends SIGCONT, if the moment comes for the time that was told."""
    _came.append("")
    if len(_came) == count:
        # To this very thread, which else might go on for a moment until another one has stopped all.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def sleep_when_accepted(count: int) -> None:
    """Between what was accepted and the first record."""
    from holdfast.storage.sqlite import SqliteStore

    for name in ("claim", "post"):
        setattr(SqliteStore, name, _sleeping_after(getattr(SqliteStore, name), count))


def _sleeping_after(plain: Any, count: int) -> Any:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        answer = await plain(*args, **kwargs)
        sleep(count)
        return answer

    return wrapped


def sleep_after_commit(type_: str, count: int) -> None:
    """Between what was decided and what is done."""
    from holdfast.storage.sqlite import SqliteStore

    plain = SqliteStore.commit

    async def commit(self: SqliteStore, commit: Any) -> bool:
        is_released = await plain(self, commit)
        if any(record.type == type_ for record in commit.records):
            sleep(count)
        return is_released

    SqliteStore.commit = commit  # type: ignore[method-assign]


def sleep_when_prepared(step: str, count: int) -> None:
    """Between what a prepare step found and its commit."""
    from holdfast.runtime.prepare import Planner

    setattr(Planner, step, _sleeping_after(getattr(Planner, step), count))


def sleep_when_written(count: int) -> None:
    """Between the last word on disk and the new name."""
    plain = os.fsync

    def fsync(fd: int) -> None:
        plain(fd)
        if ".holdfast-" in Path(f"/proc/self/fd/{fd}").readlink().name:
            sleep(count)

    os.fsync = fsync


def sleep_when_connected(count: int) -> None:
    """Between the connection and the request."""
    import aiohttp

    plain = aiohttp.TCPConnector.connect

    async def connect(self: aiohttp.TCPConnector, *args: Any, **kwargs: Any) -> Any:
        connection = await plain(self, *args, **kwargs)
        sleep(count)
        return connection

    aiohttp.TCPConnector.connect = connect  # type: ignore[method-assign]


def sleep_when_starting(count: int) -> None:
    """Sleep between the check of the lease and the order to the keeper, which starts the program."""
    import asyncio

    plain = asyncio.open_unix_connection

    async def open_unix_connection(*args: Any, **kwargs: Any) -> Any:
        sleep(count)
        return await plain(*args, **kwargs)

    asyncio.open_unix_connection = open_unix_connection


def sleep_at(moment: str) -> None:
    """Do so once, at that moment."""
    where, *rest = moment.split(":")
    count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
    import aiohttp  # noqa: F401  # nothing is left to load that would take long while others wait

    match where:
        case "accepted":
            sleep_when_accepted(count)
        case "commit":
            sleep_after_commit(rest[0], count)
        case "rendered":
            sleep_when_prepared("request", count)
        case "judged":
            sleep_when_prepared("admission", count)
        case "written":
            sleep_when_written(count)
        case "connected":
            sleep_when_connected(count)
        case "starting":
            sleep_when_starting(count)


if _UNTIL or "SEEN" in os.environ:
    watch()
change_times()
if "CLOCK" in os.environ:
    change_clock()
if "SLEEPS_AT" in os.environ:
    sleep_at(os.environ["SLEEPS_AT"])
