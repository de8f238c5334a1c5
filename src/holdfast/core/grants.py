"""What becomes of grants: they are made, used up and taken back. All of it is about the state."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.state import State
from holdfast.protocol.events import ApprovalRequested
from holdfast.protocol.grants import MOST_KEPT, MOST_USES, Grant, grant_in
from holdfast.protocol.tools import Decision


def offered(asked: ApprovalRequested) -> Grant | None:
    """Return the grant that an approval may make, without its id and its end."""
    if asked.offer is None:
        return None
    return Grant(
        "", asked.name, asked.offer, 0, MOST_USES, asked.source, asked.workspace, asked.reach.programs
    )


def made(state: State, grant: Grant) -> State:
    """Add a grant. It takes the place of one for the same calls, whose program may have been another."""
    # An example: `make` was granted, then updated. Its content differs, so a person was asked and granted it again.
    # Of the two grants only the new one can ever cover a call.
    others = [
        each
        for each in state.grants
        if (each.tool, each.offer, each.workspace) != (grant.tool, grant.offer, grant.workspace)
    ]
    return replace(state, grants=(*others, grant)[-MOST_KEPT:], granted=state.granted + 1)


def without(state: State, name: str) -> State:
    """Drop a grant: it was revoked, or a question has told that it has ended."""
    return replace(state, grants=tuple([each for each in state.grants if each.id != name]))


def used(state: State, decisions: Sequence[Decision]) -> State:
    """Count a call that a grant covers."""
    if not state.grants or not (name := grant_in(decisions)):
        return state
    counted = [replace(each, uses=each.uses - 1) if each.id == name else each for each in state.grants]
    return replace(state, grants=tuple(counted))


def found(state: State, name: str) -> Grant | None:
    """Return the grant of that name; None if nobody made it, or it is revoked."""
    return next((each for each in state.grants if each.id == name), None)
