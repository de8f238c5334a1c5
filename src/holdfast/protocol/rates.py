"""Rates: how many calls and tokens may go to a model, or come from a user, a session or a home, in a minute.

`core.rates` decides whether a call may be made now, and every store keeps what it decides.
"""

from __future__ import annotations

import msgspec

from holdfast.protocol.circuits import Caller, Later
from holdfast.protocol.moments import Moment

MINUTE_MS = 60_000


class Rate(msgspec.Struct, frozen=True):
    """One section of `[rates]`. None: there is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    """How many calls may be in progress at the same time."""
    burst_ms: int = 10_000
    """What was not used in this time may be used at once."""


class Allowance(msgspec.Struct, frozen=True):
    """What may be used at once under one name, as it was at a moment.

    A rate of 60 a minute brings 60 parts in a millisecond, and a request or a token has `MINUTE_MS` parts. So all
    numbers are whole, and no rounding adds up.
    """

    name: str
    at: Moment
    requests: int
    """In parts. Less than 0 after a call that is larger than a full allowance."""
    tokens: int


class Place(msgspec.Struct, frozen=True):
    """The place of a call in the line, or among those in progress."""

    caller: Caller
    ticket: int
    """Those with a lower number came earlier."""
    tokens: int
    """How many it is expected to take."""
    names: tuple[str, ...]
    """The allowances that it waits for, or that it has drawn from."""
    is_waiting: bool
    at: Moment
    left_ms: int
    """If it has not asked again or ended after this time, it has lost its place."""


class Draw(msgspec.Struct, frozen=True):
    """What a call wants to take from all its allowances, or from none."""

    caller: Caller
    tokens: int
    """How many it is expected to take. `core.rates.corrected` puts it right later."""
    limit_ms: int
    """The longest time that the call takes."""
    rates: tuple[tuple[str, Rate], ...]
    """The names of the allowances, and how they fill."""


class Drawn(msgspec.Struct, frozen=True):
    """The answer to a draw, and what a store has to write."""

    later: Later | None
    allowances: tuple[Allowance, ...] = ()
    """Those that have changed."""
    places: tuple[Place, ...] = ()
    """Those that have changed or are new. Session and key of the caller distinguish them."""
    gone: tuple[Caller, ...] = ()
    """Callers whose place is lost."""
