"""The settings of a session, in groups that are recorded once each and named by their hash.

A group has what changes together. `config` decides which values are allowed, and where they come from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import fields, replace

from holdfast.protocol.allowed import EVERYWHERE
from holdfast.protocol.fence import CPU_S, FILE_BYTES, MEMORY_BYTES, PROCESSES, Mode
from holdfast.protocol.hooks import Hook
from holdfast.protocol.limits import DEFAULT_MAX_OUTPUT_TOKENS, Limits, ModelFacts
from holdfast.protocol.notify import NotifyAbout
from holdfast.protocol.prompt import CustomSection
from holdfast.protocol.rules import PolicyRule

NO_MAX_TOKENS = 100_000_000
"""More than any model takes: its window and the money decide."""

Autonomy = Literal["read-only", "supervised", "full"]
ApproveBy = Literal["prompt", "wait", "deny", "defer"]


UnknownArguments = Literal["reject", "strip"]
"""What happens to arguments that a tool does not take: the call is refused, or runs without them."""


class ModelSettings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="model"):
    """Which model, and how to call it."""

    facts: ModelFacts
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    model_attempts: int = 6
    """The most attempts of one model call."""
    run_retries: int = 100
    """How often one run tries a model call again."""
    patience_s: float = 60.0
    """The longest wait in a process. For a longer one the session is parked."""
    park_s: float = 86_400.0
    """All parked time of a run, at most. A wait for a budget does not count."""
    is_streaming: bool = True


class ToolSettings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="tools"):
    """Which tools, and where they work."""

    workspace: str
    copy_of: str = ""
    """The workspace of the user, if this one is a copy of it."""
    allow_tools: tuple[str, ...] = ()
    """Globs; empty means all."""
    deny_tools: tuple[str, ...] = ()


class Posture(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="posture"):
    """What needs no approval, and who is asked for the rest."""

    autonomy: Autonomy = "supervised"
    approve_by: ApproveBy = "wait"
    approval_deadline_s: float = 604_800.0
    notify_on: tuple[NotifyAbout, ...] = ()
    """What people are notified of."""


Unproved = Literal["ask", "allow"]


class Walls(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The sandbox of commands, and what they may use beside the workspace. Paths may begin with `~`."""

    backend: Mode = "unsafe"
    """What the configuration asks for."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    memory_bytes: int = MEMORY_BYTES
    """The data of each process."""
    file_bytes: int = FILE_BYTES
    """The longest file that a command may write."""
    processes: int = PROCESSES
    """How many processes a command may have at a time."""
    cpu_s: int = CPU_S
    """The processor time of each process."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="policy"):
    """What the configuration denies, asks about and allows. The rules of the administrator come first."""

    deny: tuple[PolicyRule, ...] = ()
    ask: tuple[PolicyRule, ...] = ()
    allow: tuple[PolicyRule, ...] = ()
    allowed_paths: tuple[str, ...] = (EVERYWHERE,)
    """The paths of the workspace that tools may use; with `:ro`, only to read."""
    allowed_hosts: tuple[str, ...] = ()
    """The hosts that tools may reach."""
    offered: tuple[str, ...] = ("*",)
    """Globs: the tools that runs may have, before their own choice counts."""
    withheld: tuple[PolicyRule, ...] = ()
    """Globs: the tools that no run has."""
    unknown_arguments: UnknownArguments = "reject"
    search: tuple[str, ...] = ()
    """The search engines that `web_search` asks, in order. Only it reaches their hosts."""
    hooks: tuple[Hook, ...] = ()
    """The hooks, in the order in which they are asked."""
    is_workspace_untrusted: bool = False
    """Whether strangers wrote the files of the workspace."""
    grants_last_s: float = 43_200.0
    """How long a grant lasts."""
    sandboxed: Unproved = "ask"
    """What becomes of a command that is not proved harmless, in a sandbox without network. Without one it asks."""
    walls: Walls = Walls()
    actions_per_hour: int = 0
    """When a session has started so many calls within an hour, the next ones ask; 0: they never do."""


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="prompt"):
    """What the system prompt contains beside Holdfast's own text."""

    instructions: str = ""
    sections: tuple[CustomSection, ...] = ()
    """The sections that the program adds."""
    zone: str = "UTC"
    """The time zone of the session, for the time in front of a person's words."""


