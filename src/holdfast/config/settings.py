"""The settings as the program uses them: typed, frozen, in its own units, each with its origin.

Built by `load`; nothing here reads a file or knows what a key may hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.protocol.limits import Limits
from holdfast.protocol.settings import ApproveBy, Autonomy

DEFAULT_ORIGIN = "default"

Layer = Literal["default", "user", "project", "environment", "flags", "admin"]
"""Each goes before those on its left; the last caps them all."""


class Setting(msgspec.Struct, frozen=True):
    """One value and where it came from."""

    value: Any
    origin: str
    """`default`, FILE:LINE, a variable's name, a flag, or a posture and who chose it."""
    layer: Layer


class Ignored(msgspec.Struct, frozen=True):
    """A value that a file gives and that does not count."""

    key: str
    value: Any
    """As the file has it."""
    origin: str
    why: str
    """As the end of a sentence about the file."""
    needs_trust: bool = False
    """Whether it would count if somebody trusted the file."""


class ProviderSettings(msgspec.Struct, frozen=True):
    """What a user says about one provider; empty: nothing."""

    base_url: str = ""
    api_key_env: str = ""


class CatalogEntry(msgspec.Struct, frozen=True):
    """What a user says about the models that a glob on PROVIDER:MODEL matches; None: nothing."""

    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    cache_read_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None


class Config(msgspec.Struct, frozen=True):
    """All settings of one start of the program."""

    settings: dict[str, Setting]
    """Every value that is set, by its dotted key; what the typed fields were made of."""
    limits: Limits
    model: str
    """Empty: none was configured."""
    max_output_tokens: int
    autonomy: Autonomy
    approve_by: ApproveBy | None
    """None: prompt on a terminal, else wait."""
    sandbox_mode: Literal["unsafe"]
    repeat_note: int
    repeat_stop: int
    providers: dict[str, ProviderSettings]
    catalog: dict[str, CatalogEntry]
    """By glob."""
    ignored: tuple[Ignored, ...] = ()
    """What files say that may not say it."""
    warnings: tuple[str, ...] = ()
    """What was ignored or capped, in sentences for the user."""


def build(settings: Mapping[str, Setting], names: Mapping[str, tuple[str, ...]]) -> Config:
    """The typed settings of validated values.

    `names` tells which part of a dotted key was chosen by the user: the key as the user's own parts.
    """
    value = {key: setting.value for key, setting in settings.items()}
    return Config(
        settings=dict(settings),
        limits=Limits(
            turns=value["limits.turns"],
            tokens=value["limits.tokens"],
            cost_microusd=value["limits.cost_usd"],
            is_cost_set=settings["limits.cost_usd"].layer != "default",
            wall_s=value["limits.wall"],
            idle_s=value["limits.idle"],
        ),
        model=value.get("model") or "",
        max_output_tokens=value["max_output_tokens"],
        autonomy=value["autonomy"],
        approve_by=value.get("approve_by"),
        sandbox_mode=value["sandbox.mode"],
        repeat_note=value["repeat.note"],
        repeat_stop=value["repeat.stop"],
        providers={n: ProviderSettings(**v) for n, v in _group("providers", value, names).items()},
        catalog={n: CatalogEntry(**v) for n, v in _group("catalog", value, names).items()},
    )


def _group(
    section: str, value: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, Any]]:
    """The values of a section with chosen names: `{name: {field: value}}`."""
    groups: dict[str, dict[str, Any]] = {}
    for key, parts in names.items():
        if parts[0] == section and len(parts) == 3 and key in value:
            groups.setdefault(parts[1], {})[parts[2]] = value[key]
    return groups
