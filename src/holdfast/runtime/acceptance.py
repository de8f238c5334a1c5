"""When the store fails, says whether a command was accepted: it was, if it was stored.

Sending an accepted command again would make it happen twice. The sentence comes before the hint about the failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StorageError, StorageFull, StorageLocked, StorageReadOnly
from holdfast.protocol.commands import (
    CommandBody,
    Compact,
    Continue,
    Pause,
    Resolve,
    Restore,
    Restored,
    Revoke,
    Send,
    Stop,
)

_NAMES: dict[type[CommandBody], str] = {
    Send: "message", Continue: "request to go on", Resolve: "decision", Pause: "pause", Stop: "stop",
    Restore: "intent to put files back", Restored: "report on files", Compact: "request to compact",
    Revoke: "request to revoke a grant",
}  # fmt: skip
_PASSING = (StorageError, StorageFull, StorageLocked, StorageReadOnly)
"""Failures after which the session goes on as soon as their cause is gone."""


def name_of(body: CommandBody) -> str:
    """Return what people call such a command."""
    return _NAMES[type(body)]


@contextmanager
def before_sending() -> Iterator[None]:
    """Say in a failure inside the block that nothing was accepted: no command was sent yet."""
    try:
        yield
    except StorageError as error:
        error.accepted = False
        raise _told(error, "Nothing was accepted.") from None


@contextmanager
def accepting(what: str, where: str) -> Iterator[None]:
    """Say in a failure inside the block that the command was not accepted. `where`: the command that shows it, if
    nobody can be certain.
    """
    try:
        yield
    except StorageError as error:
        raise refused(error, what, where) from None


@contextmanager
def accepted(sentence: str, session: str) -> Iterator[None]:
    """Say in a failure inside the block, by this sentence, that a command was accepted, and how to go on."""
    try:
        yield
    except StorageError as error:
        raise stored(error, sentence, session) from None


def refused(error: StorageError, what: str, where: str) -> StorageError:
    """Return the error, which says that the command was not accepted."""
    if type(error) is StorageError:  # the disk failed: what it has of the last write will show
        return _told(error, f"Whether the {what} was accepted is not certain: `{where}` shows it.")
    error.accepted = False
    return _told(error, f"The {what} was not accepted.")


def stored(error: StorageError, sentence: str, session: str) -> StorageError:
    """Return the error, which says that the command was accepted, and how its session goes on."""
    error.accepted = True
    if type(error) in _PASSING:
        error.hint = f"{error.hint} Then `holdfast resume {session}` goes on.".lstrip()
    return _told(error, f"{sentence}: do not send it again.")


def _told(error: StorageError, sentence: str) -> StorageError:
    error.hint = f"{sentence} {error.hint}".rstrip()
    return error
