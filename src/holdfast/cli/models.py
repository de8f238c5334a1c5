"""`holdfast models`: usable providers, and prices and windows of known models."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.found import Found, find_providers
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import columns, say, say_json, with_commands
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.protocol.limits import ModelFacts, Tier
from holdfast.providers.catalog import known_models
from holdfast.views.lines import Line, Span, one_line, short, table


def models(
    is_all: Annotated[bool, typer.Option("--all", help="Include the models of unusable providers.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """List providers, and the models of usable providers with prices and windows.

    \b
    holdfast models
    holdfast models --all --json
    """
    config = load(home_of(home), Path.cwd(), {}, os.environ)
    found = find_providers(config, os.environ)
    now_ms = SYSTEM_CLOCK.now_ms()
    known = {
        place.provider: known_models(place.provider, now_ms=now_ms)
        for place in found
        if is_all or place.is_usable
    }
    if is_json:
        for row in _rows(found, known):
            say_json(row)
    else:
        say(_lines(found, known, columns(sys.stdout)))


def _rows(found: list[Found], known: dict[str, list[ModelFacts]]) -> Iterator[dict[str, Any]]:
    for place in found:
        yield {
            "provider": place.provider, "usable": place.is_usable, "why": place.why, "address": place.address,
        }  # fmt: skip
    for place in found:
        for facts in known.get(place.provider, ()):
            yield {
                "model": facts.name,
                "usable": place.is_usable,
                **_prices(facts),
                "larger_calls": [
                    {"above_tokens": tier.above_tokens, **_prices(tier)} for tier in facts.tiers
                ],
                "context_tokens": facts.context_tokens if facts.is_window_known else None,
                "price_source": facts.price_source,
            }
        for name in place.models:
            yield {"model": f"{place.provider}:{name}", "usable": True, "price_source": "loopback"}


def _lines(found: list[Found], known: dict[str, list[ModelFacts]], width: int) -> Iterator[Line]:
    yield from table([_provider_row(place) for place in found], width)
    rows: list[list[Span | str]] = []
    for place in found:
        rows += [_model_row(facts) for facts in known.get(place.provider, ())]
        rows += [
            [one_line(f"{place.provider}:{name}", 60), "", "", "on this machine", ""] for name in place.models
        ]
    yield [""]
    if not rows:
        yield with_commands(
            "No model is usable yet. Set a provider's key or start a local server, then run `holdfast init`."
        )
        return
    heads = ("model", "in $/Mtok", "out $/Mtok", "window", "for larger calls")
    yield from table([[Span(head, "bold") for head in heads], *rows], width, right=(1, 2), drop=(4, 3))


def _provider_row(place: Found) -> list[Span | str]:
    name, text = ("bold green", "") if place.is_usable else ("dim", "dim")
    return [
        Span(place.provider, name),
        Span(one_line(place.why, 40), text),
        Span(one_line(place.address, 60), text),
    ]


def _model_row(facts: ModelFacts) -> list[Span | str]:
    window = short(facts.context_tokens) if facts.is_window_known else "unknown"
    larger = (f"{' / '.join(_dollars(tier))} above {short(tier.above_tokens)}" for tier in facts.tiers)
    return [facts.name, *_dollars(facts), window, Span(", ".join(larger), "dim")]


def _dollars(prices: ModelFacts | Tier) -> list[str]:
    return [f"{price:.2f}" for price in _prices(prices).values()]


def _prices(prices: ModelFacts | Tier) -> dict[str, float]:
    return {
        "input_usd_per_mtok": prices.input_microusd_per_mtok / 1_000_000,
        "output_usd_per_mtok": prices.output_microusd_per_mtok / 1_000_000,
    }
