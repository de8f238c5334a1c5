"""Decisions of people about calls: asked for, made, used."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.commands import Decided, Scope
from holdfast.protocol.grants import Grant
from holdfast.protocol.tools import EVERYTHING, NO_REACH, Decision, Offer, Reach, Resource


class ApprovalRequested(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A person has to decide (or, with a question, to answer)."""

    approval_id: str
    call_id: str
    name: str
    arguments: str
    sha256: str
    """The hash of everything that the request shows (`tools.Bound`). If any of it differs when the call is about to
    start, Holdfast asks again."""
    deadline_ms: int
    source: str = ""
    """Where the tool comes from, as its spec says."""
    workspace: str = ""
    cwd: str = ""
    binary: str = ""
    reason: str = ""
    default: Literal["deny"] = "deny"
    question: str = ""
    options: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    resources: tuple[Resource, ...] = EVERYTHING
    seal: str = ""
    """A seal of the original, if `arguments` is a masked copy. `sha256` covers it, and it reveals nothing."""
    reach: Reach = NO_REACH
    offer: Offer | None = None
    """The grant that an approval may make."""
    no_offer: str = ""
    """Why it may make none, as a sentence."""
    lapsed: Grant | None = None
    """A grant that would have covered the call, and has ended: nothing told of that before."""
    is_deferred: bool = False
    """The model works on something else meanwhile: for it the call is over."""
    step: str = ""
    """The step of the plan that waits with a deferred call."""


Resolution = Literal[Decided, "expired", "withdrawn"]
"""Somebody decided, or nobody did in time (`expired`), or the run ended first (`withdrawn`)."""


class ApprovalResolved(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How an approval or a question ended."""

    approval_id: str
    decision: Resolution
    by: str
    note: str = ""
    scopes: tuple[Scope, ...] = ()
    """The scopes of the person who wrote the note: what the note may ask for."""


class ApprovalConsumed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The permission was used for the first start of its call, recorded with it. Further attempts of the same call
    use it again, and no other call can."""

    approval_id: str
