"""Merges flags, environment, project file, user file and defaults into one Config, under the admin file.

    flag > environment > project holdfast.toml > user config.toml > default;   the admin file caps them all

A posture counts as the layer that names it, just under that layer's own values. A project file may only make
things stricter; what it may not say is ignored with a warning. All problems of all sources are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.config.keys import KEYS, POSTURES, REFUSED, Key
from holdfast.config.paths import PROJECT_FILE, Home, admin_file
from holdfast.config.settings import DEFAULT_ORIGIN, Config, Setting, build
from holdfast.config.toml import Dotted, Entry, Unreadable, flatten, read_toml
from holdfast.errors import ConfigError
from holdfast.redact import make_redactor

_SHOWN_CHARS = 60
_NEAR = 0.6
_SECTIONS = frozenset(
    tuple(key.path.split(".")[:depth]) for key in KEYS for depth in range(1, key.path.count(".") + 1)
)
_redact = make_redactor()


class _Given(NamedTuple):
    """A valid value of one source."""

    key: Key
    parts: Dotted
    """The key with the names that the user chose."""
    value: Any
    origin: str

    @property
    def name(self) -> str:
        return written(self.parts)


class _Source(NamedTuple):
    """What one source says, checked."""

    kind: Literal["user", "project", "environment", "flags", "admin"]
    given: tuple[_Given, ...]


def load(
    home: Home, workspace: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]
) -> Config:
    """The settings for a run in a workspace.

    `flags` are values by dotted key (`{"limits.turns": 5}`); None counts as not given.

    Raises:
        ConfigError: with every problem of every source.
    """
    problems: list[str] = []
    project_file = workspace / PROJECT_FILE if workspace else None
    sources = [
        _Source("user", _read_file(home.user_file, problems)),
        _Source("project", _read_file(project_file, problems) if project_file else ()),
        _Source("environment", _read_environment(environ, problems)),
        _Source("flags", _read_flags(flags, problems)),
        _Source("admin", _read_file(admin_file(environ), problems)),
    ]
    return _merge(sources, problems)


def load_only(source: Path | Mapping[str, Any], over: Mapping[str, Any] | None = None) -> Config:
    """The settings of one file or one dict with the keys of config.toml, and of nothing else.

    `over` is such a dict too and goes before the source: what is said in code.

    Raises:
        ConfigError: with every problem; also when the file does not exist.
    """
    problems: list[str] = []
    if isinstance(source, Path):
        if not source.exists():
            problems.append(f"{source}: no such file")
        given = _read_file(source, problems)
    else:
        given = tuple(_check(flatten(source), "config", problems))
    said = tuple(_check(flatten(over or {}), "in code", problems))
    return _merge([_Source("user", given), _Source("flags", said)], problems)


def written(parts: Dotted) -> str:
    """A dotted key as one writes it into TOML."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in parts)


# --- reading ------------------------------------------------------------------------------------


def _read_file(path: Path, problems: list[str]) -> tuple[_Given, ...]:
    try:
        entries = read_toml(path)
    except Unreadable as error:
        problems.append(str(error))
        return ()
    return tuple(_check(entries or (), str(path), problems))


def _read_environment(environ: Mapping[str, str], problems: list[str]) -> tuple[_Given, ...]:
    given = []
    for key in KEYS:
        if key.variable and environ.get(key.variable):
            said = key.kind.from_text(environ[key.variable])
            given += _value(key, tuple(key.path.split(".")), said, key.variable, problems)
    return tuple(given)


def _read_flags(flags: Mapping[str, object], problems: list[str]) -> tuple[_Given, ...]:
    given: list[_Given] = []
    for path, value in flags.items():
        key = next((key for key in KEYS if key.path == path), None)
        if key is None:
            problems.append(f"{path}: no such setting")
        elif value is not None:
            said = key.kind.from_text(value)
            given += _value(key, tuple(path.split(".")), said, key.flag or path, problems)
    return tuple(given)


