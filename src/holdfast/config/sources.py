"""Reads each source of settings, checks it against the table of keys, and reports problems in sentences.

`load` has the precedence of the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.config.keys import KEYS, REFUSED, Key
from holdfast.config.settings import HOOKS, Layer
from holdfast.config.toml import Dotted, Entry, NotToml, flatten, read_toml
from holdfast.config.values import Wrong
from holdfast.redact import make_redactor

NEAR = 0.6
_SHOWN_CHARS = 60
_SECTIONS = frozenset(
    tuple(key.path.split(".")[:depth]) for key in KEYS for depth in range(1, key.path.count(".") + 1)
)
_redact = make_redactor()


class Given(NamedTuple):
    """A valid value of one source."""

    key: Key
    segments: Dotted
    """The key with the names that the user chose."""
    value: Any
    origin: str

    @property
    def name(self) -> str:
        return written(self.segments)

    @property
    def shown(self) -> Any:
        """The value as in a file."""
        return self.key.kind.write(self.value)


class Source(NamedTuple):
    """The values of one source, checked."""

    layer: Layer
    given: tuple[Given, ...]
    sha256: str = ""
    """The hash of the file; empty if the source is not a file."""
    is_trusted: bool = False
    """Whether exactly this project file is trusted."""


def written(segments: Dotted) -> str:
    """Return a dotted key as in TOML. A name that the user chose cannot end its line, or hide a part of it."""
    return ".".join(each if re.fullmatch(r"[A-Za-z0-9_-]+", each) else _quoted(each) for each in segments)


def _quoted(name: str) -> str:
    shown = [char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in name]
    return f'"{"".join(shown)}"'


def from_file(layer: Layer, path: Path, problems: list[str]) -> Source:
    """Return the values of a file; none if it does not exist."""
    try:
        table = read_toml(path)
    except NotToml as error:
        problems.append(str(error))
        return Source(layer, ())
    if table is None:
        return Source(layer, ())
    return Source(layer, tuple(_checked(table.entries, str(path), problems)), table.sha256)


def from_table(layer: Layer, table: Mapping[str, Any], name: str, problems: list[str]) -> Source:
    """Return the values of a dict that has the keys of a file. Messages call it `name`."""
    return Source(layer, tuple(_checked(flatten(table), name, problems)))


def from_environment(environ: Mapping[str, str], problems: list[str]) -> Source:
    """Return the values of environment variables."""
    given: list[Given] = []
    for key in KEYS:
        if key.variable and environ.get(key.variable):
            said = key.kind.from_text(environ[key.variable])
            given += _value(key, tuple(key.path.split(".")), said, key.variable, problems)
    return Source("environment", tuple(given))


def from_flags(flags: Mapping[str, object], problems: list[str]) -> Source:
    """Return the values of flags, by dotted key. None means not given."""
    given: list[Given] = []
    for path, value in flags.items():
        key = next((key for key in KEYS if key.path == path), None)
        if key is None:
            problems.append(f"{path}: no such setting")
        elif value is not None:
            said = key.kind.from_text(value)
            given += _value(key, tuple(path.split(".")), said, key.flag or path, problems)
    return Source("flags", tuple(given))


def _checked(entries: Iterable[Entry], source: str, problems: list[str]) -> Iterable[Given]:
    told: set[Dotted] = set()
    for entry in entries:
        where = _where(source, entry.lines[-1])
        key = _key_of(entry.key)
        if key:
            yield from _value(key, entry.key, entry.value, where, problems)
        elif section := _unknown_section(entry):
            if section not in told:  # once for all of its keys
                where = _where(source, entry.lines[len(section) - 1])
                problems.append(f"{where}: {_no_section(section)}")
            told.add(section)
        elif entry.value == {} and len(entry.key) > 1 and entry.key[0] == HOOKS:
            problems.append(f"{where}: [{written(entry.key)}] needs on and command")
        elif not (entry.value == {} and _is_section(entry.key)):
            problems.append(f"{where}: {written(entry.key)}: {_why_not(entry)}")


def _where(source: str, line: int) -> str:
    return f"{source}:{line}" if line else source


def _value(key: Key, segments: Dotted, value: object, where: str, problems: list[str]) -> list[Given]:
    try:
        return [Given(key, segments, key.kind.read(value), where)]
    except Wrong as error:
        named = written(segments)
        problems += [f"{where}: {named}: {_shown(each)} {why}" for each, why in error.reasons]
        return []
    except (ValueError, OverflowError):
        problems.append(f"{where}: {written(segments)} = {_shown(value)}: must be {key.kind.allowed}")
        return []


def _shown(value: object) -> str:
    shown = _redact(repr(value))
    return shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "..."


_PLAIN = {tuple(key.path.split(".")): key for key in KEYS if "*" not in key.path}
_PATTERNS = [key for key in KEYS if "*" in key.path]


def _key_of(segments: Dotted) -> Key | None:
    """Return the key with these names; None: no key has them."""
    plain = _PLAIN.get(segments)
    return plain or next((key for key in _PATTERNS if _fits(key.path, segments)), None)


def _fits(path: str, segments: Dotted) -> bool:
    pattern = path.split(".")
    return len(pattern) == len(segments) and all(
        p in ("*", each) for p, each in zip(pattern, segments, strict=True)
    )


def _is_section(segments: Dotted) -> bool:
    return any(
        len(section) == len(segments) and all(s in ("*", p) for s, p in zip(section, segments, strict=True))
        for section in _SECTIONS
    )


def _unknown_section(entry: Entry) -> Dotted:
    """Return the outermost section around the entry that does not exist, or the empty section that the entry is."""
    if _refusal(entry.key):
        return ()
    depth = len(entry.key) + (entry.value == {})
    return next((entry.key[:n] for n in range(1, depth) if not _is_section(entry.key[:n])), ())


def _no_section(section: Dotted) -> str:
    if any(_fits(key.path, section) for key in KEYS):
        return f"{written(section)} is a value, not a section"
    above, name = section[:-1], section[-1]
    known = sorted({each[-1] for each in _SECTIONS if _is_section((*above, each[-1])) and each[-1] != "*"})
    near = get_close_matches(name, known, n=1, cutoff=NEAR)
    told = (
        f"did you mean [{written((*above, near[0]))}]?"
        if near
        else f"the sections are {', '.join(known) or 'none'}"
    )
    return f"there is no section [{written(section)}]; {told}"


def _refusal(segments: Dotted) -> str:
    return next((reason for path, reason in REFUSED.items() if _fits(path, segments)), "")


def _why_not(entry: Entry) -> str:
    refusal = _refusal(entry.key)
    if refusal:
        return refusal
    if _is_section(entry.key):
        return f"is a section, not a value; write [{written(entry.key)}]"
    near = _nearest(entry.key)
    return "there is no such key" + (f"; did you mean {near}?" if near else "")


def _nearest(segments: Dotted) -> str:
    """Return the known key that is most like the unknown one, by whole path, last word or flag; empty if none is
    like it.
    """
    flags = {key.flag.lstrip("-").replace("-", "_"): key.path for key in KEYS if key.flag}
    if len(segments) == 1 and segments[0] in flags:
        return flags[segments[0]]
    names = {key.path: key.path for key in KEYS if "*" not in key.path}
    if len(segments) > 1:
        chosen = written(segments[1:2])
        names |= {path: path for path in (key.path.replace("*", chosen) for key in KEYS)}

    near = get_close_matches(".".join(segments), names, n=1, cutoff=NEAR)
    if not near:
        # `turns = 5` means the limit, which is what people set most.
        ordered = sorted(KEYS, key=lambda key: key.path.startswith("limits."))
        names = {key.path.rpartition(".")[2]: key.path for key in ordered if "*" not in key.path}
        names |= flags
        near = get_close_matches(segments[-1], names, n=1, cutoff=NEAR)
    return names[near[0]] if near else ""
