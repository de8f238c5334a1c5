"""How a run is to be done: the settings of a session, in groups that are recorded once each and named by their hash.

A group holds what changes together. What each may be, and where it comes from, is the business of `config`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import fields, replace

from holdfast.protocol.limits import DEFAULT_MAX_OUTPUT_TOKENS, Limits, ModelFacts

Autonomy = Literal["read-only", "supervised", "full"]
ApproveBy = Literal["prompt", "wait", "deny"]


class ModelSettings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="model"):
    """Which model, and how it is called."""

    facts: ModelFacts
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    model_attempts: int = 6
    """Attempts of one model call before the run gives up."""
    is_streaming: bool = True


class ToolSettings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="tools"):
    """Which tools, and where they work."""

    workspace: str
    allow_tools: tuple[str, ...] = ()
    """Globs; empty means all."""
    deny_tools: tuple[str, ...] = ()


class Posture(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="posture"):
    """What may be done without asking, and who is asked."""

    autonomy: Autonomy = "supervised"
    approve_by: ApproveBy = "wait"
    approval_deadline_s: float = 604_800.0


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="prompt"):
    """What the model is told beside Holdfast's own words."""

    instructions: str = ""


class Guard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="guard"):
    """When a run that gets nowhere is told so, and when it ends."""

    repeat_note: int = 3
    repeat_stop: int = 8


G = TypeVar("G", bound=msgspec.Struct)
Group = ModelSettings | Limits | ToolSettings | Posture | Prompt | Guard


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a run is to be done."""

    model: ModelSettings
    tools: ToolSettings
    limits: Limits = Limits()
    posture: Posture = Posture()
    prompt: Prompt = Prompt()
    guard: Guard = Guard()


class SettingsRef(msgspec.Struct, frozen=True, gc=False):
    """Settings by the SHA-256 of each group; an earlier `SettingsStored` of the journal holds it."""

    model: str
    tools: str
    limits: str
    posture: str
    prompt: str
    guard: str


def name_of(group: Group) -> str:
    """The SHA-256 by which a group goes."""
    return hashlib.sha256(msgspec.json.encode(group)).hexdigest()


def ref_of(settings: Settings) -> SettingsRef:
    """The settings by name."""
    return SettingsRef(**{group: name_of(getattr(settings, group)) for group in _GROUPS})


def groups_of(settings: Settings) -> dict[str, Group]:
    """The groups by name."""
    return {name_of(group): group for group in (getattr(settings, name) for name in _GROUPS)}


def settings_by(ref: SettingsRef, groups: Mapping[str, Group]) -> Settings | None:
    """The settings that go by these names; None where one is not known."""
    found = {group: groups.get(getattr(ref, group)) for group in _GROUPS}
    return None if None in found.values() else Settings(**found)  # type: ignore[arg-type]


_GROUPS = Settings.__struct_fields__
_SINGLE_NAMES = frozenset(each.name for group in fields(Settings) for each in fields(group.type))


def settings_with(facts: ModelFacts, workspace: str, **values: Any) -> Settings:
    """Settings by their single names (`autonomy="full"`, `turns=3`); the defaults hold for all others."""
    return changed(Settings(ModelSettings(facts), ToolSettings(workspace)), **values)


def changed(settings: Settings, **values: Any) -> Settings:
    """The settings with other values, each by its single name, or a whole group by the group's."""
    settings = replace(settings, **{name: values.pop(name) for name in _GROUPS if name in values})
    if not values.keys() <= _SINGLE_NAMES:
        raise TypeError(f"there are no such settings: {sorted(values.keys() - _SINGLE_NAMES)}")
    return Settings(**{name: group_with(getattr(settings, name), values) for name in _GROUPS})


def group_with(group: G, values: Mapping[str, Any]) -> G:
    """The group with those of the values that it has, by their single names."""
    return replace(group, **{name: values[name] for name in group.__struct_fields__ if name in values})
