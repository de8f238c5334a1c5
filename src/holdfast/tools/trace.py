"""What must be known to undo what a command changed. `traces` keeps it while the command runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.tools.aside import Place
from holdfast.tools.identity import Identity
from holdfast.tools.kept import Kept


class Trace(msgspec.Struct, frozen=True):
    """What must be known to undo what a command made."""

    writable: tuple[str, ...]
    """What it may change, the workspace first."""
    beside: int
    """How many of these the settings name, at the end."""
    before: Mapping[str, Place]
    """What lay at the places with controlling names; when it has ended, only links that could not be put back."""
    covered: tuple[str, ...]
    """Where a sandbox may leave an empty file."""
    changed: tuple[str, ...] = ()
    """What was put aside when it had ended, and nobody was told yet."""
    stuck: tuple[str, ...] = ()
    """Where something could not be put right yet, when it had ended."""
    why: str = ""
    """Why not, at the first of them."""
    kept: Kept | None = None
    """What it could change and must not; when it has ended, only what could not be put back."""
    gone: tuple[str, ...] = ()
    """What of `before` was no longer there when it began, because of another command."""
    key: str = ""
    """Its processes have it. Empty: an earlier version stored the trace."""
    looked_ms: int = 0
    """When it was looked what lay there."""
    led: tuple[str, ...] = ()
    """Where something protected led when it began."""
    folders: Mapping[str, Identity] = msgspec.field(default_factory=dict)
    """What it may change, by path. A person may put another folder there meanwhile."""
    fault: str = ""
    """The name of the error that kept all of it from being undone, or that it is elsewhere; empty if nobody tried, or
    it is undone.
    """
    found: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """What lay then where it could not be put right. What lies there later is the work of somebody else."""
    since: tuple[str, ...] = ()
    """Where it could not be put right, and somebody changed something since. It stays so."""

    @property
    def session(self) -> str:
        """Whose command it is."""
        return session_of(self.key)


def session_of(key: str) -> str:
    """Return the session whose call has this key."""
    return key.partition(":")[0]
