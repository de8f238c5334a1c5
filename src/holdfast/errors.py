"""The exceptions that end a command or a program's call, each with a stable code and an exit code.

Expected outcomes of a run (a refused call, a spent budget, a failed provider) are data in the journal
(`protocol.failures`), never exceptions. A tool raises `ToolError`, which becomes such data.
`clearing_up` keeps errors during cleanup from changing an outcome.

    HoldfastError
    ├── UsageError            2   the caller asked for something impossible
    │   ├── ConfigError       2   a configuration file or value is wrong (all problems at once)
    │   ├── Forbidden         2   the sender lacks a scope; nothing was accepted
    │   ├── SecretsSealed     2   a running process cannot read the secrets that were stored meanwhile
    │   ├── NoSuchSession     2   no session, approval or record by that name
    │   └── RecordErased      2   an erased record is needed
    ├── NoOutput              1   a run has no output to return
    ├── Overloaded            1   the inbox is full; nothing was accepted
    ├── Conflict              1   what is there already is in the way; nothing was changed
    ├── Unfinished            1   some files are neither as they were nor as they are to be; the command completes it
    ├── Fenced                1   another driver has the session; nothing was written
    │   └── Lapsed            1   another driver may have the session; an effect was not begun
    ├── ProviderUnavailable   7   no such provider, no key, or not reachable
    ├── SandboxUnavailable    8   the configured sandbox cannot run here
    └── StorageError          9   the store cannot be read or written
        ├── StorageFull       9   no space left; acknowledged records are safe
        ├── StorageReadOnly   9   the home is not writable
        ├── StorageUnreadable 9   the home is not readable
        ├── StorageCorrupt    9   a record or the file is damaged
        ├── StorageReplaced   9   the database file was replaced
        ├── StorageLocked     9   another process locks the database
        └── StorageNewer      9   written by a newer version of Holdfast
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("holdfast")


class HoldfastError(Exception):
    """The base class. The message is safe to show to a user."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        text = message or (type(self).__doc__ or "").strip()
        super().__init__(text)
        self.message = text
        self.hint = hint
        """The next step, as a sentence; may be empty. A traceback shows it too."""
        if hint:
            self.add_note(hint)


class UsageError(HoldfastError):
    """The request is wrong or impossible."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """The configuration has errors."""

    code = "config"

    def __init__(self, problems: list[str] | str, *, hint: str = "") -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems), hint=hint)


class NoOutput(HoldfastError):
    """The run has no output."""

    code = "no_output"


class Forbidden(UsageError):
    """The sender may not do this. Nothing was accepted."""

    code = "forbidden"


class SecretsSealed(UsageError):
    """Secrets were stored while this process ran, and it cannot read them. So it could not mask them."""

    code = "secrets_sealed"


class NoSuchSession(UsageError):
    """There is no such session, approval or record."""

    code = "not_found"


class RecordErased(UsageError):
    """A record that is needed was erased."""

    code = "erased"


class Overloaded(HoldfastError):
    """The inbox of the session is full. Nothing was accepted; try again later."""

    code = "overloaded"


class Conflict(HoldfastError):
    """What is there already is in the way. Nothing was changed."""

    code = "conflict"


class Unfinished(HoldfastError):
    """Some files are neither as they were nor as they are to be. The same command completes it."""

    code = "unfinished"


class Fenced(HoldfastError):
    """Another driver has the session. Nothing was written."""

    code = "fenced"


class Lapsed(Fenced):
    """The lease lapsed before this could begin."""

    code = "lapsed"


class ProviderUnavailable(HoldfastError):
    """The provider cannot be used."""

    code = "provider_unavailable"
    exit_code = 7


class SandboxUnavailable(HoldfastError):
    """The configured sandbox cannot run on this machine."""

    code = "sandbox_unavailable"
    exit_code = 8


class StorageError(HoldfastError):
    """The storage of the home cannot be used."""

    code = "storage"
    exit_code = 9
    accepted: bool | None = None
    """Whether the command that failed is stored all the same; None if there was none, or nobody can be certain."""


class StorageFull(StorageError):
    """The disk is full. Acknowledged records are safe."""

    code = "storage_full"


class StorageReadOnly(StorageError):
    """The home is not writable."""

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
    """Another process locks the database."""

    code = "storage_locked"


class StorageNewer(StorageError):
    """A newer version of Holdfast wrote this home."""

    code = "storage_newer"


class ToolError(Exception):
    """What a tool raises to tell the model why it could not do its work. The model sees the text, redacted.

    Any other exception counts as a bug of the tool: the model only sees that it failed.
    """


class ToolUnavailable(ToolError):
    """What a tool raises if it cannot work now, whatever its arguments are. The failure names what can stand in."""


@contextmanager
def clearing_up(what: str) -> Iterator[None]:
    """Log errors inside the block and continue: cleanup must not change the outcome of the work."""
    try:
        yield
    except Exception as error:
        # The text of any other error may contain anything, and a log is read by many.
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        _log.warning("%s could not be cleared up: %s", what, why)
