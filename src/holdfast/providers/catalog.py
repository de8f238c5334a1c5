"""What is known about a model: its price and context window, and the source of each.

Prices come from the data in the genai-prices package (loaded when first needed, never fetched). A user's own
entries override them. If a price depends on the hour, the highest counts, because a reservation must never be too
small. If it depends on the size of a request, each size has its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import astuple, replace

from holdfast.errors import UsageError
from holdfast.protocol.limits import (
    NO_OPTIONS,
    UNKNOWN_WINDOW_TOKENS,
    ModelFacts,
    ModelOptions,
    Tier,
    microusd,
)
from holdfast.protocol.text_formats import format_of
from holdfast.providers.options import reads_images, taken
from holdfast.providers.registry import Entry, entry_of

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

_KEYS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
_OUTPUT_CAPS = (
    ("anthropic:claude-3-5-*", 8_192),
    ("anthropic:claude-3-7-*", 64_000),
    ("anthropic:claude-opus-4-[01]*", 32_000),
    ("anthropic:claude-opus-4-20*", 32_000),
    ("openai:gpt-3.5-turbo*", 4_096),
    ("openai:gpt-4-turbo*", 4_096),
    ("openai:gpt-4o-2024-05-13", 4_096),
    ("openai:gpt-4o*", 16_384),
)
"""The first match counts. Servers refuse a cap above the model's own, and the price data names none. Only
what a provider's documentation or the refusal of its server says, as public reports quote them:
docs.claude.com/en/docs/about-claude/models/overview (3.5 and opus 4), BerriAI/litellm#8984 (3.7),
openai/openai-python#687 (3.5-turbo, 4-turbo), developers.openai.com/api/docs/models/gpt-4o. Others of up to 16,384,
what is asked for by default, are not known; `max_output_tokens` in a catalog entry says one."""


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user sets for the models that a glob on PROVIDER:MODEL matches; None means not set."""

    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    cache_read_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None
    cache_write_1h_usd_per_mtok: float | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    tool_calls: str | None = None
    images: bool | None = None


class _Rates(msgspec.Struct, frozen=True):
    """Micro-dollars per million tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """0: as much as other writes."""


class _Price(msgspec.Struct, frozen=True):
    """The price of a model, and its source."""

    kind: Literal["known", "free", "unknown"]
    source: str = ""
    rates: _Rates = _Rates()
    larger: tuple[tuple[int, _Rates], ...] = ()
    """The prices for requests with more input tokens, smallest size first."""


def facts(
    name: str,
    *,
    overrides: Mapping[str, Override] | None = None,
    now_ms: int,
    entry: Entry | None = None,
    wished: ModelOptions = NO_OPTIONS,
    keeps_an_hour: bool = False,
) -> ModelFacts:
    """Return what is known about PROVIDER:MODEL at that time. The price is the user's, otherwise the known one,
    otherwise 0 for `ollama:`, otherwise unknown. An address says nothing: a proxy on this machine may lead anywhere.

    Args:
        name: PROVIDER:MODEL.
        overrides: What the user declares, by glob.
        now_ms: The time.
        entry: Its provider, if that is known.
        wished: How it is to answer. What it does not take is left out.
        keeps_an_hour: Whether what it writes to its cache stays there for an hour, at the price of that.

    Raises:
        UsageError: the name is not PROVIDER:MODEL, or there is no such provider.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        hint = "Write it as PROVIDER:MODEL, for example openai:gpt-5.5 or ollama:llama3."
        raise UsageError(f"{name!r} does not name a model.", hint=hint)
    entry = entry or entry_of(provider)
    said = _most_specific(name, overrides or {})
    known = _known_model(entry.price_list, model)
    price = _said_price(said, _price(entry, known, now_ms))
    window = said.context_tokens or (known.context_window if known else None)
    if entry.wire == "script" and window is None:
        window = UNKNOWN_WINDOW_TOKENS
    facts = ModelFacts(
        provider=provider,
        model=model,
        context_tokens=window or UNKNOWN_WINDOW_TOKENS,
        max_output_tokens=said.max_output_tokens or _output_cap(f"{entry.price_list}:{model}"),
        input_microusd_per_mtok=price.rates.input,
        output_microusd_per_mtok=price.rates.output,
        cache_read_microusd_per_mtok=price.rates.cache_read,
        cache_write_microusd_per_mtok=price.rates.cache_write,
        price=price.kind,
        price_source=price.source,
        is_window_known=window is not None,
        tiers=tuple(Tier(above, *astuple(rates)) for above, rates in price.larger),
        text_calls=format_of(said.tool_calls),
        cache_write_1h_microusd_per_mtok=price.rates.cache_write_1h,
        options=taken(entry.price_list or provider, model, wished),
        reads_images=reads_images(entry.price_list, model) if said.images is None else said.images,
    )
    return _with_an_hour(facts) if keeps_an_hour else facts


def _with_an_hour(facts: ModelFacts) -> ModelFacts:
    """Return the facts where all that is written to the cache stays there for an hour: no reservation may be less."""
    tiers = [
        replace(each, cache_write_microusd_per_mtok=each.cache_write_1h_microusd_per_mtok)
        if each.cache_write_1h_microusd_per_mtok
        else each
        for each in facts.tiers
    ]
    written = facts.cache_write_1h_microusd_per_mtok or facts.cache_write_microusd_per_mtok
    return replace(facts, cache_write_microusd_per_mtok=written, tiers=tuple(tiers))


