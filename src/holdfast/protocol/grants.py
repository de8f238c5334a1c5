"""Grants: approvals that last. A person gives one for calls of one kind, in one session, until a time."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.protocol.tools import APPROVAL, Content, Decision, Offer

MOST_USES = 1_000
"""How many calls one grant covers."""
MOST_KEPT = 64
"""How many grants a session has at once. A further one takes the place of the oldest."""
_GRANT = "grant:"


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What calls it covers, and how long."""

    id: str
    tool: str
    offer: Offer
    until_ms: int
    uses: int
    """How many calls it may still cover."""
    source: str = ""
    """Where the tool comes from, as its spec says."""
    workspace: str = ""
    programs: tuple[Content, ...] = ()
    """The programs that such a call runs, with their content."""

    def is_live(self, now_ms: int) -> bool:
        """Return whether it may cover a call at this time."""
        return self.uses > 0 and now_ms < self.until_ms


class GrantMade(msgspec.Struct, frozen=True, gc=False):
    """A person approved a call, and all further calls that the grant covers."""

    approval_id: str
    grant: Grant
    by: str


class GrantRevoked(msgspec.Struct, frozen=True, gc=False):
    """A person took a grant back: it covers nothing from here on."""

    grant_id: str
    by: str


def permission_of(grant: Grant) -> Decision:
    """Return the decision about a call that a grant covers."""
    return Decision(
        APPROVAL, "allow", f"{_GRANT}{grant.id}", f"The grant {grant.id} covers {grant.offer.rule}."
    )


def grant_in(decisions: Iterable[Decision]) -> str:
    """Return the id of the grant that covers a call; empty if none does."""
    for each in decisions:
        if each.by == APPROVAL and each.rule.startswith(_GRANT):
            return each.rule.removeprefix(_GRANT)
    return ""
