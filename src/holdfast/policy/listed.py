"""What the rules of the configuration match.

Rules that deny or ask match as much as they can mean: a program by every name that it has, a path by the one that is
given and the one that it leads to. Rules that allow match only literal words.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Literal

import msgspec

from holdfast.policy.commands import Command
from holdfast.policy.protected import Access
from holdfast.policy.simple import OWN_PIPE
from holdfast.protocol.launchers import chooses, is_launcher, may_choose, may_launch
from holdfast.protocol.rules import PolicyRule, Rule, rule_of

_MOST_SUFFIXES = 64
_RUN_TEXTS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "eval", "source", ".", "trap"}
)
"""Launchers that run a text which they read, or are given."""

ONE_FILE = frozenset({"read_file", "write_file", "edit_file", "apply_patch", "list_dir"})
"""The tools that touch the paths that they name and nothing under them."""


Match = Literal["", "may", "is"]
"""Whether a rule matches: not, perhaps (a word is known only when it runs), or for certain."""


class Program(msgspec.Struct, frozen=True):
    """A simple command in the text of a shell."""

    words: tuple[str | None, ...]
    """From the program on, without redirections. None: only known when it runs, and perhaps several words."""
    names: frozenset[str]
    """Every name by which a rule may name the program: as written, its last part, and those of its file."""
    file: str
    """The file of the program, with every link followed; empty if there is no file."""


class Place(msgspec.Struct, frozen=True):
    """A path that a call names: as it is given and where it leads, both absolute, and what is done with it."""

    paths: tuple[str, ...]
    access: Access
    is_resolved: bool
    has_more: bool
    """Whether the call may also touch what lies under it."""


def simple_commands(command: Command) -> Iterator[tuple[str | None, ...]]:
    """Return the words of every simple command, also of those that other programs run. None stands for words that are
    only known when the command runs.
    """
    for step in command.simple:
        words = tuple(
            [word.text if word.is_known and not word.is_glob else None for word in step.command.words]
        )
        if not words:
            continue
        yield words
        if step.uses.asks or step.uses.denies or not (step.uses.inner or step.uses.scripts):
            yield from _launched(words)


def _launched(words: tuple[str | None, ...]) -> Iterator[tuple[str | None, ...]]:
    """Return what a program may run that runs whatever it is given, if the table of programs does not say it: each of
    its words may begin a command.
    """
    if words[0] is None or not may_launch(words[0]) or not _chooses_what_runs(words):
        return
    given = [word for word in words[1:] if word is None or not word.startswith("-")]
    if words[0].rsplit("/", 1)[-1] in _RUN_TEXTS and (not given or None in given or OWN_PIPE in given):
        yield (None,)  # a text that is only known when it runs
    for start in range(1, min(len(words), _MOST_SUFFIXES)):
        yield words[start:]
        if " " in (words[start] or ""):
            yield tuple((words[start] or "").split())


def _chooses_what_runs(words: tuple[str | None, ...]) -> bool:
    """Return whether the words of a program say what it runs, or may say it where they are not known."""
    known = [word for word in takewhile(lambda word: word is not None, words) if word is not None]
    return chooses(known, 1) or (len(known) < len(words) and may_choose(known))


def objects(
    rule: PolicyRule, tool: str, programs: Sequence[Program], places: Sequence[Place], workspace: str
) -> Match:
    """Return whether a rule that denies or asks matches a call, by anything that it may mean."""
    wanted = rule_of(rule.text)
    if wanted.words:
        found = {_may_be(wanted, program) for program in programs}
        return "is" if "is" in found else "may" if "may" in found else ""
    return "is" if _names_place(wanted, tool, places, workspace) else ""


def _names_place(wanted: Rule, tool: str, places: Sequence[Place], workspace: str) -> bool:
    if not fnmatchcase(tool, wanted.tool):
        return False
    if not wanted.path:
        return True
    pattern = [*_segments(wanted.path.casefold(), workspace.casefold()), "**"]
    return any(
        _reaches(pattern, path.casefold(), counts_above=place.has_more or place.access == "tree")
        for place in places
        for path in place.paths
    )


def permits_tool(rule: PolicyRule, tool: str, places: Sequence[Place], workspace: str) -> bool:
    """Return whether a rule that allows covers a call that runs no command: its tool, and each of its paths."""
    wanted = rule_of(rule.text)
    if wanted.words or not fnmatchcase(tool, wanted.tool):
        return False
    if not wanted.path:
        return True
    pattern = _segments(wanted.path, workspace)
    return bool(places) and all(
        place.is_resolved and all(_reaches(pattern, path) for path in place.paths) for place in places
    )


def permitting(
    rules: Sequence[PolicyRule], commands: Sequence[Command], files: Mapping[str, str], workspace: str
) -> PolicyRule | None:
    """Return the first of the rules that together allow every simple command of the texts; None if they do not.

    Args:
        rules: The rules that allow.
        commands: The commands.
        files: The file of each program that is named, by its word.
        workspace: A program in it is allowed only by its path.
    """
    first: PolicyRule | None = None
    for command in commands:
        if not command.plain or command.unread:
            return None
        for words in (each.texts for each in command.plain):
            file = files.get(words[0], "") if words else ""
            if not file or is_launcher(words[0]) or is_launcher(file) or _is_decoy(words[0], file, workspace):
                return None
            found = next((rule for rule in rules if _is_exactly(rule_of(rule.text), words)), None)
            if found is None or "=" in words[0]:
                return None
            first = first or found
    return first


def _is_decoy(word: str, file: str, workspace: str) -> bool:
    """Return whether a plain name leads to a program that the workspace brought."""
    return "/" not in word and f"{file}/".startswith(f"{workspace}/")


def _is_exactly(rule: Rule, words: tuple[str, ...]) -> bool:
    count = len(rule.words)
    if not count or words[:count] != rule.words:
        return False
    return len(words) == count or (rule.is_open and not chooses(words, count))


def _may_be(rule: Rule, program: Program) -> Match:
    """Return whether the words of a rule are those of a command, if options and their values are skipped."""
    if program.words[0] is None:
        return "may"
    if rule.words[0] not in program.names:
        return ""
    if _follows(rule, [word for word in program.words[1:] if word is not None]):
        return "is"
    return "may" if None in program.words and _follows(rule, program.words[1:]) else ""


def _follows(rule: Rule, words: Sequence[str | None]) -> bool:
    """Return whether words are those of a rule. None may be any words."""
    wanted, positions, may_be_value = rule.words[1:], {0}, False
    if not wanted and rule.is_open:
        return True
    for word in words:
        if word is None:
            positions = set(range(min(positions), len(wanted) + 1))
            may_be_value = True
        else:
            is_option = word.startswith("-")
            following = {at + 1 for at in positions if at < len(wanted) and wanted[at] == word}
            if is_option or may_be_value:
                following |= positions
            positions, may_be_value = following, is_option and "=" not in word
        if rule.is_open and len(wanted) in positions:
            return True
        if not positions:
            return False
    return len(wanted) in positions


def _segments(path: str, workspace: str) -> list[str]:
    """Return the names of a path glob as patterns of `fnmatch`, in which only `*` has a meaning."""
    literal = [] if path.startswith("/") else _names(workspace)
    above = [re.sub(r"([*?[])", r"[\1]", name) for name in literal]
    return above + [re.sub(r"([?[])", r"[\1]", name) for name in _names(path)]


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _reaches(pattern: Sequence[str], path: str, *, counts_above: bool = False) -> bool:
    """Return whether a pattern matches a path; with `counts_above`, also whether it may match something under it."""
    positions = _with_skipped(pattern, {0})
    for name in _names(path):
        kept = {at for at in positions if at < len(pattern) and pattern[at] == "**"}
        moved = {at + 1 for at in positions - kept if at < len(pattern) and fnmatchcase(name, pattern[at])}
        positions = _with_skipped(pattern, kept | moved)
        if not positions:
            return False
    return counts_above or len(pattern) in positions


def _with_skipped(pattern: Sequence[str], positions: Iterable[int]) -> set[int]:
    """Return the positions, and those after each `**` that stands for nothing."""
    found: set[int] = set()
    for at in positions:
        found.add(at)
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            found.add(at)
    return found


def place_of(given: str, resolved: str, access: Access, workspace: str, *, has_more: bool) -> Place:
    """Return a named path as rules compare it."""
    named = posixpath.normpath(posixpath.join(workspace, given))
    paths = (named, resolved) if resolved and resolved != named else (named,)
    return Place(paths, access, bool(resolved), has_more)