def known_models(provider: str, *, now_ms: int) -> list[ModelFacts]:
    """Return the models of a provider in the price data, by name; empty without a price list.

    Raises:
        UsageError: there is no such provider.
    """
    entry = entry_of(provider)
    if not entry.price_list:
        return []
    from genai_prices.data_snapshot import get_snapshot

    names = sorted(
        f"{provider}:{model.id}"
        for listed in get_snapshot().providers
        if listed.id == entry.price_list
        for model in listed.models
        if not model.deprecated and _rates(_prices_at(model, now_ms), 0) is not None
    )
    return [facts(name, now_ms=now_ms) for name in names]


@functools.lru_cache(maxsize=256)
def _known_model(price_list: str, model: str) -> ModelInfo | None:
    """Return the entry of the price data, which is searched once per model."""
    if not price_list:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, price_list, None)[1]
    except LookupError:
        return None


def _price(entry: Entry, known: ModelInfo | None, now_ms: int) -> _Price:
    if known is not None:
        prices = _prices_at(known, now_ms)
        if (rates := _rates(prices, 0)) is not None:
            from genai_prices import __version__

            kind: Literal["known", "free"] = "known" if rates.input or rates.output else "free"
            larger = [(above, _rates(prices, above + 1) or rates) for above in _sizes(prices)]
            return _Price(kind, f"genai-prices {__version__}", rates, tuple(larger))
    if entry.name == "ollama" or entry.wire == "script":
        return _Price("free", entry.name)
    return _Price("unknown")


def _said_price(said: Override, otherwise: _Price) -> _Price:
    """Return the user's prices over the others. An otherwise unknown price needs both the input's and the output's.
    Cached input costs as much as other input unless the user sets a price.
    """
    if said.input_usd_per_mtok is None and said.output_usd_per_mtok is None:
        return otherwise
    has_both = said.input_usd_per_mtok is not None and said.output_usd_per_mtok is not None
    if otherwise.kind == "unknown" and not has_both:
        return otherwise
    rates = _said_rates(said, otherwise.rates)
    larger = [(above, _said_rates(said, listed)) for above, listed in otherwise.larger]
    differing = tuple((above, listed) for above, listed in larger if listed != rates)
    return _Price("known" if rates.input or rates.output else "free", "catalog", rates, differing)


def _said_rates(said: Override, otherwise: _Rates) -> _Rates:
    plain = _over(said.input_usd_per_mtok, otherwise.input)
    is_new = said.input_usd_per_mtok is not None
    return _Rates(
        plain,
        _over(said.output_usd_per_mtok, otherwise.output),
        _over(said.cache_read_usd_per_mtok, plain if is_new else otherwise.cache_read),
        _over(said.cache_write_usd_per_mtok, plain if is_new else otherwise.cache_write),
        _over(said.cache_write_1h_usd_per_mtok, 0 if is_new else otherwise.cache_write_1h),
    )


def _over(said_usd: float | None, otherwise_microusd: int) -> int:
    return otherwise_microusd if said_usd is None else microusd(said_usd)


def _most_specific(name: str, overrides: Mapping[str, Override]) -> Override:
    """Return the entry whose glob matches with the most literal characters, and the first by name of equal ones."""
    matching = sorted(glob for glob in overrides if fnmatchcase(name, glob))
    if not matching:
        return Override()
    return overrides[max(matching, key=lambda glob: len(glob) - sum(map(glob.count, "*?[]")))]


@functools.lru_cache(maxsize=256)
def _output_cap(name: str) -> int:
    return next((cap for glob, cap in _OUTPUT_CAPS if fnmatchcase(name, glob)), 0)


def _prices_at(model: ModelInfo, now_ms: int) -> list[ModelPrice]:
    """Return the prices in force: the newest list that has begun, and those for some hours of the day."""
    from genai_prices.types import StartDateConstraint

    if not isinstance(model.prices, list):
        return [model.prices]
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    prices: list[ModelPrice] = []
    for listed in model.prices:
        rule = listed.constraint
        if rule is None or (isinstance(rule, StartDateConstraint) and rule.active(now)):
            prices = [listed.prices]
        elif not isinstance(rule, StartDateConstraint):
            prices.append(listed.prices)
    return prices


def _sizes(prices: list[ModelPrice]) -> list[int]:
    """Return the numbers of input tokens above which other prices apply."""
    listed = [getattr(each, key, None) for each in prices for key in _KEYS]
    return sorted({tier.start for price in listed for tier in getattr(price, "tiers", ())})


def _rates(prices: list[ModelPrice], input_tokens: int) -> _Rates | None:
    """Return the price of a request with so many input tokens; None if the price of input or output is not listed."""
    plain, written, read, stored, stored_1h = (
        max(
            (_at(price, input_tokens) for each in prices if (price := getattr(each, key, None)) is not None),
            default=None,
        )
        for key in _KEYS
    )
    if plain is None or written is None:
        return None
    return _Rates(
        microusd(plain),
        microusd(written),
        microusd(plain if read is None else read),
        microusd(plain if stored is None else stored),
        0 if stored_1h is None else microusd(stored_1h),
    )


def _at(price: Decimal | TieredPrices, input_tokens: int) -> Decimal:
    if isinstance(price, Decimal):
        return price
    return next(
        (tier.price for tier in reversed(price.tiers) if input_tokens > tier.start),
        price.base,
    )
