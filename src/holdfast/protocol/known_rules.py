"""Which rules a configuration may have: those that can match something, and allow no more than they seem to.

A rule that denies and matches nothing is worse than no rule, because somebody relies on it. `rules` takes them apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from holdfast.protocol.launchers import chooses, is_launcher
from holdfast.protocol.rules import BUILT_IN, SHELL, Rule, WrongRule, parts_of, rule_of

_OF_OTHERS = {
    "shell": "bash shelltool runshellcommand runterminalcmd runterminalcommand runcommand executecommand execcommand "
    "localshell terminal powershell",
    "read_file": "read readfiletool readmanyfiles notebookread view viewfile openfile",
    "write_file": "write writefiletool writetofile createfile",
    "edit_file": "edit edittool multiedit notebookedit replace replaceinfile searchreplace strreplaceeditor "
    "strreplacebasededittool",
    "apply_patch": "patch applydiff",
    "list_dir": "ls list listdirectory listfiles",
    "grep": "greptool searchfilecontent grepsearch searchfiles codebasesearch ripgrep",
    "glob": "globtool filesearch findfiles",
    "web_fetch": "fetch fetchurl",
    "web_search": "googlewebsearch",
    "ask_user": "askuserquestion askfollowupquestion",
    "update_plan": "todowrite todoread updatetodolist",
}
"""The names that the same tools have in other products, in small letters without `_` and `-`."""
_MEANT = {name: tool for tool, names in _OF_OTHERS.items() for name in names.split()} | {
    tool.replace("_", ""): tool for tool in BUILT_IN
}
WITH_PATHS = frozenset(
    {"read_file", "write_file", "edit_file", "apply_patch", "list_dir", "glob", "grep", "git_status", "git_diff",
     "git_log"}
)  # fmt: skip
"""The built-in tools that are given paths."""
_HOSTS = frozenset({"web_fetch", "http_request"})
_NEAR = 0.8
_TOOL_GLOB = re.compile(r"[A-Za-z0-9_*-]{1,128}")
_DEPTH = 4
"""How often the nearest rule may itself have a nearest one."""


def objecting_rule_of(text: str) -> Rule:
    """Take a rule apart that denies, or asks.

    Raises:
        WrongRule: it is not a rule, or can match nothing. The message names the nearest one that can.
    """
    return _advised(text, _matching)


def allow_rule_of(text: str) -> Rule:
    """Take a rule apart that allows something.

    Raises:
        WrongRule: as above, or it would allow everything.
    """
    return _advised(text, _allowing)


def tool_glob_of(text: str) -> str:
    """Return a glob on the names of tools.

    Raises:
        WrongRule: it is not one, or names a tool that does not exist here.
    """
    if not _TOOL_GLOB.fullmatch(text):
        raise WrongRule("is not the name of a tool, in which * stands for any letters")
    if near := _meant(text):
        raise WrongRule(f"is not a built-in tool; the nearest one is {near}")
    return text


def unknown_tool_in(text: str) -> str:
    """Return the tool of a valid rule or glob if it is not known here. A package, server or program may bring it."""
    tool = text.partition("(")[0]
    return "" if _may_come(tool) or tool in BUILT_IN else tool


def _may_come(tool: str) -> bool:
    """Return whether nobody can say yet whether there will be such a tool."""
    return "*" in tool or "__" in tool


def _meant(tool: str) -> str:
    """Return the built-in tool that a name means which no tool has; empty if the name may be right."""
    if _may_come(tool) or tool in BUILT_IN:
        return ""
    if meant := _MEANT.get(re.sub("[_-]", "", tool.casefold())):
        return meant
    return next(iter(get_close_matches(tool, BUILT_IN, 1, _NEAR)), "")


def _advised(text: str, read: Callable[[str], Rule]) -> Rule:
    try:
        return read(text)
    except WrongRule as error:
        near = _nearest(error.nearest, read, _DEPTH)
        advice = f"; the nearest rule is {near}" if near else ""
        raise WrongRule(f"{error}{advice}") from None


def _nearest(meant: Iterable[str], read: Callable[[str], Rule], depth: int) -> str:
    """Return the first rule that is valid, or the nearest one to the first that has one."""
    for text in meant:
        try:
            read(text)
        except WrongRule as error:
            if depth and (near := _nearest(error.nearest, read, depth - 1)):
                return near
        else:
            return text
    return ""


def _allowing(text: str) -> Rule:
    rule = _matching(text)
    if not rule.words:
        if fnmatchcase(SHELL, rule.tool):
            near = "name the tools" if rule.tool != SHELL else "name a program, as in shell(PROGRAM *)"
            raise WrongRule(f"would allow every command; {near}")
    elif is_launcher(rule.words[0]):
        raise WrongRule(
            f"would allow everything, because `{rule.words[0]}` runs whatever it is given; "
            "allow the program that it runs"
        )
    elif rule.is_open and chooses(rule.words, len(rule.words)):
        shown = " ".join(rule.words)
        raise WrongRule(
            f"would allow everything, because the words in place of `*` choose what `{shown}` runs; "
            "write all words, without `*`"
        )
    return rule


def _matching(text: str) -> Rule:
    tool, within = parts_of(text)
    if near := _meant(tool):
        raise WrongRule("names no tool", *_translated(near, within))
    if tool == SHELL and within:
        _check_words(within)
    rule = rule_of(text)
    if rule.path and tool in BUILT_IN and tool not in WITH_PATHS:
        why = "takes no path" + ("; [network] allow lists the hosts" if tool in _HOSTS else "")
        raise WrongRule(why, tool)
    return rule


def _translated(tool: str, within: str | None) -> Iterator[str]:
    """Return what a rule of another product may mean here, the likeliest first."""
    if within is not None and tool == SHELL:
        words = re.sub(r":\*$", " *", within)
        yield f"{tool}({words})"
    elif within is not None:
        path = re.sub("^//", "/", within).removeprefix("./")
        yield f"{tool}({path})"
    yield tool


# --- the words of a command -----------------------------------------------------------------------

_PIECE = re.compile(
    r"""(?P<literal>'[^']*'|\\.)|"(?P<soft>(?:[^"\\]|\\.)*)"|(?P<raw>[^'"\\]+|.)""", re.DOTALL
)
_ENDS = re.compile(r"&&|\|\||[|;&]|\d*&?>>?&?|\d*<+&?-?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_UNKNOWN = re.compile(r"[$`]")
_EXPANDED = re.compile(r"(?:^|(?<=\s))~|[{}()?]|(?:^|(?<=\s))#|\[[^\s\]]+\]")
_QUOTED = "\0"


class _Words(NamedTuple):
    """The words of a rule as a shell would read them."""

    plain: str
    """The text, with a mark in place of each character that is quoted: as long as the text."""
    variable: int
    """Where the first variable or substitution is; -1 if there is no such thing."""


def _check_words(within: str) -> None:
    """Check that a command can have the words of a rule.

    Raises:
        WrongRule: a shell never gives a program such words.
    """
    words = _words_of(within)
    if _ENDS.search(words.plain):
        what = (
            "a redirection, which no program gets"
            if not re.search("[|;&]", words.plain)
            else "several commands"
        )
        why = f"can never match: it has {what}; a rule is about one program, wherever a command runs it"
        raise WrongRule(why, *_programs(within, words.plain))
    if words.variable >= 0:
        why = "can never match: it has a variable, and a rule matches the words that a program gets"
        raise WrongRule(why, *_before(within, words.variable))
    if _ASSIGNMENT.match(words.plain):
        why = "can never match: it begins with a variable, and a rule begins with the program"
        rest = re.sub(r"^(?:[A-Za-z_]\w*\+?=\S*\s*)+", "", within)
        raise WrongRule(why, f"{SHELL}({rest})")
    if (found := _EXPANDED.search(words.plain)) is not None and words.plain.strip() not in ("{", "{ *"):
        why = f"can never match: a shell replaces `{within[found.start() : found.end()]}` by other words"
        raise WrongRule(why, *_before(within, found.start()))


def _words_of(within: str) -> _Words:
    plain: list[str] = []
    variable = -1
    for piece in _PIECE.finditer(within):
        said = piece["raw"]
        plain.append(said if said is not None else _QUOTED * len(piece[0]))
        unknown = _UNKNOWN.search(said or piece["soft"] or "")
        if unknown is not None and variable < 0:
            variable = piece.start() + unknown.start() + (said is None)
    return _Words("".join(plain), variable)


def _programs(within: str, plain: str) -> Sequence[str]:
    """Return a rule for each command in a text, without those that only change the folder."""
    found: list[str] = []
    start, is_file = 0, False
    for end in [*_ENDS.finditer(plain), None]:
        command = within[start : end.start() if end else None].strip()
        if command and not is_file and not command.startswith("cd "):
            found.append(f"{SHELL}({command})")
        if end:
            start, is_file = end.end(), end[0].strip("0123456789&-")[:1] in ("<", ">")
    return found


def _before(within: str, at: int) -> tuple[str, ...]:
    """Return the rule of the words before a place, which may lie inside a word."""
    words = within[:at].split()
    kept = words if within[:at][-1:].isspace() else words[:-1]
    return (f"{SHELL}({' '.join(kept)} *)",) if kept else ()
