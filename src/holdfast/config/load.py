"""Merges flags, environment, project file, user file and defaults into one Config, within the admin files.

    flag > environment > project holdfast.toml > user config.toml > default;   the admin files cap them all

A posture counts as part of the layer that names it, just below that layer's own values. A project file may tighten,
and may set more once it is trusted (`keys.Project`); other values are ignored with a warning. All problems of all
sources are reported at once.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from holdfast.config import secrets
from holdfast.config.hooks import Owners, check_hooks, hooks_of, owners
from holdfast.config.keys import KEYS
from holdfast.config.paths import ADMIN_FILE, PROJECT_FILE, Home, admin_files
from holdfast.config.postures import POSTURES
from holdfast.config.services import wrong_names
from holdfast.config.settings import DEFAULT_ORIGIN, HOOKS, Config, Ignored, Layer, Setting, build
from holdfast.config.sources import (
    NEAR,
    Given,
    Source,
    from_environment,
    from_file,
    from_flags,
    from_table,
    written,
)
from holdfast.config.trust import is_trusted
from holdfast.errors import ConfigError
from holdfast.protocol.ids import SECRET_NAME, SECRET_NAME_IS
from holdfast.protocol.known_rules import unknown_tool_in
from holdfast.protocol.rules import Layer as RuleLayer
from holdfast.protocol.rules import PolicyRule

_LISTED_KEYS = 5
_NAMES_TOOLS = frozenset(
    {"policy.deny", "policy.ask", "policy.allow", "tools.allow", "tools.deny", "hooks.*.tools"}
)
_AND = " and "
"""Between the origins of a value to which several sources add."""
UNSAFE = (
    'Commands run with your own permissions, and no sandbox confines them, as [sandbox] mode = "unsafe" says.'
)
"""The warning of a configuration without a sandbox. Only a person can want that, and reads it in every run."""


def load(
    home: Home,
    workspace: Path | None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    machine_file: Path = ADMIN_FILE,
) -> Config:
    """Return the settings for a run in a workspace.

    `flags` are values by dotted key (`{"limits.turns": 5}`); None means not given. `machine_file` is the
    administrator's file.

    Raises:
        ConfigError: lists every problem of every source.
    """
    problems: list[str] = []
    sources = _sources(home, workspace, flags, environ, machine_file, problems)
    return _merge(sources, problems, workspace)


def load_only(source: Path | Mapping[str, Any], over: Mapping[str, Any] | None = None) -> Config:
    """Return the settings of one file, or one dict with the keys of config.toml, and nothing else.

    `over` is another such dict, set in code. It overrides the source.

    Raises:
        ConfigError: lists every problem; also if the file does not exist.
    """
    problems: list[str] = []
    if isinstance(source, Path):
        if not os.path.exists(source):  # noqa: PTH110 - `Path.exists` raises for a long name
            problems.append(f"{source}: there is no such file")
        given = from_file("user", source, problems)
    else:
        given = from_table("user", source, "config", problems)
    return _merge([given, from_table("flags", over or {}, "in code", problems)], problems)


class Change(NamedTuple):
    """One value of a project file, and whether it counts."""

    key: str
    value: Any
    """The new value as it is in a file; `now` has the same form."""
    now: Any
    """The value without it, or None."""
    counts: Literal["already", "trusted", "never", "overruled"]
    """`already`: counts with and without trust. `trusted`: counts with trust. `never`: counts in no project file.
    `overruled`: another source overrides it.
    """
    why: str = ""
    """Why it does not count."""


class Proposal(NamedTuple):
    """A project file, shown to the person who may trust it."""

    sha256: str
    """The hash of the content that the changes were read from."""
    is_trusted: bool
    changes: tuple[Change, ...]


def proposal(
    home: Home, file: Path, environ: Mapping[str, str], *, machine_file: Path = ADMIN_FILE
) -> Proposal:
    """Return what a project file would change if it were trusted.

    Raises:
        ConfigError: lists every problem of every source.
    """
    problems: list[str] = []
    sources = _sources(home, file.parent, {}, environ, machine_file, problems)
    project = next(source for source in sources if source.layer == "project")

    def merged(said: Source) -> Config:
        return _merge([said if source is project else source for source in sources], problems, file.parent)

    without = merged(project._replace(given=()))
    before, after = merged(project._replace(is_trusted=False)), merged(project._replace(is_trusted=True))
    ignored = {each.origin: each for each in reversed(after.ignored)}
    changes = tuple(_change(given, without, before, after, ignored) for given in project.given)
    return Proposal(project.sha256, project.is_trusted, changes)


def _change(
    given: Given, without: Config, before: Config, after: Config, ignored: Mapping[str, Ignored]
) -> Change:
    def counts_in(config: Config) -> bool:
        setting = config.settings.get(given.name)
        return setting is not None and given.origin in setting.origin.split(_AND)

    other = without.settings.get(given.name)
    now = given.key.kind.write(other.value) if other is not None else None
    if counts_in(before):
        return Change(given.name, given.shown, now, "already")
    if counts_in(after):
        return Change(given.name, given.shown, now, "trusted")
    if (refused := ignored.get(given.origin)) is not None:
        return Change(given.name, given.shown, now, "never", refused.why)
    by = after.settings.get(given.name)
    why = f"{by.origin} overrides it" if by is not None else "another file has a hook of this name"
    return Change(given.name, given.shown, now, "overruled", why)


# --- merging ------------------------------------------------------------------------------------


def _sources(
    home: Home,
    workspace: Path | None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    machine_file: Path,
    problems: list[str],
) -> list[Source]:
    """Return all sources, lowest precedence first."""
    sources = [from_file("user", home.user_file, problems)]
    if workspace is not None:
        file = workspace / PROJECT_FILE
        project = from_file("project", file, problems)
        sources.append(project._replace(is_trusted=is_trusted(home, file, project.sha256)))
    sources += [from_environment(environ, problems), from_flags(flags, problems)]
    sources += [from_file("admin", file, problems) for file in admin_files(environ, machine_file)]
    return sources


def _merge(sources: list[Source], problems: list[str], workspace: Path | None = None) -> Config:
    settings = {
        key.path: Setting(key.default, DEFAULT_ORIGIN, "default") for key in KEYS if key.default is not None
    }
    names = {key.path: tuple(key.path.split(".")) for key in KEYS}
    warnings: list[str] = []
    unknown: list[str] = []
    ignored: list[Ignored] = []
    postures = _postures(sources)
    check_hooks(sources, problems)
    _check_secrets(sources, problems)
    owned = owners(sources)
    for number, source in enumerate(sources):
        for given in (*_posture(source, postures, problems), *source.given):
            names[given.name] = given.segments
            before = settings.get(given.name)
            if source.layer != "project" and (taken := owned.taken(given, number, source)):
                warnings += [taken] if taken not in warnings else []
                continue
            match source.layer:
                case "project":
                    refused = _refused(given, before, owned, is_trusted=source.is_trusted)
                    ignored += refused
                    if refused or _is_in_force(given, before):
                        continue
                case "admin":
                    if not _is_capping(given, before, warnings):
                        continue
            settings[given.name] = _set(given, before, source.layer)
            unknown += _unknown_tools(given)
    problems += wrong_names(names, {key: setting.origin for key, setting in settings.items()})
    _check_order(settings, "repeat.note", "repeat.stop", problems)
    _check_order(settings, "compaction.to", "compaction.at", problems)
    if settings["sandbox.mode"].value == "unsafe":
        warnings.append(UNSAFE)
    if workspace is not None and not settings["tools.packages"].value:  # else other tools may come
        warnings += unknown
    if problems:
        raise ConfigError(problems, hint="`holdfast config schema` prints every key and its allowed values.")
    told = (*_told(ignored), *warnings)
    return replace(
        build(settings, names, hooks_of(settings, names, workspace)), ignored=tuple(ignored), warnings=told
    )


def _check_secrets(sources: Iterable[Source], problems: list[str]) -> None:
    """Check that every secret has a name that can be stored, and a variable of its own."""
    variables: dict[str, str] = {}
    for given in (each for source in sources for each in source.given if each.segments[0] == secrets.SECTION):
        name = given.segments[1]
        if not re.fullmatch(SECRET_NAME, name):
            told = (
                f"{given.origin}: [{written(given.segments[:2])}]: the name of a secret is {SECRET_NAME_IS}"
            )
            problems += [told] if told not in problems else []
        if given.segments[2] == "env" and variables.setdefault(given.value, name) != name:
            problems.append(
                f"{given.origin}: {given.name} = {given.value!r}: the secret {variables[given.value]} has it"
            )


def _unknown_tools(given: Given) -> Iterator[str]:
    """Return a warning for each rule about a tool that Holdfast does not have."""
    if given.key.path not in _NAMES_TOOLS:
        return
    for each in given.value:
        text = each.text if isinstance(each, PolicyRule) else each
        if tool := unknown_tool_in(text):
            yield (
                f"{given.origin}: {given.name}: {text} matches nothing: Holdfast has no tool {tool}. It counts only "
                f"if a program or server brings one; a rule about a program is shell({tool} *)."
            )


def _set(given: Given, before: Setting | None, layer: Layer) -> Setting:
    """Return what a value makes of a setting: it takes its place, or adds to it."""
    if not given.key.adds:
        value, order = given.value, given.key.order
        if layer == "admin" and order is not None and before is not None:
            value = order.common(before.value, value)
        return Setting(value, given.origin, layer)
    named: RuleLayer = layer if layer in ("admin", "project") else "user"
    known = before.value if before is not None else ()
    texts = {rule.text for rule in known}
    more = [replace(rule, layer=named) for rule in given.value if rule.text not in texts]
    origins = [before.origin] if before is not None and known else []
    return Setting((*known, *more), _AND.join([*origins, given.origin]), layer)


def _check_order(settings: Mapping[str, Setting], lower: str, higher: str, problems: list[str]) -> None:
    """Check that the value of one key is less than that of another."""
    less, more = settings[lower], settings[higher]
    if less.value >= more.value:
        told = f"{lower} = {less.value} must be less than {higher} = {more.value}"
        where = [setting.origin for setting in (less, more) if setting.layer != "default"]
        problems.append(f"{' and '.join(where)}: {told}")


def _postures(sources: list[Source]) -> dict[str, list[tuple[str, Any]]]:
    """Return all postures that can be chosen, as values by key path."""
    postures = {name: list(values.items()) for name, values in POSTURES.items()}
    for source in sources:
        if source.layer == "user":
            own: dict[str, list[tuple[str, Any]]] = {}
            for given in source.given:
                if given.segments[0] == "postures":
                    own.setdefault(given.segments[1], []).append((".".join(given.segments[2:]), given.value))
            postures |= own
    return postures


def _posture(
    source: Source, postures: Mapping[str, list[tuple[str, Any]]], problems: list[str]
) -> list[Given]:
    """Return the values of the posture that a source names."""
    chosen = next((given for given in source.given if given.key.path == "posture"), None)
    if chosen is None or source.layer in ("project", "admin"):
        return []
    if chosen.value not in postures:
        near = get_close_matches(chosen.value, postures, n=1, cutoff=NEAR)
        told = f"; did you mean {near[0]}?" if near else f"; choose one of {', '.join(sorted(postures))}"
        problems.append(f"{chosen.origin}: posture = {chosen.value!r}: there is no such posture{told}")
        return []
    origin = f"posture {chosen.value} ({chosen.origin})"
    keys = {key.path: key for key in KEYS}
    values = postures[chosen.value]
    return [Given(keys[path], tuple(path.split(".")), value, origin) for path, value in values]


# --- what a file may say ------------------------------------------------------------------------


def _refused(given: Given, before: Setting | None, owned: Owners, *, is_trusted: bool) -> list[Ignored]:
    """Return why a value of a project file does not count, as a reason; empty if it counts."""
    key = given.key
    barred = key.barred(given.value) if key.barred is not None else owned.barred(given)
    needs_trust = False
    if barred:
        why = barred
    elif _tightens(given, before):
        return []
    elif key.project == "trust":
        if is_trusted or _is_in_force(given, before):
            return []
        why, needs_trust = f"may set it only after `{_trusting(given.origin)}`", True
    elif key.strictness is not None and before is not None:
        why = f"may only tighten, and {key.kind.write(before.value)} is already set"
    elif key.strictness is not None:
        why = "may only tighten"
    else:
        why = "may not set it"
    return [Ignored(given.name, given.shown, given.origin, why, needs_trust)]


def _trusting(origin: str) -> str:
    """Return the command that trusts the file of a value."""
    return f"holdfast trust {shlex.quote(origin.rpartition(':')[0])}"


def _is_in_force(given: Given, before: Setting | None) -> bool:
    """Return whether the value is already in force, so that setting it again changes nothing."""
    if before is not None and given.key.adds:
        return {rule.text for rule in given.value} <= {rule.text for rule in before.value}
    return before is not None and before.value == given.value


def _tightens(given: Given, before: Setting | None) -> bool:
    if given.key.adds:
        return given.key.adds == "stricter"
    if given.key.order is not None:
        old = before.value if before is not None else given.key.default
        return old != given.value and given.key.order.is_within(given.value, old)
    strictness = given.key.strictness
    if strictness is None:
        return False
    return strictness(given.value) > strictness(before.value if before is not None else given.key.default)


def _is_capping(given: Given, before: Setting | None, warnings: list[str]) -> bool:
    """Return whether a value of an admin file tightens a setting."""
    if given.key.adds == "stricter" or given.segments[0] == HOOKS:
        return True
    if given.key.order is not None and before is not None:
        if given.key.order.is_within(before.value, given.value):
            return False
    elif given.key.strictness is None:
        warnings.append(f"{given.origin}: {given.name} is ignored: an admin file may only tighten.")
        return False
    if given.key.order is None and not _tightens(given, before):
        return False
    if before is not None and before.layer != "default":
        warnings.append(f"{before.origin}: {given.name} is capped at {given.shown} by {given.origin}.")
    return True


def _told(ignored: Iterable[Ignored]) -> list[str]:
    """Return sentences about the ignored values of a project file. All that need trust share one sentence."""
    ignored = list(ignored)
    waiting = [each for each in ignored if each.needs_trust]
    told = []
    if waiting:
        file, how = waiting[0].origin.rpartition(":")[0], _trusting(waiting[0].origin)
        keys = ", ".join(dict.fromkeys(each.key for each in waiting[:_LISTED_KEYS]))
        more = f" and {len(waiting) - _LISTED_KEYS} more" if len(waiting) > _LISTED_KEYS else ""
        told.append(
            f"{file} is not trusted, so it does not set {keys}{more}; `{how}` shows and accepts them."
        )
    told += [
        f"{each.origin}: {each.key} is ignored: a project file {each.why}."
        for each in ignored
        if not each.needs_trust
    ]
    return told
