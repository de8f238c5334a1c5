"""The default for tools that cannot be probed after a crash."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext
from holdfast.protocol.tools import Expectation


class Unplanned:
    """The half of a `ports.Tool` without an expectation."""

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Return None: there is nothing to look for."""
        return None

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Return that nobody can tell."""
        return Probed("unknown")
