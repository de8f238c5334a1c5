"""Collects the facts that the rules judge, from a call's arguments and from the disk.

It reads only the parameters that the tool's spec declares as paths, commands or URLs. `policy` decides.
"""

# Pathlib resolves `..` before links, which a shell does not.
# ruff: noqa: PTH111, PTH118

from __future__ import annotations

import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.policy.commands import Command, parsed
from holdfast.policy.listed import Program, simple_commands
from holdfast.policy.paths import is_inside, malformed
from holdfast.policy.protected import Access
from holdfast.policy.rules import Facts, PathFact
from holdfast.policy.words import PathWord, words_of
from holdfast.protocol.allowed import EVERYWHERE, AllowedPath, allowed_path_of
from holdfast.protocol.rules import rule_of
from holdfast.protocol.settings import Policy, Settings
from holdfast.protocol.tools import READING, OnInterrupt, ParameterKind, ToolSpec
from holdfast.redact import begin_of
from holdfast.tools.git_folders import place_in_git
from holdfast.tools.moves import folders_there, moves
from holdfast.tools.named import WordFacts
from holdfast.tools.ours import IsOurs, nothing_is_ours
from holdfast.tools.own import OwnPlaces
from holdfast.tools.patch import paths_in
from holdfast.tools.unfit import real
from holdfast.tools.workspace import PathRefused, Root, place

MAX_WORDS = 20_000
"""How many words of a call's commands are examined."""
MAX_PROGRAMS = 5_000
"""How many of its simple commands are compared with the rules of the configuration."""
_MANY_PROGRAMS = frozenset({"busybox", "toybox", "coreutils"})
"""Files that are many programs, each under a name of its own."""


def facts_of(
    spec: ToolSpec,
    values: dict[str, Any],
    settings: Settings,
    own: OwnPlaces,
    is_ours: IsOurs = nothing_is_ours,
    glance: int | None = None,
) -> Facts:
    """Return all facts that the rules judge. The arguments passed the schema.

    Raises:
        LooksLong: more than `glance` names of folders are to be looked at.
    """
    if not spec.kinds:
        return _facts(spec, settings)
    given = _declared(spec, values)
    urls = tuple(_all_texts(given["url"])) if "url" in given else ()
    paths = [*_all_texts(given["path"]), *map(_path_in, urls)] if "path" in given or urls else []
    for text in _all_texts(given["patch"]) if "patch" in given else ():
        paths += paths_in(text)
    access: Access = "read" if spec.effect == "read" else "write"
    workspace = settings.tools.workspace
    root = Root(workspace, own)
    named: dict[str, Any] = {}
    if "command" in given:
        named = _named_by(tuple(_commands(given["command"])), settings, own, is_ours, glance)
    return _facts(
        spec,
        settings,
        paths=tuple([_path_fact(root, path, access) for path in paths if path is not None]),
        allowed=_allowed(settings),
        urls=urls,
        only_asks="method" in given and _only_reads(given["method"]) and "body" not in values,
        **named,
    )


def _facts(spec: ToolSpec, settings: Settings, **more: Any) -> Facts:
    return Facts(
        tool=spec.name,
        effect=spec.effect,
        autonomy=settings.posture.autonomy,
        workspace=settings.tools.workspace,
        is_built_in=spec.source == "builtin",
        allow_tools=settings.tools.allow_tools,
        deny_tools=settings.tools.deny_tools,
        policy=settings.policy,
        **more,
    )


def _named_by(
    texts: tuple[str, ...], settings: Settings, own: OwnPlaces, is_ours: IsOurs, glance: int | None
) -> dict[str, Any]:
    """Return what commands say and name."""
    workspace, walls = settings.tools.workspace, settings.policy.walls
    home = os.environ.get("HOME") or os.path.expanduser("~")
    commands = tuple([parsed(text, home, workspace) for text in texts])
    shown = (
        [[], []] if walls.backend == "unsafe" else [[*map(real, each)] for each in (walls.read, walls.write)]
    )

    def looked(commands: Iterable[Command]) -> tuple[list[PathWord], WordFacts]:
        """Return the words of commands that may be paths, and where they lead."""
        words = list(islice(chain.from_iterable(map(words_of, commands)), MAX_WORDS + 1))
        found = WordFacts(workspace, own, is_ours, glance, *shown)
        found.look_at(dict.fromkeys(words[:MAX_WORDS]))
        return words, found

    words, found = looked(commands)
    if (found.outside or found.unproved) and any(map(moves, commands)):
        there = [folders_there(each, workspace) for each in commands]
        if any(there):
            commands = tuple(
                [parsed(text, home, workspace, known) for text, known in zip(texts, there, strict=True)]
            )
            words, found = looked(commands)
    programs = list(islice(_programs(commands, settings), MAX_PROGRAMS + 1))
    too_many = len(words) > MAX_WORDS or len(programs) > MAX_PROGRAMS
    return {
        "commands": commands,
        "words": tuple(found.paths),
        "beyond": "It has more words than are looked at" if too_many else "",
        "unread": found.unread,
        "unproved": found.unproved or _decoy(commands, workspace),
        "risk": found.risk,
        "outside": found.outside,
        "programs": tuple(programs[:MAX_PROGRAMS]),
    }