class Repairs(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How many failures of one class in a row end the run, by class."""

    unknown_tool: int = 5
    invalid_json: int = 5
    schema: int = 5
    timeout: int = 5
    policy_denied: int = 20
    execution: int = 50


class Guard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="guard"):
    """When Holdfast tells the model that it repeats itself or makes no progress, and when it ends the run."""

    repeat_note: int = 3
    repeat_stop: int = 8
    stall_turns: int = 24
    """So many turns in a row that bring nothing new end the run. At a third of them a note tells the model, at two
    thirds it reflects."""
    wait_s: float = 10.0
    """A call that took so long was waiting: it is neither a repeat nor a lack of progress."""
    repairs: Repairs = Repairs()
    """When calls that fail in the same way end the run."""


class Output(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="output"):
    """What the answer of a run has to be."""

    schema: str = ""
    """A JSON Schema as JSON text. The answer is one value that matches it. Empty: the answer is words."""


class Context(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="context"):
    """How much of the conversation a request carries, and when it is compacted."""

    max_messages: int = 2_000
    """The most messages of one request."""
    max_tokens: int = NO_MAX_TOKENS
    """The most input tokens of one request."""
    compact_at: float = 0.75
    """The share of the window at which a summary is asked for."""
    compact_to: float = 0.4
    """The share of the window that a request fills after a compaction."""
    compact_turns: int = 200
    """After so many turns a summary is asked for in any case."""
    compactions_per_hour: int = 12
    """The most attempts to get a summary; 0: none."""
    compact_cost_share: float = 0.1
    """The share of a run's cost limit that they may take."""
    compact_model: ModelFacts | None = None
    """The model that writes summaries; None: the model of the run."""


class Conduct(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="conduct"):
    """How a run goes about its task: its plan, its reflections, what it says about its answer."""

    needs_plan: bool = False
    """Nothing that writes, executes or sends starts before there is a plan."""
    max_replans: int = 5
    """How often the plan may be revised, and Holdfast asks for it, without a step done."""
    after_failures: int = 3
    """So many failed calls in a row are a failure of the plan's step, and a reason to reflect."""
    reflect_turns: int = 10
    """After so many turns the model is asked how it gets on."""
    max_reflections: int = 4
    """The most of a run; 0: none."""
    is_calibrated: bool = False
    """The answer comes by a call of `answer`, with a confidence."""
    answer_threshold: float = 0.5
    """An answer with less confidence is doubted once."""
    reflection_model: ModelFacts | None = None
    """The model that is asked; None: the model of the run."""


G = TypeVar("G", bound=msgspec.Struct)
Group = ModelSettings | Limits | ToolSettings | Posture | Prompt | Guard | Output | Context | Conduct | Policy


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The settings of a run."""

    model: ModelSettings
    tools: ToolSettings
    limits: Limits = Limits()
    posture: Posture = Posture()
    prompt: Prompt = Prompt()
    guard: Guard = Guard()
    output: Output = Output()
    context: Context = Context()
    conduct: Conduct = Conduct()
    policy: Policy = Policy()


class SettingsRef(msgspec.Struct, frozen=True, gc=False):
    """Settings by the SHA-256 of each group. An earlier `SettingsStored` of the journal has the group."""

    model: str
    tools: str
    limits: str
    posture: str
    prompt: str
    guard: str
    output: str
    context: str
    conduct: str
    policy: str


def name_of(group: Group) -> str:
    """Return the SHA-256 that names the group."""
    return hashlib.sha256(msgspec.json.encode(group)).hexdigest()


def ref_of(settings: Settings) -> SettingsRef:
    """Return the names of the settings."""
    return SettingsRef(**{group: name_of(getattr(settings, group)) for group in _GROUPS})


def groups_of(settings: Settings, ref: SettingsRef | None = None) -> dict[str, Group]:
    """Return the groups by name. `ref`: their names, if they are known."""
    names = ref or ref_of(settings)
    return {getattr(names, group): getattr(settings, group) for group in _GROUPS}


def settings_by(ref: SettingsRef, groups: Mapping[str, Group]) -> Settings | None:
    """Return the settings with these names; None if one is unknown."""
    found = {group: groups.get(getattr(ref, group)) for group in _GROUPS}
    return None if None in found.values() else Settings(**found)  # type: ignore[arg-type]


_GROUPS = Settings.__struct_fields__
_GROUP_OF = {each.name: group.name for group in fields(Settings) for each in fields(group.type)}
"""The group of each single name."""


def settings_with(facts: ModelFacts, workspace: str, **values: Any) -> Settings:
    """Return settings by their single names (`autonomy="full"`, `turns=3`), with defaults for all others."""
    return changed(Settings(ModelSettings(facts), ToolSettings(workspace)), **values)


def changed(settings: Settings, **values: Any) -> Settings:
    """Return the settings with other values, each by its single name, or a whole group by the group's name."""
    settings = replace(settings, **{name: values.pop(name) for name in _GROUPS if name in values})
    if not values.keys() <= _GROUP_OF.keys():
        raise TypeError(f"there are no such settings: {sorted(values.keys() - _GROUP_OF.keys())}")
    changing = {_GROUP_OF[name] for name in values}
    return replace(settings, **{name: group_with(getattr(settings, name), values) for name in changing})


def group_with(group: G, values: Mapping[str, Any]) -> G:
    """Return the group with those of the values that it has, by their single names."""
    return replace(group, **{name: values[name] for name in group.__struct_fields__ if name in values})
