"""Models that write their tool calls into their text: the facts that a run recorded say so.

Their wire and their provider are wrapped here, so that everything after them sees calls and results as with any other
model, and a journal is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.ports import Provider, Tools, Wire
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import ToolSpec
from holdfast.protocol.wires import KeyedWire


def wire_of(wire: Wire, facts: ModelFacts, session: str) -> Wire:
    """Return how to write requests of a session to a model."""
    if isinstance(wire, KeyedWire):
        wire = wire.keyed(session)
    if not facts.text_calls:
        return wire
    from holdfast.providers.text_model import TextWire  # only such models need the formats

    return TextWire(wire, facts.text_calls, session)


def provider_of(provider: Provider, facts: ModelFacts, tools: Tools, settings: Settings) -> Provider:
    """Return what reads the responses of a model."""
    if not facts.text_calls:
        return provider
    from holdfast.providers.text_model import TextProvider

    return TextProvider(provider, facts.text_calls, tools.specs(settings))


def described(tools: Sequence[ToolSpec], facts: ModelFacts, session: str) -> str:
    """Return what the system prompt says about calls and tools; empty for a model with native calls."""
    if not facts.text_calls:
        return ""
    from holdfast.providers import text_model

    return text_model.described(tools, facts.text_calls, text_model.nonce_of(session))
