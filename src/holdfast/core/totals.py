"""What a run used, or several runs together."""

from __future__ import annotations

import msgspec

from holdfast.protocol.messages import Usage


class Totals(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a run used, or all runs before it."""

    turns: int = 0
    model_calls: int = 0
    """Attempts for work."""
    side_calls: int = 0
    """Attempts of side calls."""
    tool_calls: int = 0
    usage: Usage = Usage()
    cost_microusd: int = 0
    held_microusd: int = 0
    """Money reserved by attempts with an unknown outcome: the provider may have charged it."""
    held_tokens: int = 0
    is_unpriced: bool = False
    """A model without a known price took part, so `cost_microusd` is not the whole cost."""
    is_estimated: bool = False
    """Holdfast estimated a part of the usage, since a provider did not count it."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.turns + other.turns,
            self.model_calls + other.model_calls,
            self.side_calls + other.side_calls,
            self.tool_calls + other.tool_calls,
            self.usage + other.usage,
            self.cost_microusd + other.cost_microusd,
            self.held_microusd + other.held_microusd,
            self.held_tokens + other.held_tokens,
            self.is_unpriced or other.is_unpriced,
            self.is_estimated or other.is_estimated,
        )
