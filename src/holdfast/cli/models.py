"""`holdfast models`: what is configured and can be used; with --all the catalogue with prices and windows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.app import facts_of
from holdfast.cli.found import Found, find_providers
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, say, say_json, with_commands
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.settings import Config
from holdfast.protocol.limits import ModelFacts, Tier
from holdfast.providers.catalog import known_models
from holdfast.views.lines import Line, Span, neutral, one_line, short, table


class _Listing(NamedTuple):
    """What is listed."""

    configured: ModelFacts | None
    origin: str
    """The file and line, or the variable, that names the configured model."""
    is_configured_usable: bool
    places: Sequence[Found]
    known: Mapping[str, Sequence[ModelFacts]]
    """The catalogue by provider; empty without --all."""


def models(
    is_all: Annotated[
        bool, typer.Option("--all", help="The whole catalogue, and providers that cannot be used.")
    ] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Show the configured model, and the providers and local servers that can be used.

    \b
    holdfast models
    holdfast models --all            # the catalogue: known models with prices and windows
    holdfast models --all --json
    """
    place = home_of(home)
    config = load(place, Path.cwd(), {}, os.environ)
    found = find_providers(config, place, os.environ)
    listing = _listing(config, found, is_all=is_all)
    if is_json:
        for row in _rows(listing):
            say_json(row)
    else:
        say(_lines(listing, columns(sys.stdout)))
        if not is_all:
            say(["", with_commands("`holdfast models --all` lists all known models with their prices.")])


def _listing(config: Config, found: Sequence[Found], *, is_all: bool) -> _Listing:
    now_ms = SYSTEM_CLOCK.now_ms()
    usable = {place.provider for place in found if place.is_usable}
    provider = config.model.partition(":")[0]
    return _Listing(
        configured=facts_of(config, config.model, now_ms) if config.model else None,
        origin=config.settings["model"].origin if config.model else "",
        is_configured_usable=provider in {*usable, "script"},
        places=[place for place in found if is_all or place.is_usable],
        known={place.provider: known_models(place.provider, now_ms=now_ms) for place in found}
        if is_all
        else {},
    )


def _rows(listing: _Listing) -> Iterator[dict[str, Any]]:
    if listing.configured is not None:
        row = _model(listing.configured, is_usable=listing.is_configured_usable)
        yield {**row, "role": "configured", "origin": listing.origin}
    for place in listing.places:
        yield {
            "provider": place.provider, "usable": place.is_usable, "why": place.why, "address": place.address,
        }  # fmt: skip
    for place in listing.places:
        for known in listing.known.get(place.provider, ()):
            yield _model(known, is_usable=place.is_usable)
        for name in place.models:
            yield {"model": f"{place.provider}:{name}", "usable": True, "price_source": "server"}


def _model(known: ModelFacts, *, is_usable: bool) -> dict[str, Any]:
    larger = [{"above_tokens": tier.above_tokens, **_prices(tier)} for tier in known.tiers]
    return {
        "model": known.name,
        "usable": is_usable,
        **(_prices(known) if known.price != "unknown" else dict.fromkeys(_prices(known))),
        "larger_calls": larger,
        "context_tokens": known.context_tokens if known.is_window_known else None,
        "price_source": known.price_source,
    }


def _lines(listing: _Listing, width: int) -> Iterator[Line]:
    heads = ("model", "in $/Mtok", "out $/Mtok", "window", "for larger calls")
    head: list[Span | str] = [Span(text, "bold") for text in heads]
    if listing.configured is None:
        yield with_commands("No model is configured. `holdfast init` chooses one.")
    else:
        yield from table([head, _model_row(listing.configured)], width, right=(1, 2), drop=(4, 3))
        yield [Span(f"configured in {neutral(listing.origin)}", "dim")]
        if not listing.is_configured_usable:
            yield [Span("It cannot be used now: its provider has no key, or does not answer.", "yellow")]
    yield [""]
    if not listing.places:
        yield with_commands(
            "No provider has a key, and no local server answers. `holdfast doctor` says more."
        )
    yield from table([_provider_row(place) for place in listing.places], width)
    rows: list[list[Span | str]] = []
    for place in listing.places:
        rows += [_model_row(known) for known in listing.known.get(place.provider, ())]
        rows += [
            [one_line(f"{place.provider}:{name}", 60), "", "", "served here", ""] for name in place.models
        ]
    if rows:
        yield [""]
        yield from table([head, *rows], width, right=(1, 2), drop=(4, 3))


def _provider_row(place: Found) -> list[Span | str]:
    name, text = ("bold green", "") if place.is_usable else ("dim", "dim")
    return [
        Span(place.provider, name),
        Span(one_line(place.why, 40), text),
        Span(one_line(place.address, 60), text),
    ]


def _model_row(known: ModelFacts) -> list[Span | str]:
    window = short(known.context_tokens) if known.is_window_known else "unknown"
    larger = (f"{' / '.join(_dollars(tier))} above {short(tier.above_tokens)}" for tier in known.tiers)
    dollars = _dollars(known) if known.price != "unknown" else ["unknown", "unknown"]
    return [one_line(known.name, 60), *dollars, window, Span(", ".join(larger), "dim")]


def _dollars(prices: ModelFacts | Tier) -> list[str]:
    return [f"{price:.2f}" for price in _prices(prices).values()]


def _prices(prices: ModelFacts | Tier) -> dict[str, float]:
    return {
        "input_usd_per_mtok": prices.input_microusd_per_mtok / 1_000_000,
        "output_usd_per_mtok": prices.output_microusd_per_mtok / 1_000_000,
    }
