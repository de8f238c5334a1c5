"""The border to what all processes of a home know about the services that they call: circuits and rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.protocol.circuits import CallEnded, Circuit, CircuitRules, Later
from holdfast.protocol.rates import Draw


class Outgoing(msgspec.Struct, frozen=True):
    """A call that wants to go out. Its session is in the store, with a lease of the caller's epoch."""

    circuit: str
    """The name of the circuit."""
    draw: Draw
    """Who calls, for how long, and what it takes from allowances."""
    rules: CircuitRules = CircuitRules()


class Services(Protocol):
    """Decides whether calls may go out, for all processes that share the store. `ports.Journals.commit` tells it of
    the calls that end with a commit. Every method may raise a `StorageError`."""

    async def may_call(self, outgoing: Outgoing) -> Later | None:
        """Return why a call may not go out now; None if it may.

        Then it is in progress until it has ended, its lease is over or its time is up, and it may be the one probe of
        its circuit. Who asks again under the same key asks for the same call.
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
