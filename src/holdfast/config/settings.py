"""The settings as the program uses them: typed, frozen, in its own units, each with its origin.

`load` builds them. Nothing here reads a file or knows the allowed values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.config.models import EFFORT, OPTIONS, ProviderSettings, left_out, options_for, providers_of
from holdfast.config.money import budgets_of
from holdfast.config.secrets import FORMAT, HEADER, SECTION
from holdfast.config.services import RATES, circuits_of
from holdfast.protocol.budgets import Budgets
from holdfast.protocol.circuits import CircuitRules
from holdfast.protocol.hooks import HookSource
from holdfast.protocol.limits import NO_TOOL_CALL_LIMIT, Limits, ModelFacts, ModelOptions
from holdfast.protocol.notify import NotifyAbout
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import ApproveBy, Autonomy, Conduct, Context, Policy, Repairs, Walls

CONDUCT: Mapping[str, str] = {
    "plan.max_replans": "max_replans",
    "reflection.every_turns": "reflect_turns",
    "reflection.after_failures": "after_failures",
    "answers.calibrated": "is_calibrated",
    "answers.threshold": "answer_threshold",
    "reflection.max": "max_reflections",
}
"""The keys of how a run goes about its task, each with its name in `Conduct`."""
CONTEXT: Mapping[str, str] = {
    "context.max_messages": "max_messages",
    "context.max_tokens": "max_tokens",
    "compaction.at": "compact_at",
    "compaction.to": "compact_to",
    "compaction.turns": "compact_turns",
    "compaction.max_per_hour": "compactions_per_hour",
    "compaction.max_cost_share": "compact_cost_share",
}
"""The keys of what a request carries, each with its name in `Context`."""
RETRY: Mapping[str, str] = {
    "retry.attempts": "model_attempts",
    "retry.per_run": "run_retries",
    "retry.patience": "patience_s",
    "retry.park": "park_s",
}
"""The keys of how often model calls are tried again, each with its name in `ModelSettings`."""
HOOKS = "hooks"
"""The section of the hooks."""
_RANKS = ("admin", "user", "project")
DEFAULT_ORIGIN = "default"

Layer = Literal["default", "user", "project", "environment", "flags", "admin"]
"""The sources of values, in order of precedence, lowest first. The last one caps them all."""


class Setting(msgspec.Struct, frozen=True):
    """One value, and where it came from."""

    value: Any
    origin: str
    """`default`, FILE:LINE, a variable's name, a flag, or a posture with its origin."""
    layer: Layer


class Ignored(msgspec.Struct, frozen=True):
    """A value in a file that does not count."""

    key: str
    value: Any
    """The value as it is in the file."""
    origin: str
    why: str
    """The reason, as the end of a sentence about the file."""
    needs_trust: bool = False
    """Whether it would count if the file were trusted."""


class SecretUse(msgspec.Struct, frozen=True):
    """Where the value of a stored secret may go, and in which form."""

    hosts: tuple[str, ...] = ()
    """As `[network] allow` names hosts. Empty: nowhere."""
    env: str = ""
    """The variable inside the sandbox; empty: none."""
    header: str = HEADER
    format: str = FORMAT
    """What the header says, with `{}` for the value."""


class CatalogEntry(msgspec.Struct, frozen=True):
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


class Config(msgspec.Struct, frozen=True):
    """All settings of one start of the program."""

    settings: dict[str, Setting]
    """Every value that is set, by dotted key. The typed fields are made from these."""
    limits: Limits
    model: str
    """Empty if none is configured."""
    max_output_tokens: int
    autonomy: Autonomy
    approve_by: ApproveBy | None
    """None: prompt on a terminal, otherwise wait."""
    repeat_note: int
    repeat_stop: int
    repairs: Repairs
    context: Context
    """Without the model of summaries."""
    conduct: Conduct
    """Without the model of reflections, whose facts this does not know."""
    policy: Policy
    reflection_model: str
    """Empty: the model of the run."""
    compaction_model: str
    """Empty: the model of the run."""
    stall_turns: int
    wait_s: float
    retry: Mapping[str, float]
    """How often model calls are tried again, by the names of `ModelSettings`."""
    zone: str
    """Empty: this machine's."""
    budgets: Budgets
    circuits: CircuitRules
    rates: dict[str, dict[str, Any]]
    """How fast services may be called, by glob."""
    undo_keep_s: float
    """How long the content of edited files is kept."""
    tool_packages: tuple[str, ...]
    """The entry points whose tools are added."""
    notify_on: tuple[NotifyAbout, ...]
    """Empty without a program that notifies."""
    notify_command: tuple[str, ...]
    hooks: tuple[HookSource, ...]
    """What hooks run in this process. The policy has them too, as a session records them."""
    providers: dict[str, ProviderSettings]
    model_options: dict[str, dict[str, Any]]
    """How models are to answer, by glob."""
    effort: str
    """How much models think; empty if nothing says it."""
    is_effort_said: bool
    """Whether a flag or a variable says so."""
    catalog: dict[str, CatalogEntry]
    """What the user declares about models, by glob."""
    secrets: dict[str, SecretUse]
    """By the names of stored secrets. Not all of them need to be stored."""
    ignored: tuple[Ignored, ...] = ()
    """Values in files that may not set them."""
    warnings: tuple[str, ...] = ()
    """What was ignored or capped, in sentences for the user."""

    def options(self, model: str) -> ModelOptions:
        """Return how PROVIDER:MODEL is to answer."""
        return options_for(model, self.model_options, self.effort, comes_first=self.is_effort_said)

    def left_out(self, facts: ModelFacts) -> tuple[str, ...]:
        """Return a sentence for the user about each option that the model does not take."""
        return left_out(facts, self.options(facts.name))

    def keeps_an_hour(self, provider: str) -> bool:
        """Return whether a provider keeps what is in its cache for an hour."""
        return provider in self.providers and self.providers[provider].cache_ttl == "1h"


