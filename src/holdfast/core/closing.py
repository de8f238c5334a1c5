"""Closes a call that does not run: it is refused if it never ran, and abandoned if it may have had an effect."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from holdfast.core.state import Call, starts_of
from holdfast.protocol.events import ToolCallAbandoned, ToolCallRefused
from holdfast.protocol.failures import Failure
from holdfast.protocol.tools import Decision

UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: {why}. It may have taken effect in full, in part or not at all, and it "
    "was not repeated. Look at the state of the world before you rely on it or do it again."
)

_UNSEEN = "it was interrupted, and a look did not show that it happened"
LOST = (
    "its arguments contained what looks like a secret; only a masked copy of them was stored, and the "
    "process that had the original is gone"
)
MAKE_IT_AGAIN = (
    "If it is still wanted, make it again with every value written out, or better without the secret."
)


def abandoned(call: Call, why: str) -> ToolCallAbandoned:
    """Close the call, and tell the model that nobody knows its outcome."""
    return ToolCallAbandoned(call.call_id, UNKNOWN_OUTCOME.format(why=why))


def unseen(call: Call, told: str) -> ToolCallAbandoned:
    """Close an interrupted call whose outcome a look did not show. `told`: what the look showed."""
    return abandoned(call, f"{_UNSEEN}: {told}" if told else _UNSEEN)


def seen_in(text: str) -> str:
    """Return what a look showed, from the text of `unseen`."""
    before, after = UNKNOWN_OUTCOME.split("{why}")
    return text.removeprefix(f"{before}{_UNSEEN}").removesuffix(after).removeprefix(": ")


def lost(call: Call) -> ToolCallAbandoned:
    """Close the call, since its arguments are lost. The model may make it again."""
    if starts_of(call):
        return replace(abandoned(call, f"it was interrupted, and {LOST}"), is_lost=True)
    return ToolCallAbandoned(call.call_id, f"This call did not run: {LOST}. {MAKE_IT_AGAIN}", is_lost=True)


def will_not_run(
    call: Call,
    failure: Failure,
    decisions: tuple[Decision, ...] = (),
    nobody_for: Literal["", "approval", "question"] = "",
) -> ToolCallRefused | ToolCallAbandoned:
    """Refuse the call. If an attempt of it was interrupted, abandon it instead, since that attempt may have taken
    effect."""
    # "Refused" promises the model that nothing happened. After an interrupted attempt nobody can promise that.
    refused = ToolCallRefused(call.call_id, call.name, failure, decisions, nobody_for)
    if not starts_of(call):
        return refused
    why = f"it was interrupted, and it could not be run again ({failure.message.rstrip('.')})"
    return replace(abandoned(call, why), refused=refused)
