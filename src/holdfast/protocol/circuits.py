"""Circuits: whether a service can be called now, as all processes of a home have found out together.

There is one for each provider, model and key, for each search engine and so on. `core.circuits` decides, and every
store keeps what it decides.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.moments import Moment

CircuitState = Literal["closed", "open", "half_open"]
"""`closed`: calls go out. `open`: the service fails, and none goes out. `half_open`: exactly one goes out, to see
whether the service is back."""
Verdict = Literal["works", "fails", "neither"]
"""What the end of a call says about the service. `fails`: it could not answer, or not in a way that can be used.
`neither`: it refused (4xx), asked for fewer calls (429), the call was cancelled, or the fault is ours."""


class CircuitRules(msgspec.Struct, frozen=True):
    """When a circuit opens, and for how long: `[circuits]`."""

    failures: int = 3
    """How many calls in a row must fail."""
    cooldown_ms: int = 30_000
    """How long nobody calls. It is always the same time."""


class Caller(msgspec.Struct, frozen=True):
    """Who calls: an attempt of a session, under the lease of an epoch."""

    session: str
    key: str
    """The attempt's key, which is unique in its session."""
    epoch: int


class Probe(msgspec.Struct, frozen=True):
    """The one call that finds out whether the service is back. It is a real call of somebody."""

    caller: Caller
    left_ms: int
    """How much time it had left at the moment of its circuit. Then another call may be the probe."""


class Circuit(msgspec.Struct, frozen=True):
    """What is known about a service at a moment. The times count from there."""

    name: str
    """`openai:gpt-5.5#3f9a1c`: the service, and which key."""
    at: Moment
    failures: int = 0
    """How many calls in a row have failed."""
    is_open: bool = False
    """Whether nobody may call but a probe."""
    cooldown_ms: int = 0
    """How much longer not even a probe goes out."""
    asked_ms: int = 0
    """How much longer the service wants no calls: a Retry-After, or a limit that is used up."""
    probe: Probe | None = None
    reason: str = ""
    """The last thing that went wrong, as a sentence."""


class Later(msgspec.Struct, frozen=True):
    """A call cannot be made now."""

    why: Literal["open", "probing", "asked", "requests", "tokens", "concurrent"]
    """`asked`: the service asked us to wait. The last three: that limit of `[rates]` is used up."""
    name: str
    """The circuit or the limit."""
    wait_ms: int
    """When to look again. It may be too early even then."""
    reason: str = ""
    """What went wrong before, as a sentence."""


class CallEnded(msgspec.Struct, frozen=True):
    """What the end of a call tells a circuit, and the allowances that it has drawn from."""

    caller: Caller
    circuit: str
    """Its name."""
    verdict: Verdict
    asked_ms: int = 0
    """How long the service wants no calls."""
    reason: str = ""
    insisted: bool = False
    """It went out although the service had asked for a pause. If it works, the pause is over."""
    used_tokens: int | None = None
    """How many the provider has counted. None: as many as expected."""
    rules: CircuitRules = CircuitRules()


class CircuitChanged(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The session meets a circuit that is not as it was before. `half_open`: its next call is the one probe."""

    name: str
    state: CircuitState
    reason: str = ""
    """What went wrong, as a sentence."""
