"""The flags of `run`, `resume` and `chat`, and the settings that follow from them.

A session keeps its recorded settings. Flags change them, and the administrator's file limits them; other files of
today do not apply.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer
from msgspec.structs import replace

from holdfast.app import App, Chosen, schema_text, specs_of
from holdfast.cli.modules import only_from_elsewhere
from holdfast.config.files import TEXT_MAX_BYTES, Unreadable, read_text
from holdfast.config.load import load
from holdfast.config.paths import Home, expanded, is_folder
from holdfast.config.settings import CONDUCT, CONTEXT, RETRY, Config
from holdfast.errors import UsageError
from holdfast.policy.rules import offers
from holdfast.protocol.limits import NO_TOOL_CALL_LIMIT, ModelFacts, usd
from holdfast.protocol.plan import UPDATE_PLAN
from holdfast.protocol.settings import Repairs, Settings, changed
from holdfast.protocol.untrusted import decode_exact
from holdfast.views.happenings import Detail

_COST = "limits.cost_usd"
_POSTURE_ORIGIN = "(--posture)"
_SANDBOXED = "policy.sandboxed"


def _flag(*names: str, about: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=about, metavar=metavar)


@dataclass(frozen=True)
class RunFlags:
    """The flags of a run. None was not given."""

    model: Annotated[str | None, _flag("--model", "-m", metavar="PROVIDER:MODEL", about="The model.")] = None
    workspace: Annotated[
        str | None,
        _flag(
            "--workspace", "-w", metavar="DIR", about="The folder that tools work in. Default: this folder."
        ),
    ] = None
    budget: Annotated[str | None, _flag("--budget", metavar="USD", about="The cost limit of the run.")] = None
    max_turns: Annotated[str | None, _flag("--max-turns", metavar="N", about="The limit of turns.")] = None
    max_tokens: Annotated[
        str | None,
        _flag("--max-tokens", metavar="N", about="The limit of tokens: input and output of all model calls."),
    ] = None
    max_tool_calls: Annotated[
        str | None, _flag("--max-tool-calls", metavar="N", about="The limit of tool calls that start.")
    ] = None
    timeout: Annotated[
        str | None,
        _flag("--timeout", metavar="2h", about="The time limit. Waiting for people does not count."),
    ] = None
    idle_timeout: Annotated[
        str | None, _flag("--idle-timeout", metavar="5m", about="The longest silence of a model or tool.")
    ] = None
    autonomy: Annotated[
        str | None, _flag("--autonomy", metavar="LEVEL", about="read-only, supervised or full.")
    ] = None
    posture: Annotated[
        str | None,
        _flag("--posture", metavar="NAME", about="A bundle of settings: interactive, headless or overnight."),
    ] = None
    effort: Annotated[
        str | None,
        _flag("--effort", metavar="LEVEL", about="How much the model thinks: low, medium or high."),
    ] = None
    system: Annotated[
        str | None, _flag("--system", metavar="FILE", about="A file with extra instructions for the model.")
    ] = None
    attach: Annotated[
        list[str] | None,
        _flag(
            "--attach",
            metavar="FILE",
            about="Add a text, PDF or image to the message. - reads stdin, except in chat. Repeatable.",
        ),
    ] = None
    output_schema: Annotated[
        str | None,
        _flag(
            "--output-schema", metavar="FILE", about="A JSON Schema. The answer is one value that matches it."
        ),
    ] = None
    needs_plan: Annotated[
        bool,
        typer.Option("--plan", help="Nothing that writes, executes or sends starts before there is a plan."),
    ] = False
    is_calibrated: Annotated[
        bool | None,
        typer.Option(
            "--calibrated/--no-calibrated",
            help="The answer comes with a confidence. A doubtful one is looked at again.",
        ),
    ] = None
    allow_tool: Annotated[
        list[str] | None, _flag("--allow-tool", metavar="GLOB", about="Allow only these tools. Repeatable.")
    ] = None
    deny_tool: Annotated[
        list[str] | None, _flag("--deny-tool", metavar="GLOB", about="Do not allow these tools. Repeatable.")
    ] = None
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and questions on stderr.")] = (
        False
    )
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show the arguments and results of tool calls.")
    ] = False
    approve_by: Annotated[
        str | None,
        _flag("--approve-by", metavar="HOW", about="Who approves: prompt, wait, deny or defer."),
    ] = None

    @property
    def detail(self) -> Detail:
        """How much progress is shown.

        Raises:
            UsageError: Both flags are given.
        """
        if self.is_quiet and self.is_verbose:
            raise UsageError("--quiet and --verbose cannot be combined.")
        return "quiet" if self.is_quiet else "verbose" if self.is_verbose else "usual"

    @property
    def values(self) -> dict[str, object]:
        """The settings that the flags give, by dotted key; None if not given."""
        return {
            "model": self.model,
            "autonomy": self.autonomy,
            "approve_by": self.approve_by,
            "posture": self.posture,
            "effort": self.effort,
            "answers.calibrated": self.is_calibrated,
            "limits.turns": self.max_turns,
            "limits.tokens": self.max_tokens,
            "limits.tool_calls": self.max_tool_calls,
            _COST: self.budget,
            "limits.wall": self.timeout,
            "limits.idle": self.idle_timeout,
        }


def taking_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Add the flags of a run to a command, which receives them as its argument `flags`."""
    hints = get_type_hints(RunFlags, include_extras=True)
    shared = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
        for each in fields(RunFlags)
    ]
    parameters = inspect.signature(command, eval_str=True).parameters
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in parameters.items()
        if name != "flags"
    ]

    @functools.wraps(command)
    def with_flags(**given: Any) -> int:
        flags = RunFlags(**{each.name: given.pop(each.name) for each in shared})
        _check_filled(flags)
        return command(flags=flags, **given)

    everything = [*own, *shared]
    with_flags.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {each.name: each.annotation for each in everything}
    return with_flags


