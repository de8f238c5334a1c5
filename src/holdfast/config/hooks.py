"""The hooks of a configuration: `[hooks.NAME]` as a whole.

A hook belongs to the layer that names it. Hooks of all layers count, those of the administrator first; no file
changes a hook of the layers before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.config.settings import HOOKS, Layer, Setting
from holdfast.config.sources import Given, Source, written
from holdfast.protocol.hooks import Hook, HookSource, digest_of
from holdfast.protocol.rules import Layer as RuleLayer

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RANKS: tuple[RuleLayer, ...] = ("admin", "user", "project")
_PATH_CHARS = 1_000
RUNS = ("command", "python")
"""What a hook runs: one of these."""


def owner(layer: Layer) -> RuleLayer:
    """Return the layer that a hook of this source belongs to."""
    return layer if layer in ("admin", "project") else "user"


class Owners(msgspec.Struct, frozen=True):
    """For each hook, the layer that it belongs to (each admin file is one), and where that layer names it."""

    by_name: Mapping[str, tuple[str, str]]

    def taken(self, given: Given, number: int, source: Source) -> str:
        """Return a warning if the value belongs to a hook of another layer."""
        other = self._other(given, _label(number, source))
        section = written(given.segments[:2])
        return (
            f"{source_of(given)}: [{section}] is ignored: {other} has a hook of this name." if other else ""
        )

    def barred(self, given: Given) -> str:
        """Return why a project file may not set the value; empty if it may."""
        other = self._other(given, "project")
        return f"may not change the hook of {other}" if other else ""

    def _other(self, given: Given, label: str) -> str:
        if given.segments[0] != HOOKS:
            return ""
        owner_label, origin = self.by_name[given.segments[1]]
        return origin if owner_label != label else ""


def owners(sources: Sequence[Source]) -> Owners:
    """Return which layer each hook belongs to: the administrator's first file, then the user, then the project."""
    found: dict[str, tuple[str, str]] = {}
    for rank in reversed(_RANKS):
        for number, source in reversed([*enumerate(sources)]):
            if owner(source.layer) == rank:
                label = _label(number, source)
                found |= {name: (label, _first(keys)) for name, keys in _by_name(source).items()}
    return Owners(found)


def _label(number: int, source: Source) -> str:
    return f"admin {number}" if source.layer == "admin" else owner(source.layer)


def source_of(given: Given) -> str:
    """Return the file of a value."""
    return given.origin.rpartition(":")[0] or given.origin


def _first(keys: Mapping[str, str]) -> str:
    return min(keys.values(), key=_line)


def check_hooks(sources: Iterable[Source], problems: list[str]) -> None:
    """Check that every hook has a name that can be shown, and all that it needs."""
    mentioned = _mentioned(problems)
    for source in sources:
        for name, keys in _by_name(source).items():
            key, where = written((HOOKS, name)), _first(keys)
            if not _NAME.fullmatch(name):
                allowed = "letters, digits, `.`, `_` and `-`, at most 64 characters"
                problems.append(f"{where}: [{key}]: the name of a hook is made of {allowed}")
            if source.layer != "flags":  # a program may change a single key
                missing = _missing(key, keys, mentioned)
                problems += [f"{where}: [{key}] needs {missing}"] if missing else []
            if all(each in keys for each in RUNS):
                problems.append(f"{where}: [{key}] has a command and a python: it can have only one")


def _mentioned(problems: Iterable[str]) -> set[str]:
    """Return the keys of hooks that problems name, also as the nearest one."""
    found: set[str] = set()
    for problem in problems:
        for begun in problem.split(f"{HOOKS}.")[1:]:
            for each in ("on", *RUNS):
                name, dot, _ = begun.partition(f".{each}")
                found |= {f"{HOOKS}.{name}.{each}"} if dot else set()
    return found


def _missing(key: str, keys: Mapping[str, str], mentioned: Collection[str]) -> str:
    """Return what a hook lacks, in words. A value that is wrong is not missing."""
    has_on, has_command, has_python = (each in keys or f"{key}.{each}" in mentioned for each in ("on", *RUNS))
    needs = [] if has_on else ["on"]
    needs += [] if has_command or has_python else ["command"]
    return " and ".join(needs)


def _line(origin: str) -> int:
    line = origin.rpartition(":")[2]
    return int(line) if line.isdigit() else 0


def _by_name(source: Source) -> dict[str, dict[str, str]]:
    """Return where the keys of each hook are said."""
    found: dict[str, dict[str, str]] = {}
    for given in source.given:
        if given.segments[0] == HOOKS:
            found.setdefault(given.segments[1], {})[given.segments[2]] = given.origin
    return found


def hooks_of(
    settings: Mapping[str, Setting], names: Mapping[str, Sequence[str]], workspace: Path | None
) -> tuple[HookSource, ...]:
    """Return the hooks in the order in which they are asked: by layer, then as they are written."""
    keys: dict[str, dict[str, Setting]] = {}
    for key, segments in names.items():
        if segments[0] == HOOKS and key in settings and "*" not in segments:
            keys.setdefault(segments[1], {})[segments[2]] = settings[key]
    whole = {name: said for name, said in keys.items() if "on" in said and not said.keys().isdisjoint(RUNS)}
    hooks = [_hook(name, said, workspace) for name, said in whole.items()]
    return tuple(sorted(hooks, key=lambda each: _RANKS.index(each.hook.layer)))


def _hook(name: str, said: Mapping[str, Setting], workspace: Path | None) -> HookSource:
    values: dict[str, Any] = {key: setting.value for key, setting in said.items()}
    command, python = values.pop("command", ()), values.pop("python", "")
    hook = Hook(name, layer=owner(said["on"].layer), digest=digest_of(command, python), **values)
    hook = replace(hook, files=_files(command, workspace))
    return HookSource(hook, command, python, said["command" if command else "python"].origin)


def _files(command: Sequence[str], workspace: Path | None) -> tuple[str, ...]:
    """Return the files that a command names. A relative path counts from the workspace, where the command runs."""
    named = [Path(workspace or "/", word) for word in command if len(word) <= _PATH_CHARS]
    return tuple([os.path.realpath(path) for path in named if os.path.isfile(path)])  # noqa: PTH113 - long names