def _check(entries: Iterable[Entry], source: str, problems: list[str]) -> Iterable[_Given]:
    told: set[Dotted] = set()
    for entry in entries:
        where = _where(source, entry.lines[-1])
        key = next((key for key in KEYS if _fits(key.path, entry.key)), None)
        section = _unknown_section(entry)
        if key:
            yield from _value(key, entry.key, entry.value, where, problems)
        elif section:
            if section not in told:  # once for all of its keys
                where = _where(source, entry.lines[len(section) - 1])
                problems.append(f"{where}: {_no_section(section)}")
            told.add(section)
        elif not (entry.value == {} and _is_section(entry.key)):
            problems.append(f"{where}: {written(entry.key)}: {_why_not(entry)}")


def _where(source: str, line: int) -> str:
    return f"{source}:{line}" if line else source


def _value(key: Key, parts: Dotted, value: object, where: str, problems: list[str]) -> list[_Given]:
    try:
        return [_Given(key, parts, key.kind.read(value), where)]
    except (ValueError, OverflowError):
        shown = _redact(repr(value))
        shown = shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "..."
        problems.append(f"{where}: {written(parts)} = {shown}: must be {key.kind.allowed}")
        return []


def _fits(path: str, parts: Dotted) -> bool:
    pattern = path.split(".")
    return len(pattern) == len(parts) and all(
        p in ("*", part) for p, part in zip(pattern, parts, strict=True)
    )


def _is_section(parts: Dotted) -> bool:
    return any(
        len(section) == len(parts) and all(s in ("*", p) for s, p in zip(section, parts, strict=True))
        for section in _SECTIONS
    )


def _unknown_section(entry: Entry) -> Dotted:
    """The outermost section around the entry, or the empty section that it is, that there is none of."""
    if _refusal(entry.key):
        return ()
    depth = len(entry.key) + (entry.value == {})
    return next((entry.key[:n] for n in range(1, depth) if not _is_section(entry.key[:n])), ())


def _no_section(section: Dotted) -> str:
    if any(_fits(key.path, section) for key in KEYS):
        return f"{written(section)} is a value, not a section"
    above, name = section[:-1], section[-1]
    known = sorted({each[-1] for each in _SECTIONS if _is_section((*above, each[-1])) and each[-1] != "*"})
    near = get_close_matches(name, known, n=1, cutoff=_NEAR)
    told = (
        f"did you mean [{written((*above, near[0]))}]?" if near else f"there are {', '.join(known) or 'none'}"
    )
    return f"there is no section [{written(section)}]; {told}"


def _refusal(parts: Dotted) -> str:
    return next((reason for path, reason in REFUSED.items() if _fits(path, parts)), "")


def _why_not(entry: Entry) -> str:
    refusal = _refusal(entry.key)
    if refusal:
        return refusal
    if _is_section(entry.key):
        return f"is a section, not a value; write [{written(entry.key)}]"
    near = _nearest(entry.key)
    return "there is no such key" + (f"; did you mean {near}?" if near else "")


def _nearest(parts: Dotted) -> str:
    """The known key whose whole path, last word or flag is most like the unknown one; empty when none is."""
    names = {key.path: key.path for key in KEYS if "*" not in key.path}
    if len(parts) > 1:
        chosen = written(parts[1:2])
        names |= {path: path for path in (key.path.replace("*", chosen) for key in KEYS)}

    near = get_close_matches(".".join(parts), names, n=1, cutoff=_NEAR)
    if not near:
        names = {key.path.rpartition(".")[2]: key.path for key in KEYS if "*" not in key.path}
        names |= {key.flag.lstrip("-").replace("-", "_"): key.path for key in KEYS if key.flag}
        near = get_close_matches(parts[-1], names, n=1, cutoff=_NEAR)
    return names[near[0]] if near else ""