def _check_filled(flags: RunFlags) -> None:
    """Refuse an empty value: a variable of a script is not set, and the run would go another way than it says.

    Raises:
        UsageError: A flag has one.
    """
    for each in fields(flags):
        value = getattr(flags, each.name)
        if value == "" or (isinstance(value, list) and "" in value):
            flag = f"--{each.name.replace('_', '-')}"
            raise UsageError(f"{flag}: The value is empty.", hint="Give it a value, or leave it out.")


def workspace_of(flags: RunFlags, recorded: Settings | None) -> Path:
    """Return the workspace of the user, in which tools work, or in a copy of it.

    Raises:
        UsageError: It is not a folder, or Python looks for modules there first.
    """
    past = (recorded.tools.copy_of or recorded.tools.workspace) if recorded else ""
    named = flags.workspace or past
    folder = expanded(named) if named else Path.cwd()
    if not is_folder(folder):
        raise UsageError(f"The workspace {folder} is not a folder.", hint="Name another one with -w DIR.")
    folder = folder.resolve()
    only_from_elsewhere([str(folder)])
    return folder


def configured(home: Home, flags: RunFlags, recorded: Settings | None) -> Config:
    """Return the configuration for the flags and the recorded settings.

    Recorded settings count like flags, below the given flags. So they override the files of today, except the
    administrator's file.

    Raises:
        ConfigError: A file, variable or flag is wrong; the error lists every problem.
        UsageError: The workspace is not a folder.
    """
    workspace, given = workspace_of(flags, recorded), flags.values
    if recorded is None:
        return load(home, workspace, given, os.environ)
    said = {name for name, value in given.items() if value is not None}
    if flags.posture:
        settings = load(home, workspace, given, os.environ).settings
        said |= {name for name, setting in settings.items() if setting.origin.endswith(_POSTURE_ORIGIN)}
    kept = {name: value for name, value in _written(recorded).items() if name not in said}
    if recorded.policy.sandboxed == "allow" and _nobody_says(_SANDBOXED, home, workspace, given):
        kept[_SANDBOXED] = "allow"  # a posture of an earlier command said it
    config = load(home, workspace, {**given, **kept}, os.environ)
    is_capped = config.settings[_COST].layer == "admin"
    if recorded.limits.is_cost_set or _COST in said or is_capped:
        return config
    # The session has no cost limit of its own, and the files of today do not apply to it.
    cost = recorded.limits.cost_microusd
    return replace(config, limits=replace(config.limits, cost_microusd=cost, is_cost_set=False))


def _nobody_says(key: str, home: Home, workspace: Path, given: Mapping[str, object]) -> bool:
    return load(home, workspace, given, os.environ).settings[key].layer == "default"


def _written(recorded: Settings) -> dict[str, object]:
    """Return recorded settings as flags would give them. Only a cost limit that somebody set counts."""
    limits = recorded.limits
    written: dict[str, object] = {
        "autonomy": recorded.posture.autonomy,
        "approve_by": recorded.posture.approve_by,
        "max_output_tokens": recorded.model.max_output_tokens,
        "limits.turns": limits.turns,
        "limits.tokens": limits.tokens,
        "limits.wall": limits.wall_s,
        "limits.idle": limits.idle_s,
        "limits.tool_calls": limits.tool_calls if limits.tool_calls < NO_TOOL_CALL_LIMIT else None,
        "limits.request": limits.request_s,
        "limits.call_usd": usd(limits.call_microusd) if limits.call_microusd else None,
        "repeat.note": recorded.guard.repeat_note,
        "repeat.stop": recorded.guard.repeat_stop,
        **{f"repair.{name}": getattr(recorded.guard.repairs, name) for name in Repairs.__struct_fields__},
        **{key: getattr(recorded.context, name) for key, name in CONTEXT.items()},
        **{key: getattr(recorded.conduct, name) for key, name in CONDUCT.items()},
        **{key: getattr(recorded.model, name) for key, name in RETRY.items()},
        **_side_models(recorded),
        "guard.stall_turns": recorded.guard.stall_turns,
        "guard.wait_s": recorded.guard.wait_s,
    }
    return {**written, _COST: usd(limits.cost_microusd)} if limits.is_cost_set else written


