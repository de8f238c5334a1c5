"""Circuits for what tools call: a service that fails is not asked for a while, by any session of the home.

The runner gives an `Outside` to each call. A tool that asks several services uses one circuit for each of them.
"""

from __future__ import annotations

from holdfast.protocol.circuits import CallEnded, Caller, CircuitRules, Verdict
from holdfast.protocol.ports import CallContext
from holdfast.protocol.rates import Draw
from holdfast.protocol.services import Outgoing, Services

LIMIT_MS = 60_000
"""The longest time that one question of a tool takes. Then another call may be the probe."""
BUSY = "is not asked for a while: it failed several times in a row"
QUIET = "wants no further calls for a while"


class Outside:
    """What one call of a tool asks and tells about services."""

    def __init__(self, services: Services, caller: Caller, rules: CircuitRules) -> None:
        self._services = services
        self._caller = caller
        self._rules = rules

    async def why_not(self, name: str) -> str:
        """Return why a service may not be called now, as the end of a sentence; empty if it may."""
        outgoing = Outgoing(name, Draw(self._caller, 0, LIMIT_MS, ()), self._rules)
        later = (await self._services.may_call(outgoing)).later
        if later is None:
            return ""
        return QUIET if later.why == "asked" else BUSY

    async def ended(self, name: str, verdict: Verdict, reason: str = "", quiet_s: float = 0.0) -> None:
        """Take note of how a call to a service ended, and how long it wants no further ones."""
        quiet_ms = int(quiet_s * 1000)
        await self._services.ended(
            CallEnded(self._caller, name, verdict, quiet_ms, reason, rules=self._rules)
        )


def outside_of(context: CallContext) -> Outside | None:
    """Return what a call asks about services; None where nothing is kept about them."""
    try:
        return context.get(Outside)
    except LookupError:
        return None