# --- merging ------------------------------------------------------------------------------------


def _merge(sources: list[_Source], problems: list[str]) -> Config:
    settings = {key.path: Setting(key.default, DEFAULT_ORIGIN) for key in KEYS if key.default is not None}
    names = {key.path: tuple(key.path.split(".")) for key in KEYS}
    warnings: list[str] = []
    postures = _postures(sources)
    for source in sources:
        for given in (*_posture(source, postures, problems), *source.given):
            names[given.name] = given.parts
            _apply(given, source, settings, warnings)
    note, stop = settings["repeat.note"], settings["repeat.stop"]
    if note.value >= stop.value:
        told = f"repeat.note = {note.value} must be less than repeat.stop = {stop.value}"
        where = [setting.origin for setting in (note, stop) if setting.origin != DEFAULT_ORIGIN]
        problems.append(f"{' and '.join(where)}: {told}")
    if settings["sandbox.mode"].origin == DEFAULT_ORIGIN:
        warnings.append(
            "Tools run with your own rights, there is no sandbox yet;"
            ' [sandbox] mode = "unsafe" in the configuration accepts that.'
        )
    if problems:
        raise ConfigError(problems, hint="`holdfast config schema` prints every key and what it may be.")
    return build(settings, names, warnings)


def _postures(sources: list[_Source]) -> dict[str, list[tuple[str, Any]]]:
    """All postures that may be chosen, as values by key path."""
    postures = {name: list(values.items()) for name, values in POSTURES.items()}
    for source in sources:
        if source.kind == "user":
            own: dict[str, list[tuple[str, Any]]] = {}
            for given in source.given:
                if given.parts[0] == "postures":
                    own.setdefault(given.parts[1], []).append((".".join(given.parts[2:]), given.value))
            postures |= own
    return postures


def _posture(
    source: _Source, postures: Mapping[str, list[tuple[str, Any]]], problems: list[str]
) -> list[_Given]:
    """The values of the posture that a source names."""
    chosen = next((given for given in source.given if given.key.path == "posture"), None)
    if chosen is None or source.kind in ("project", "admin"):
        return []
    if chosen.value not in postures:
        near = get_close_matches(chosen.value, postures, n=1, cutoff=_NEAR)
        told = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(postures))}"
        problems.append(f"{chosen.origin}: posture = {chosen.value!r}: there is no such posture{told}")
        return []
    origin = f"posture {chosen.value} ({chosen.origin})"
    keys = {key.path: key for key in KEYS}
    values = postures[chosen.value]
    return [_Given(keys[path], tuple(path.split(".")), value, origin) for path, value in values]


def _apply(given: _Given, source: _Source, settings: dict[str, Setting], warnings: list[str]) -> None:
    """Set the value, unless its source may not say that."""
    before = settings.get(given.name)
    match source.kind:
        case "project" if given.key.project != "free":
            refusal = _why_not_tightened(given, before)
            if refusal:
                warnings.append(f"{given.origin}: {given.name} is ignored: a project file {refusal}.")
                return
        case "admin":
            if given.key.strictness is None:
                warnings.append(f"{given.origin}: {given.name} is ignored: the admin file only tightens.")
                return
            if _why_not_tightened(given, before):
                return
            if before is not None and before.origin != DEFAULT_ORIGIN:
                cap = given.key.kind.write(given.value)
                warnings.append(f"{before.origin}: {given.name} is capped at {cap} by {given.origin}.")
    settings[given.name] = Setting(given.value, given.origin)


def _why_not_tightened(given: _Given, before: Setting | None) -> str:
    """Why a file that may only tighten may not say this; empty when it may."""
    strictness = given.key.strictness
    if strictness is None:
        return "may not set it until it is trusted"
    if before is None or strictness(given.value) > strictness(before.value):
        return ""
    return f"may only tighten, and {given.key.kind.write(before.value)} holds already"
