"""What most tools say about a look at the world after a crash: nothing."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext
from holdfast.protocol.tools import Expectation


class Unplanned:
    """The half of a `ports.Tool` that has no expectation and cannot be probed."""

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Nothing that one could look for."""
        return None

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Nobody can tell."""
        return Probed("unknown")