def _side_models(recorded: Settings) -> dict[str, object]:
    models = {
        "compaction.model": recorded.context.compact_model,
        "reflection.model": recorded.conduct.reflection_model,
    }
    return {key: model.name for key, model in models.items() if model is not None}


def _known(past: ModelFacts | None, asked: ModelFacts | None) -> ModelFacts | None:
    """Return the model that is asked for, as it was recorded if it is the same."""
    return past if past is not None and asked is not None and past.name == asked.name else asked


def chosen(
    app: App, flags: RunFlags, recorded: Settings | None, *, is_terminal: bool, copy: Path | None = None
) -> Chosen:
    """Return the settings of a run, with warnings for the user. The app has the configuration of `configured`.

    `copy`: a copy of the workspace, in which the run works; None: the one in which the session works, if it does.

    Raises:
        UsageError: No model, unknown provider, a cost limit without a price, or an unreadable instruction file.
    """
    past = recorded
    if past is not None and (not flags.model or app.facts(flags.model).name == past.model.facts.name):
        model = past.model.facts.name
    else:
        model = flags.model or ""
    workspace = workspace_of(flags, past)
    if copy is None and past is not None and past.tools.copy_of:
        copy = Path(past.tools.workspace)
    fresh = app.settings(
        copy or workspace,
        model=model,
        instructions=_instructions(flags.system)
        if flags.system
        else past.prompt.instructions
        if past
        else "",
        allow_tools=_tools("--allow-tool", flags.allow_tool, past.tools.allow_tools if past else (), app),
        deny_tools=_tools("--deny-tool", flags.deny_tool, past.tools.deny_tools if past else (), app),
        schema=_schema(flags.output_schema) if flags.output_schema else past.output.schema if past else "",
        is_terminal=is_terminal,
    )
    only_from_elsewhere(fresh.settings.policy.walls.write)
    needs_plan = flags.needs_plan or (past is not None and past.conduct.needs_plan)
    copy_of = str(workspace) if copy is not None else ""
    settings = changed(fresh.settings, needs_plan=needs_plan, copy_of=copy_of)
    if needs_plan and not offers(UPDATE_PLAN, settings):
        raise UsageError(
            f"--plan: The tool {UPDATE_PLAN} is not allowed, so there could never be a plan.",
            hint=f"Allow it: --allow-tool {UPDATE_PLAN}. Or leave --plan out.",
        )
    if past is None:
        return Chosen(settings, fresh.warnings)
    settings = changed(
        settings,
        reflection_model=_known(past.conduct.reflection_model, settings.conduct.reflection_model),
        compact_model=_known(past.context.compact_model, settings.context.compact_model),
        facts=facts_to_go_on(past.model.facts, fresh.settings.model.facts, flags),
        sections=past.prompt.sections,
        zone=past.prompt.zone,
        is_streaming=past.model.is_streaming,
        approval_deadline_s=past.posture.approval_deadline_s,
    )
    return Chosen(settings, fresh.warnings)


def facts_to_go_on(past: ModelFacts, fresh: ModelFacts, flags: RunFlags) -> ModelFacts:
    """Return what is known about the model: for the same one what was recorded, except for an effort that is new."""
    if fresh.name != past.name:
        return fresh
    options = replace(past.options, effort=fresh.options.effort) if flags.effort else past.options
    return replace(past, options=options)


def _tools(flag: str, given: list[str] | None, recorded: tuple[str, ...], app: App) -> tuple[str, ...]:
    """Return the globs of the flag, or else the recorded ones.

    Raises:
        UsageError: A glob matches no tool. Without the error, a misspelled --deny-tool would deny nothing.
    """
    if not given:
        return recorded
    names = [spec.name for spec in specs_of(app.config)]
    for glob in given:
        if not fnmatch.filter(names, glob):
            near = difflib.get_close_matches(glob, names, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else "`holdfast tools` lists them."
            raise UsageError(f"{flag} {glob} matches no tool.", hint=hint)
    return tuple(given)


def _schema(file: str) -> str:
    """Return the JSON Schema in a file, as settings store it."""
    hint = "Name a file with one JSON Schema."
    try:
        return schema_text(decode_exact(read_text(expanded(file), TEXT_MAX_BYTES)))
    except Unreadable as error:
        raise UsageError(f"--output-schema {file} {error}.", hint=hint) from None
    except msgspec.DecodeError as error:
        raise UsageError(f"--output-schema {file} is not JSON: {error}.", hint=hint) from None
    except UsageError as error:
        raise UsageError(f"--output-schema {file}: {error.message}", hint=hint) from None


def _instructions(file: str) -> str:
    try:
        return read_text(expanded(file), TEXT_MAX_BYTES)
    except Unreadable as error:
        raise UsageError(f"--system {file} {error}.", hint="Name a text file.") from None
