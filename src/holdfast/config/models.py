"""The keys about models and how they are spoken to: `[providers]`, `[model_options]`, `effort`.

`keys` puts them into its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from holdfast.config import secrets
from holdfast.config.values import Kind, choice, number, text, variables
from holdfast.protocol.limits import Effort, ModelFacts, ModelOptions

EFFORT = "effort"
OPTIONS = "model_options"
"""The section of what models are to do."""
HEADERS = "headers"
TEMPERATURE_MAX = 2.0
_EFFORT = choice(*filter(None, get_args(Effort)))


class Row(NamedTuple):
    """A key about models. A project file may set it once it is trusted."""

    path: str
    kind: Kind
    about: str
    flag: str = ""


ROWS: tuple[Row, ...] = (
    Row(EFFORT, _EFFORT, "How much a model thinks. A flag comes before [model_options].", "--effort"),
    Row(f"{OPTIONS}.*.effort", _EFFORT, "How much the models of this name think."),
    Row(f"{OPTIONS}.*.temperature", number(0, TEMPERATURE_MAX), "How much their answers vary."),
    Row(
        "providers.*.base_url",
        text(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", "an http:// or https:// address without user or query"),
        "The address of the provider.",
    ),
    Row("providers.*.api_key_env", variables(), "The variable that contains the key, or several, in order."),
    Row("providers.*.api_key_secret", secrets.NAMED, "The stored secret that is the key."),
    Row("providers.*.cache", choice("auto", "blocks", "off"), "How it learns what to keep in its cache."),
    Row("providers.*.cache_ttl", choice("5m", "1h"), "How long it keeps that."),
    Row(
        f"providers.*.{HEADERS}.*",
        text(r"[\x20-\x7e]+", "a text of printable ASCII characters"),
        "A header of each request. No place for secrets.",
    ),
    Row(
        "providers.*.proxy",
        text(r"https?://[^\s/?#]+/?", "an http:// or https:// address of a proxy"),
        "The proxy to the provider, in the place of the one in the environment.",
    ),
    Row(
        "providers.*.ca_file",
        text(r"(?:/|~/).+", 'a path like "/etc/ssl/ours.pem" or "~/ours.pem"'),
        "Certificates that count too, as PEM.",
    ),
)


class ProviderSettings(msgspec.Struct, frozen=True):
    """What a user sets for one provider; empty means not set."""

    base_url: str = ""
    api_key_env: tuple[str, ...] = ()
    api_key_secret: str = ""
    cache: Literal["auto", "blocks", "off"] = "auto"
    cache_ttl: Literal["5m", "1h"] = "5m"
    headers: Mapping[str, str] = {}
    proxy: str = ""
    ca_file: str = ""


def providers_of(
    value: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]
) -> dict[str, ProviderSettings]:
    """Return the providers that are set. `names` has the segments of each key."""
    fields: dict[str, dict[str, Any]] = {}
    for key, segments in names.items():
        if segments[0] != "providers" or key not in value:
            continue
        said = fields.setdefault(segments[1], {})
        if segments[2] == HEADERS:
            said[HEADERS] = {**said.get(HEADERS, {}), segments[3]: value[key]}
        else:
            said[segments[2]] = value[key]
    return {name: ProviderSettings(**said) for name, said in fields.items()}


def options_for(
    name: str, globs: Mapping[str, Mapping[str, Any]], effort: str, *, comes_first: bool
) -> ModelOptions:
    """Return how a model is to answer: each option by the glob with the most literal characters that sets it.

    `comes_first`: this effort was said with a flag or a variable. Otherwise it counts for models without their own.
    """
    matching = sorted((glob for glob in globs if fnmatchcase(name, glob)), key=literal)
    said: dict[str, Any] = {EFFORT: effort}
    for glob in matching:
        said |= globs[glob]
    if comes_first:
        said[EFFORT] = effort
    return ModelOptions(**said)


def left_out(facts: ModelFacts, wished: ModelOptions) -> tuple[str, ...]:
    """Return a sentence for the user about each option that the model does not take."""
    return tuple(
        f"{facts.name} does not take {name} = {asked}, so it is left out."
        for name, asked, kept in zip(
            ModelOptions.__struct_fields__,
            msgspec.structs.astuple(wished),
            msgspec.structs.astuple(facts.options),
            strict=True,
        )
        if asked != kept
    )


def literal(glob: str) -> tuple[int, str]:
    """Return how specific a glob is, to sort by."""
    return len(glob) - sum(map(glob.count, "*?[]")), glob
