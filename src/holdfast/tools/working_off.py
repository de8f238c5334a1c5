"""Undoes what commands of a session left whose Holdfast was killed, where nobody drives the session."""

from __future__ import annotations

from pathlib import Path

from holdfast.policy.protected import Own
from holdfast.tools.fencing import Fences
from holdfast.tools.own import own_places
from holdfast.tools.traces import Traces


def worked_off(own: Own, home: Path, session: str) -> list[str]:
    """Undo what killed processes left in a home. Return sentences about it for a session that nobody drives."""
    return Fences(own_places(own), str(Path.home()), traces=Traces(home)).worked_off(session)


def forgotten(own: Own, home: Path, session: str) -> list[str]:
    """Do the same, and remove what is kept of the session, which is about to be deleted.

    Raises:
        Refused: something could not be undone.
    """
    said = worked_off(own, home, session)
    elsewhere = Traces(home).forget(session)
    return [*said, *(f"What it changed in {workspace} is forgotten." for workspace in elsewhere)]