def build(
    settings: Mapping[str, Setting], names: Mapping[str, tuple[str, ...]], hooks: tuple[HookSource, ...]
) -> Config:
    """Return the typed settings of validated values.

    `names` maps a dotted key to its segments, because a segment that the user chose may contain dots.
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
            tool_calls=value.get("limits.tool_calls") or NO_TOOL_CALL_LIMIT,
            request_s=value["limits.request"],
            call_microusd=value.get("limits.call_usd") or 0,
        ),
        model=value.get("model") or "",
        max_output_tokens=value["max_output_tokens"],
        autonomy=value["autonomy"],
        approve_by=value.get("approve_by"),
        repeat_note=value["repeat.note"],
        repeat_stop=value["repeat.stop"],
        repairs=Repairs(**{name: value[f"repair.{name}"] for name in Repairs.__struct_fields__}),
        context=Context(**{name: value[key] for key, name in CONTEXT.items()}),
        conduct=Conduct(**{name: value[key] for key, name in CONDUCT.items()}),
        retry={name: value[key] for key, name in RETRY.items()},
        policy=Policy(
            deny=_ranked(value["policy.deny"]),
            ask=_ranked(value["policy.ask"]),
            allow=_ranked(value["policy.allow"]),
            allowed_paths=value["policy.allowed_paths"],
            allowed_hosts=value["network.allow"],
            offered=value["tools.allow"],
            withheld=_ranked(value["tools.deny"]),
            unknown_arguments=value["tools.unknown_arguments"],
            search=value["search.engines"],
            hooks=tuple(each.hook for each in hooks),
            is_workspace_untrusted=value["taint.workspace"] == "untrusted",
            grants_last_s=value["policy.grants_last"],
            sandboxed=value["policy.sandboxed"],
            walls=Walls(
                value["sandbox.mode"],
                value["sandbox.read"],
                value["sandbox.write"],
                value["sandbox.memory"],
                value["sandbox.file_size"],
                value["sandbox.processes"],
                int(value["sandbox.cpu"]),
            ),
            actions_per_hour=value["policy.actions_per_hour"],
        ),
        reflection_model=value.get("reflection.model") or "",
        compaction_model=value.get("compaction.model") or "",
        stall_turns=value["guard.stall_turns"],
        wait_s=float(value["guard.wait_s"]),
        zone=value.get("prompt.zone") or "",
        budgets=budgets_of(value),
        circuits=circuits_of(value),
        rates=_group(RATES, value, names),
        undo_keep_s=value["undo.keep"],
        tool_packages=value["tools.packages"],
        notify_on=tuple(value["notify.on"]) if value.get("notify.command") else (),
        notify_command=value.get("notify.command") or (),
        hooks=hooks,
        providers=providers_of(value, names),
        model_options=_group(OPTIONS, value, names),
        effort=value.get(EFFORT) or "",
        is_effort_said=EFFORT in settings and settings[EFFORT].layer in ("flags", "environment"),
        catalog={n: CatalogEntry(**v) for n, v in _group("catalog", value, names).items()},
        secrets={n: SecretUse(**v) for n, v in _group(SECTION, value, names).items()},
    )


def _ranked(rules: Sequence[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Return the rules in the order of their layers."""
    return tuple(sorted(rules, key=lambda rule: _RANKS.index(rule.layer)))


def _group(
    section: str, value: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, Any]]:
    """Return the values of a section with chosen names: `{name: {field: value}}`."""
    groups: dict[str, dict[str, Any]] = {}
    for key, segments in names.items():
        if segments[0] == section and len(segments) == 3 and key in value:
            groups.setdefault(segments[1], {})[segments[2]] = value[key]
    return groups
