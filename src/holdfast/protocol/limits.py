"""Limits of a run, and the facts about a model that money and windows depend on.

Money is integer micro-dollars everywhere inside; decimals exist only where people read and write them.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Literal

import msgspec

from holdfast.protocol.messages import Usage

MICROUSD = 1_000_000
MOST_USD = 1_000_000_000
"""An amount above this is a mistake."""
UNKNOWN_WINDOW_TOKENS = 128_000
DEFAULT_MAX_OUTPUT_TOKENS = 16_384
NO_TOOL_CALL_LIMIT = 1_000_000
"""No limit: the turns limit the calls, since a response has at most so many."""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="limits"):
    """The most that one run may use. Every limit has a default, and none can be switched off."""

    turns: int = 25
    tokens: int = 5_000_000
    cost_microusd: int = 2_000_000
    is_cost_set: bool = False
    """Whether somebody set the cost limit: then a model of unknown price is refused, not guessed."""
    wall_s: float = 7_200.0
    """Time in which a driver was at work, over all processes that drove the run. A wait for a person or a quota
    counts only while something else runs. What a process did between its last record and its crash does not count."""
    idle_s: float = 300.0
    """The longest silence of a model or tool in one attempt."""
    tool_calls: int = NO_TOOL_CALL_LIMIT
    """The calls that may start."""
    request_s: float = 600.0
    """The longest time for one whole model call, however slowly its response comes."""
    call_microusd: int = 0
    """The most that one model call may cost. 0: a quarter of the run, and at least what the least answer costs."""


class Tier(msgspec.Struct, frozen=True, gc=False):
    """What every token of a model call costs whose input is larger than this."""

    above_tokens: int
    input_microusd_per_mtok: int
    output_microusd_per_mtok: int
    cache_read_microusd_per_mtok: int
    cache_write_microusd_per_mtok: int
    cache_write_1h_microusd_per_mtok: int = 0
    """0: as much as other writes."""


Effort = Literal["", "low", "medium", "high"]
"""How much a model thinks; empty: as much as its service lets it."""


class ModelOptions(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a model is to answer. What is not set is the choice of its service."""

    effort: Effort = ""
    temperature: float | None = None


NO_OPTIONS = ModelOptions()


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is known about a model when a run starts; recorded, so that the past never changes its price."""

    provider: str
    model: str
    context_tokens: int = UNKNOWN_WINDOW_TOKENS
    max_output_tokens: int = 0
    """0: not known."""
    input_microusd_per_mtok: int = 0
    output_microusd_per_mtok: int = 0
    cache_read_microusd_per_mtok: int = 0
    cache_write_microusd_per_mtok: int = 0
    price: Literal["known", "free", "unknown"] = "known"
    price_source: str = ""
    """Where the price comes from: `catalog`, `genai-prices 0.2.3`, `ollama` ..."""
    is_window_known: bool = True
    tiers: tuple[Tier, ...] = ()
    """Prices of larger requests, the smallest size first; the prices above count below the first."""
    text_calls: str = ""
    """The format in which the model writes calls into its text (`text_formats`); empty: it makes native calls."""
    cache_write_1h_microusd_per_mtok: int = 0
    """For what stays in the cache for an hour. 0: as much as other writes."""
    options: ModelOptions = NO_OPTIONS
    """How it is to answer, as far as it takes that."""
    reads_images: bool = False
    """Whether it is known to."""

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"


def cost_microusd(facts: ModelFacts, usage: Usage) -> int:
    """The price of one model call's usage by the prices in `facts`, rounded up to whole micro-dollars."""
    prices: ModelFacts | Tier = facts
    for tier in facts.tiers:
        if usage.input_tokens > tier.above_tokens:
            prices = tier
    written = usage.cache_write_tokens
    plain = max(usage.input_tokens - usage.cache_read_tokens - written, 0)
    total = (
        plain * prices.input_microusd_per_mtok
        + usage.cache_read_tokens * prices.cache_read_microusd_per_mtok
        + written * prices.cache_write_microusd_per_mtok
        + usage.output_tokens * prices.output_microusd_per_mtok
    )
    if usage.cache_write_1h_tokens and prices.cache_write_1h_microusd_per_mtok:
        dearer = prices.cache_write_1h_microusd_per_mtok - prices.cache_write_microusd_per_mtok
        total += min(usage.cache_write_1h_tokens, written) * dearer
    return -(-total // 1_000_000)


_EXACT = Context(prec=100, traps=[InvalidOperation])
"""The program around us sets the precision of its own decimals as it likes."""


def microusd(text: str | float | Decimal) -> int:
    """Micro-dollars of an amount in dollars.

    Raises:
        ValueError: not a number, or larger than any budget.
    """
    written = str(text)
    try:
        amount = _EXACT.create_decimal(written)
    except ArithmeticError:
        raise ValueError(f"{text!r} is not an amount in dollars") from None
    # Python also takes digits of other scripts, and groups them as no reader would expect.
    if not amount.is_finite() or amount.copy_abs() > MOST_USD or not written.isascii() or "_" in written:
        raise ValueError(f"{text!r} is not an amount in dollars")
    return int(_EXACT.multiply(amount, MICROUSD).to_integral_value(ROUND_HALF_EVEN, _EXACT))


def usd(amount_microusd: int) -> str:
    """The amount in dollars, as decimal text with at least two digits: `0.50`, `0.001234`."""
    sign, whole = ("-" if amount_microusd < 0 else ""), abs(amount_microusd)
    digits = f"{whole % MICROUSD:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole // MICROUSD}.{digits}"
