"""Notifications: what a program of the user hears when a session needs a person, or its run is over."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

NotifyAbout = Literal["waiting", "failed", "limit", "done"]
"""waiting: a person has to decide or to answer. failed: the run failed or is stuck. limit: it reached a limit."""
NOTIFY_ABOUT: tuple[NotifyAbout, ...] = get_args(NotifyAbout)


class NotificationDue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Somebody is to be notified of this, once."""

    key: str
    about: NotifyAbout
    status: str
    """That of the session: `waiting`, `failed`, `stuck` ..."""
    reason: str = ""
    message: str = ""
    approvals: tuple[str, ...] = ()
    """The ids of what waits for a decision."""
    next: tuple[str, ...] = ()
    """The commands that go on from here."""


class Notified(msgspec.Struct, frozen=True, gc=False):
    """What became of a notification."""

    status: Literal["sent", "failed", "unknown"]
    """`unknown`: its process ended before it was over. It is not sent again."""
    problem: str = ""


class NotificationEnded(msgspec.Struct, frozen=True, gc=False):
    """A notification is over."""

    key: str
    notified: Notified


def key_of(session: str, key: str) -> str:
    """Return the key that the processes of a notification have in their environment."""
    return f"{session}:notify:{key}"