def commands_of(spec: ToolSpec, values: dict[str, Any]) -> Iterator[str]:
    """Return the texts that a shell or the program would run as commands. A list of words may be one command."""
    return _commands(_declared(spec, values)["command"])


def _commands(given: Iterable[Any]) -> Iterator[str]:
    for value in given:
        yield from texts(value)
        if isinstance(value, list):
            yield shlex.join(texts(value))


def timeout_of(spec: ToolSpec, values: dict[str, Any]) -> float:
    """Return the time limit of the call in seconds."""
    if not spec.kinds:
        return float(spec.timeout_s)
    said = (value for value in _declared(spec, values)["timeout"] if isinstance(value, int | float))
    return float(min(said, default=spec.timeout_s))


def after_interruption(spec: ToolSpec, values: dict[str, Any]) -> OnInterrupt:
    """Return what to do if the outcome of a call is unknown after a crash."""
    return "rerun" if _only_reads(_declared(spec, values)["method"]) else spec.on_interrupt


def _only_reads(methods: Sequence[Any]) -> bool:
    """Return whether a call is an HTTP request that changes nothing."""
    return bool(methods) and all(isinstance(each, str) and each in READING for each in methods)


def texts(value: object) -> Iterator[str]:
    """Return every text in decoded JSON."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from texts(item)


def _all_texts(given: Iterable[Any]) -> list[str]:
    return [text for value in given for text in texts(value)]


def _declared(spec: ToolSpec, values: dict[str, Any]) -> Mapping[ParameterKind, Sequence[Any]]:
    """Return the arguments of each kind. If one is left out, its default counts."""
    given = defaultdict[ParameterKind, list[Any]](list)
    for name, kind in spec.kinds.items():
        if name in values:
            given[kind].append(values[name])
            continue
        schema = spec.parameters.get("properties", {}).get(name)
        if isinstance(schema, dict) and "default" in schema:
            given[kind].append(schema["default"])
    return given


def _path_in(url: str) -> str | None:
    """Return the path of a `file:` URL; None for every other URL."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme.casefold() == "file" else None


def _allowed(settings: Settings) -> tuple[AllowedPath, ...] | None:
    """Return the allowed paths with every link followed; None if everything in the workspace is allowed."""
    texts, workspace = settings.policy.allowed_paths, settings.tools.workspace
    if texts == (EVERYWHERE,):
        return None
    read = map(allowed_path_of, texts)
    return tuple([each._replace(path=os.path.realpath(os.path.join(workspace, each.path))) for each in read])


def _path_fact(root: Root, given: str, access: Access) -> PathFact:
    try:
        with place(root, given) as found:
            in_git = place_in_git(found.whole, root.folder) if access != "read" else ""
            return PathFact(given, found.whole, "", access, found.own, in_git)
    except PathRefused as refusal:
        return PathFact(given, "", str(refusal), access)
    except OSError as error:
        return PathFact(given, "", f"{given} cannot be reached: {error.strerror or error}.", access)


# --- the programs of commands ---------------------------------------------------------------------


def _programs(commands: Iterable[Command], settings: Settings) -> Iterator[Program]:
    """Return the simple commands with every name of their programs; none if no rule names a program."""
    named = _programs_named(settings.policy)
    if not named:
        return
    workspace = settings.tools.workspace
    files = {name: file_of(name, workspace) for name in named}
    for words in dict.fromkeys(words for command in commands for words in simple_commands(command)):
        word = words[0]
        if word is None:
            yield Program(words, frozenset(), "")
            continue
        if word not in files:
            files[word] = file_of(word, workspace)
        file = files[word]
        names, last = {word, word.rsplit("/", 1)[-1]}, file.rsplit("/", 1)[-1]
        if file and last not in _MANY_PROGRAMS:
            names |= {file, last}
            names.update(name for name in named if files[name] == file)
        yield Program(words, frozenset(names), file)


def _programs_named(policy: Policy) -> list[str]:
    listed = (*policy.deny, *policy.ask, *policy.allow)
    rules = map(rule_of, [rule.text for rule in listed]) if listed else ()
    return list(dict.fromkeys(rule.words[0] for rule in rules if rule.words))


def _decoy(commands: Iterable[Command], workspace: str) -> str:
    """Return the first program that has the name of a known one and lies in the workspace, as a sentence; empty if
    there is no such program. Only a search path with a folder of the workspace can lead to one.
    """
    if not _leads_into(os.environ.get("PATH", ""), workspace):
        return ""
    names = {step.command.words[0].text for each in commands for step in each.simple if step.command.words}
    found = (
        name for name in sorted(names) if "/" not in name and is_inside(workspace, file_of(name, workspace))
    )
    name = next(found, "")
    return f"`{begin_of(name, 80)}` is a program of the workspace here." if name else ""


@lru_cache(maxsize=16)
def _leads_into(searched: str, workspace: str) -> bool:
    return not all(
        each.startswith("/") and not is_inside(workspace, os.path.realpath(each))
        for each in searched.split(os.pathsep)
    )


def file_of(word: str, workspace: str) -> str:
    """Return the file that the shell would run for a word, with every link followed; empty if there is no file."""
    path = os.path.join(workspace, os.path.expanduser(word)) if "/" in word else word
    found = None if malformed(path) else shutil.which(path)
    return os.path.realpath(found) if found else ""
