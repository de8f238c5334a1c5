"""What comes back to the core: what attempts came to, and what prepare steps found.

The causes that carry them are the core's own (`core.causes`); what a tool's attempt came to is
`tools.CallResult`, a whole response is `messages.ModelReply`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.budgets import Reached
from holdfast.protocol.circuits import CircuitState
from holdfast.protocol.failures import Failure
from holdfast.protocol.hooks import HookAnswer
from holdfast.protocol.kinds import NO_KINDS, Kinds
from holdfast.protocol.messages import Estimated, ModelReply, Usage
from holdfast.protocol.notify import Notified
from holdfast.protocol.prompt import Section
from holdfast.protocol.tools import CallResult


class ModelFailure(msgspec.Struct, frozen=True):
    """An attempt of a model call that brought no usable response."""

    failure: Failure
    usage: Usage = Usage()
    """What the provider said that it charged before it failed."""
    estimated: Estimated = ()
    """The parts that it may have charged without saying so; none where it refused."""
    received_bytes: int = 0
    """How much had come."""
    quiet_s: float = 0.0
    """How long the service wants no further calls."""


class ModelCut(msgspec.Struct, frozen=True):
    """An attempt of a model call that was cancelled: the words so far."""

    text: str
    usage: Usage = Usage()
    estimated: Estimated = ("input", "output")
    received_bytes: int = 0
    """How much had come, thoughts and tool calls included."""


class Built(msgspec.Struct, frozen=True):
    """The inputs of the system prompt have changed, and this is the new one."""

    sections: tuple[Section, ...]
    blob: str
    tools: str
    """As in `events.PromptBuilt`."""


class Unaffordable(msgspec.Struct, frozen=True):
    """The next request costs more than is left, or does not fit."""

    reason: Literal["cost", "tokens", "context"] | Reached
    message: str
    size_bytes: int
    """The size of the request without its tail."""
    fresh_bytes: int
    """How much of it the request before did not have."""
    kinds: Kinds = NO_KINDS
    """What it has of each kind of text."""


class BudgetNear(msgspec.Struct, frozen=True):
    """80 % of a budget that is wider than the run is used, and nobody was told yet."""

    reason: Reached
    message: str


class Unready(msgspec.Struct, frozen=True):
    """The next request cannot be made: no key, a provider that is gone, a bug in its adapter."""

    failure: Failure
    until_ms: int = 0
    """When it may be ready; 0: waiting does not help."""
    waits_for: str = ""
    """The circuit or the limit of `[rates]` that it waits for. Such a wait uses up no attempt."""


class CircuitMet(msgspec.Struct, frozen=True):
    """A circuit of the model is not as the session last met it."""

    name: str
    state: CircuitState
    reason: str = ""


class Probed(msgspec.Struct, frozen=True):
    """What a look at the world said about an interrupted call."""

    happened: Literal["yes", "no", "unknown"]
    told: str = ""
    """What was seen, if that is not known for the whole call: which files changed."""


class Lost(msgspec.Struct, frozen=True):
    """A call cannot be judged or run: only a masked copy of its arguments is left."""


ModelResult = ModelReply | ModelFailure | ModelCut
AttemptResult = ModelResult | CallResult | HookAnswer | Notified
