"""The border to what all processes of a home know about the services that they call: circuits and rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.protocol.budgets import Claim, Claimed
from holdfast.protocol.circuits import CallEnded, Circuit, CircuitRules, CircuitState, Later
from holdfast.protocol.rates import Draw


class Outgoing(msgspec.Struct, frozen=True):
    """A call that wants to go out. Its session is in the store, with a lease of the caller's epoch."""

    circuit: str
    """The name of the circuit. Empty: only rates count."""
    draw: Draw
    """Who calls, for how long, and what it takes from allowances."""
    rules: CircuitRules = CircuitRules()
    insists: bool = False
    """A person wants it now, although the service may have asked for a pause."""


class Answer(msgspec.Struct, frozen=True):
    """Whether a call may go out."""

    later: Later | None = None
    """Why it may not go out now; None if it may, unless its claim was refused."""
    state: CircuitState = "closed"
    """The circuit, as this caller meets it. `half_open`: its call is the probe."""
    reason: str = ""
    """What went wrong before, as a sentence."""
    has_failed: bool = False
    """Calls before it have failed, or the service asked for a pause. Then its success has to be told, too."""
    claimed: Claimed | None = None
    """The answer to its claim; None without one, or if the call may not go out."""


FREE = Answer()
"""Nothing is known against the call."""


class Services(Protocol):
    """Decides whether calls may go out, for all processes that share the store. `ports.Journals.commit` tells it of
    the calls that end with a commit. Every method may raise a `StorageError`."""

    async def may_call(self, outgoing: Outgoing, claim: Claim | None = None) -> Answer:
        """Return whether a call may go out now.

        Then it is in progress until it has ended, its lease is over or its time is up, and it may be the one probe of
        its circuit. Who asks again under the same key asks for the same call. With a claim, the money is reserved in
        the same transaction: either the call may go out and has its money, or it has neither.
        """
        ...

    async def ended(self, *calls: CallEnded) -> None:
        """Take note of calls that end without a commit."""
        ...

    async def circuits(self) -> Sequence[Circuit]:
        """Return all circuits that ever had a failure, as they are now, by name."""
        ...

    async def reset_circuit(self, name: str) -> bool:
        """Close a circuit, and forget what its service asked for. Return whether there is such a circuit."""
        ...
