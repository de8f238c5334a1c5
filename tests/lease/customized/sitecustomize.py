"""Loaded by a Python process that has this folder on its path: its leases last as long as it is told, and it stops
itself where it is told, once, as if somebody had sent it SIGSTOP at exactly that moment.

    LEASE_MS=3000           so long they last
    SLEEPS_AT=accepted      the first command is on disk, and nobody has read it
    SLEEPS_AT=commit:TYPE   a commit with a record of that type is on disk, and nothing has come of it yet
    SLEEPS_AT=written       the new content of a file is on disk beside the file, which it is about to replace
    SLEEPS_AT=connected     a connection to the model's server is there, and nothing was sent on it
    SLEEPS_AT=starting      the lease was found to hold, and a program is about to be started
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

_WHERE, _, _TYPE = os.environ.get("SLEEPS_AT", "").partition(":")
_has_slept: list[str] = []


def sleep() -> None:
    """Stop until somebody sends SIGCONT."""
    if not _has_slept:
        _has_slept.append(_WHERE)
        # To this very thread, which else might go on for a moment until another one has stopped all.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def set_leases() -> None:
    """What others wait for; and nothing is left to load that would take long meanwhile."""
    import aiohttp  # noqa: F401

    from holdfast.runtime import holder

    lease_ms = int(os.environ["LEASE_MS"])
    holder.LEASE_MS, holder.RENEW_MS = lease_ms, lease_ms // 3


def sleep_after_commit() -> None:
    """Between what was decided and what is done."""
    from holdfast.storage.sqlite import SqliteStore

    plain = SqliteStore.commit

    async def commit(self: SqliteStore, commit: Any) -> bool:
        is_released = await plain(self, commit)
        if any(record.type == _TYPE for record in commit.records):
            sleep()
        return is_released

    SqliteStore.commit = commit  # type: ignore[method-assign]


def sleep_when_accepted() -> None:
    """Between what was accepted and the first record."""
    from holdfast.storage.sqlite import SqliteStore

    for name in ("claim", "post"):
        setattr(SqliteStore, name, _sleeping_after(getattr(SqliteStore, name)))


def _sleeping_after(plain: Any) -> Any:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        answer = await plain(*args, **kwargs)
        sleep()
        return answer

    return wrapped


def sleep_when_written() -> None:
    """Between the last word on disk and the new name."""
    plain = os.fsync

    def fsync(fd: int) -> None:
        plain(fd)
        if ".holdfast-" in Path(f"/proc/self/fd/{fd}").readlink().name:
            sleep()

    os.fsync = fsync


def sleep_when_connected() -> None:
    """Between the connection and the request."""
    import aiohttp

    plain = aiohttp.TCPConnector.connect

    async def connect(self: aiohttp.TCPConnector, *args: Any, **kwargs: Any) -> Any:
        connection = await plain(self, *args, **kwargs)
        sleep()
        return connection

    aiohttp.TCPConnector.connect = connect  # type: ignore[method-assign]


def sleep_when_starting() -> None:
    """Between the check of the lease and the word to whoever starts the program."""
    import asyncio

    plain = asyncio.open_unix_connection

    async def open_unix_connection(*args: Any, **kwargs: Any) -> Any:
        sleep()
        return await plain(*args, **kwargs)

    asyncio.open_unix_connection = open_unix_connection


_HOOKS = {
    "accepted": sleep_when_accepted,
    "commit": sleep_after_commit,
    "written": sleep_when_written,
    "connected": sleep_when_connected,
    "starting": sleep_when_starting,
}

if "LEASE_MS" in os.environ:  # tools and keepers are started with a clean environment
    set_leases()
    if _WHERE:
        _HOOKS[_WHERE]()
