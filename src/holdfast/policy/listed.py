"""What the rules of the configuration match.

Rules that deny or ask match as much as they can mean: a program by every name that it has, a path by the one that is
given and the one that it leads to. Rules that allow match only literal words.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from holdfast.policy.commands import Command, unwrapped
from holdfast.policy.protected import Access
from holdfast.policy.words import without_redirections
from holdfast.protocol.rules import PolicyRule, Rule, is_launcher, rule_of

_LITERAL = re.compile(
    r"""(?:([A-Za-z0-9_@%+=:,./-]+)|'([^'\n]*)'|"([^"\n$`\\!]*)")(?=[ ;&|]|\Z) *""", re.ASCII
)
_AND_THEN = re.compile(r"(?:&&|\|\||;|\|(?!&)) *")
_SUBSTITUTION = re.compile(r"`|\$\(")
_MOST_SUFFIXES = 64

ONE_FILE = frozenset({"read_file", "write_file", "edit_file", "list_dir"})
"""The tools that touch the path that they name and nothing under it."""


class Program(msgspec.Struct, frozen=True):
    """A simple command in the text of a shell."""

    words: tuple[str, ...]
    """From the program on, without redirections."""
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


def simple_commands(command: Command) -> Iterator[tuple[str, ...]]:
    """Return the words of every simple command, of what those run that run other programs, and of substitutions,
    also inside quotes.

    This is the only place that knows how a parsed command is stored.
    """
    for words in command.simple:
        plain = tuple(without_redirections(words))
        if not plain:
            continue
        yield plain
        inner = tuple(unwrapped(list(plain)))
        for each in {plain, inner}:
            yield from _launched(each)
        if inner and inner != plain:
            yield inner
    for piece in _SUBSTITUTION.split(command.text)[1:]:
        if substituted := tuple(word.strip("()`\"'") for word in piece.split()):
            yield substituted


def _launched(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Return everything that a wrapper or an interpreter may run: each of its words may begin a command."""
    if not words or not is_launcher(words[0]):
        return
    for start in range(1, min(len(words), _MOST_SUFFIXES)):
        yield words[start:]
        if " " in words[start]:
            yield tuple(words[start].split())


def literal_commands(text: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the simple commands of a text in which every word is literal; None if one is not, or the text has more
    than words, quotes and `&&`, `||`, `;` and `|`.
    """
    found: list[tuple[str, ...]] = []
    words: list[str] = []
    at = len(text) - len(text.lstrip(" "))
    while at < len(text):
        if word := _LITERAL.match(text, at):
            words.append(next(each for each in word.groups() if each is not None))
            at = word.end()
        elif (operator := _AND_THEN.match(text, at)) and words:
            found.append(tuple(words))
            words = []
            at = operator.end()
        else:
            return None
    commands = (*found, tuple(words)) if words else tuple(found)
    if not commands or "\n" in text or any("=" in words[0] for words in commands):
        return None
    return commands


def objects(
    rule: PolicyRule, tool: str, programs: Sequence[Program], places: Sequence[Place], workspace: str
) -> bool:
    """Return whether a rule that denies or asks matches a call, by anything that it may mean."""
    wanted = rule_of(rule.text)
    if wanted.words:
        return any(_may_be(wanted, program) for program in programs)
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
        literal = literal_commands(command.text)
        if literal is None:
            return None
        for words in literal:
            file = files.get(words[0], "")
            if not file or is_launcher(words[0]) or is_launcher(file) or _is_decoy(words[0], file, workspace):
                return None
            found = next((rule for rule in rules if _is_exactly(rule_of(rule.text), words)), None)
            if found is None:
                return None
            first = first or found
    return first


def _is_decoy(word: str, file: str, workspace: str) -> bool:
    """Return whether a plain name leads to a program that the workspace brought."""
    return "/" not in word and f"{file}/".startswith(f"{workspace}/")


def _is_exactly(rule: Rule, words: tuple[str, ...]) -> bool:
    count = len(rule.words)
    return bool(count) and words[:count] == rule.words and (rule.is_open or len(words) == count)


def _may_be(rule: Rule, program: Program) -> bool:
    """Return whether the words of a rule are those of a command, if options and their values are skipped."""
    if rule.words[0] not in program.names:
        return False
    wanted, positions, may_be_value = rule.words[1:], {0}, False
    if not wanted and rule.is_open:
        return True
    for word in program.words[1:]:
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
