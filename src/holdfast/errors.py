"""The taxonomy of what can go wrong at the edge: exceptions, each with a stable code and an exit code; and the one
place where what goes wrong while clearing up is kept from changing an outcome.

Expected outcomes of a run (a refused call, a spent budget, a failed provider) are data in the journal
(`protocol.failures`), never exceptions. What belongs here is what ends a command or a program's call:

    HoldfastError
    ├── UsageError            2   the caller asked for something that cannot be
    │   ├── ConfigError       2   a configuration file or value is wrong (all problems at once)
    │   ├── Forbidden         2   who asked may not ask for that: nothing was accepted
    │   ├── NoSuchSession     2   no session, approval or record by that name
    │   └── RecordErased      2   what is asked for needs a record that was erased
    ├── Overloaded            1   the inbox is full: nothing was accepted
    ├── Fenced                1   another driver took the session: this one wrote nothing
    ├── ProviderUnavailable   7   no such provider, no key, or it cannot be reached
    ├── SandboxUnavailable    8   the configured sandbox cannot run here
    └── StorageError          9   the store cannot be read or written
        ├── StorageFull       9   no space left; what was acknowledged is safe
        ├── StorageReadOnly   9   the home cannot be written
        ├── StorageUnreadable 9   the home may not even be read
        ├── StorageCorrupt    9   a record or the file is damaged
        ├── StorageReplaced   9   the database is another file than the one that was opened
        ├── StorageLocked     9   another process holds the database for too long
        └── StorageNewer      9   written by a newer version of Holdfast
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("holdfast")


class HoldfastError(Exception):
    """Something ended this call; the message is safe to show a user."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        text = message or (type(self).__doc__ or "").strip()
        super().__init__(text)
        self.message = text
        self.hint = hint
        """The next command or step that helps, in one sentence; may be empty."""


class UsageError(HoldfastError):
    """What was asked for cannot be done as asked."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """The configuration has problems."""

    code = "config"

    def __init__(self, problems: list[str] | str, *, hint: str = "") -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems), hint=hint)


class Forbidden(UsageError):
    """Who asked may not ask for that; nothing was accepted."""

    code = "forbidden"


class NoSuchSession(UsageError):
    """Nothing by that name is in this home."""

    code = "not_found"


class RecordErased(UsageError):
    """A record that this needs was erased."""

    code = "erased"


class Overloaded(HoldfastError):
    """The session's inbox is full; nothing was accepted, send again later."""

    code = "overloaded"


class Fenced(HoldfastError):
    """Another driver holds this session now; nothing was written."""

    code = "fenced"


class ProviderUnavailable(HoldfastError):
    """The model provider cannot be used."""

    code = "provider_unavailable"
    exit_code = 7


class SandboxUnavailable(HoldfastError):
    """The configured sandbox cannot run on this machine."""

    code = "sandbox_unavailable"
    exit_code = 8


class StorageError(HoldfastError):
    """The home's storage cannot be used."""

    code = "storage"
    exit_code = 9


class StorageFull(StorageError):
    """The disk is full; everything acknowledged so far is safe."""

    code = "storage_full"


class StorageReadOnly(StorageError):
    """The home cannot be written to."""

    code = "storage_read_only"


class StorageUnreadable(StorageError):
    """The home may not be read."""

    code = "storage_unreadable"


class StorageCorrupt(StorageError):
    """The database is damaged."""

    code = "storage_corrupt"


class StorageReplaced(StorageError):
    """The database was replaced while it was in use."""

    code = "storage_replaced"


class StorageLocked(StorageError):
    """Another process keeps the database locked."""

    code = "storage_locked"


class StorageNewer(StorageError):
    """This home was written by a newer version of Holdfast; upgrade to open it."""

    code = "storage_newer"


@contextmanager
def clearing_up(what: str) -> Iterator[None]:
    """Log what fails inside the block and go on: the outcome of the work stands before its clearing up begins."""
    try:
        yield
    except Exception as error:
        _log.warning("%s could not be cleared up: %s: %s", what, type(error).__name__, error)
