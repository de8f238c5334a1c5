"""What is known about a model: its price and its window, and from where.

Prices come from the data inside the genai-prices package (loaded when first asked for, never fetched), and a
user's own entries stand above it. Where a price depends on the size of a request or the hour, the highest
counts: a reservation must never turn out too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.protocol.limits import UNKNOWN_WINDOW_TOKENS, ModelFacts, microusd
from holdfast.providers.http import is_loopback
from holdfast.providers.registry import Entry, address_of, entry_of

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

_OUTPUT_CAPS = (
    ("anthropic:claude-3-5-*", 8_192),
    ("anthropic:claude-3-7-*", 64_000),
    ("anthropic:claude-3-*", 4_096),
    ("anthropic:claude-opus-4-[01]*", 32_000),
    ("openai:gpt-3.5*", 4_096),
    ("openai:gpt-4-turbo*", 4_096),
    ("openai:gpt-4o*", 16_384),
    ("openai:gpt-4", 8_192),
)
"""The first that matches counts. Servers refuse a cap above the model's own, and the price data names none;
what is not listed takes more than is asked for by default."""


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user says about the models that a glob on PROVIDER:MODEL matches; None: nothing."""

    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    cache_read_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None


class _Price(msgspec.Struct, frozen=True):
    """Micro-dollars per million tokens, and where they come from."""

    kind: Literal["known", "free", "unknown"]
    source: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


def facts(
    name: str, *, overrides: Mapping[str, Override] | None = None, base_url: str = "", now_ms: int
) -> ModelFacts:
    """All that is known about PROVIDER:MODEL at that moment, when it is called at `base_url` (empty: at the
    usual address). The price is the user's, else the known one, else 0 on this machine, else unknown.

    Raises:
        UsageError: the name is not PROVIDER:MODEL, there is no such provider, or the address is none.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        hint = "Write it as PROVIDER:MODEL, for example openai:gpt-5.5 or ollama:llama3."
        raise UsageError(f"{name!r} names no model.", hint=hint)
    entry = entry_of(provider)
    said = _most_specific(name, overrides or {})
    known = _known_model(entry, model)
    price = _said_price(said, _price(entry, base_url, known, now_ms))
    window = said.context_tokens or (known.context_window if known else None)
    if entry.wire == "script" and window is None:
        window = UNKNOWN_WINDOW_TOKENS
    return ModelFacts(
        provider=provider,
        model=model,
        context_tokens=window or UNKNOWN_WINDOW_TOKENS,
        max_output_tokens=said.max_output_tokens or _output_cap(name),
        input_microusd_per_mtok=price.input,
        output_microusd_per_mtok=price.output,
        cache_read_microusd_per_mtok=price.cache_read,
        cache_write_microusd_per_mtok=price.cache_write,
        price=price.kind,
        price_source=price.source,
        is_window_known=window is not None,
    )


def known_models(provider: str, *, now_ms: int) -> list[ModelFacts]:
    """The models of a provider that the price data knows, by name; empty for one without a price list.

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
        if not model.deprecated and _standing_prices(model, now_ms)[1] is not None
    )
    return [facts(name, now_ms=now_ms) for name in names]


def _known_model(entry: Entry, model: str) -> ModelInfo | None:
    if not entry.price_list:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, entry.price_list, None)[1]
    except LookupError:
        return None


def _price(entry: Entry, base_url: str, known: ModelInfo | None, now_ms: int) -> _Price:
    if known is not None:
        paid, written, read, stored = _standing_prices(known, now_ms)
        if paid is not None and written is not None:
            from genai_prices import __version__

            kind: Literal["known", "free"] = "known" if paid or written else "free"
            plain = microusd(paid)
            return _Price(
                kind,
                f"genai-prices {__version__}",
                plain,
                microusd(written),
                plain if read is None else microusd(read),
                plain if stored is None else microusd(stored),
            )
    if entry.name == "ollama" or entry.wire == "script":
        return _Price("free", entry.name)
    if is_loopback(address_of(entry, base_url)):
        return _Price("free", "loopback")
    return _Price("unknown")


def _said_price(said: Override, otherwise: _Price) -> _Price:
    """The user's prices over the others. Where none is known otherwise, both the input's and the output's are
    needed to know one; cached input counts as plain input unless something else is said."""
    if said.input_usd_per_mtok is None and said.output_usd_per_mtok is None:
        return otherwise
    has_both = said.input_usd_per_mtok is not None and said.output_usd_per_mtok is not None
    if otherwise.kind == "unknown" and not has_both:
        return otherwise
    plain = _over(said.input_usd_per_mtok, otherwise.input)
    is_new = said.input_usd_per_mtok is not None
    price = _Price(
        "known",
        "catalog",
        plain,
        _over(said.output_usd_per_mtok, otherwise.output),
        _over(said.cache_read_usd_per_mtok, plain if is_new else otherwise.cache_read),
        _over(said.cache_write_usd_per_mtok, plain if is_new else otherwise.cache_write),
    )
    return price if price.input or price.output else msgspec.structs.replace(price, kind="free")


def _over(said_usd: float | None, otherwise_microusd: int) -> int:
    return otherwise_microusd if said_usd is None else microusd(said_usd)


def _most_specific(name: str, overrides: Mapping[str, Override]) -> Override:
    """The entry whose glob matches with the most literal characters; of two equal ones the first by name."""
    matching = sorted(glob for glob in overrides if fnmatchcase(name, glob))
    if not matching:
        return Override()
    return overrides[max(matching, key=lambda glob: len(glob) - sum(map(glob.count, "*?[]")))]


def _output_cap(name: str) -> int:
    return next((cap for glob, cap in _OUTPUT_CAPS if fnmatchcase(name, glob)), 0)


def _standing_prices(model: ModelInfo, now_ms: int) -> tuple[Decimal | None, ...]:
    """Input, output, cache read and cache write in dollars per million tokens; None: not listed.

    The newest list that has begun counts, together with those that hold at some hours of the day.
    """
    from genai_prices.types import StartDateConstraint

    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    standing: list[ModelPrice] = []
    if isinstance(model.prices, list):
        for listed in model.prices:
            rule = listed.constraint
            if rule is None or (isinstance(rule, StartDateConstraint) and rule.active(now)):
                standing = [listed.prices]
            elif not isinstance(rule, StartDateConstraint):
                standing.append(listed.prices)
    else:
        standing = [model.prices]
    keys = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    return tuple(
        max(
            (_highest(value) for prices in standing if (value := getattr(prices, key, None)) is not None),
            default=None,
        )
        for key in keys
    )


def _highest(price: Decimal | TieredPrices) -> Decimal:
    if isinstance(price, Decimal):
        return price
    return max(price.base, *(tier.price for tier in price.tiers))
