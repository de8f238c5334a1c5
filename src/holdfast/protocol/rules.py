"""The rules that a configuration lists: `TOOL`, `TOOL(PATH)` and `shell(PROGRAM WORDS *)`.

This reads them and says what is wrong with one. `policy.listed` has what they match.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

Layer = Literal["admin", "user", "project"]
SHELL = "shell"
RULE_MAX_CHARS = 500

LAUNCHERS = frozenset({
    # shells
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "yash", "fish", "csh", "tcsh", "rbash", "busybox",
    "toybox", "pwsh", "powershell",
    # interpreters, and programs that run a text they are given
    "python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua",
    "luajit", "awk", "gawk", "mawk", "nawk", "tclsh", "wish", "expect",
    "rscript", "r", "julia", "ghci", "guile", "racket", "groovy", "jshell", "osascript", "sed", "ed", "ex",
    "vi", "vim", "nvim", "emacs", "gdb", "npx", "uvx", "pipx",
    # wrappers, which run another program
    "sudo", "doas", "su", "runuser", "pkexec", "env", "nohup", "time", "timeout", "nice", "ionice", "chrt",
    "taskset", "stdbuf", "setsid", "setpriv", "xargs", "parallel",
    "watch", "chroot", "unshare", "nsenter", "bwrap", "firejail", "script", "strace", "ltrace", "flock",
    "systemd-run", "ssh", "find", "fd", "entr",
    # words of the shell that run a text, or change what later words mean
    "command", "builtin", "exec", "eval", "source", ".", "cd", "pushd", "popd", "alias", "unalias",
    "export", "set", "unset", "trap", "hash", "read", "declare", "typeset",
    "local", "readonly", "enable", "shopt", "mapfile", "readarray", "coproc", "!", "{", "if", "then",
    "elif", "else", "while", "until", "for", "do", "case", "select",
    "function", "[[",
})  # fmt: skip
"""What runs whatever it is given. A rule that allowed one of them would allow everything."""
_VERSION = re.compile(r"[0-9.]+\Z")

BUILT_IN = (
    "read_file", "write_file", "edit_file", "apply_patch", "list_dir", "glob", "grep", "shell", "ask_user",
    "update_plan", "answer", "read_output", "recall_history", "git_status", "git_diff", "git_log",
)  # fmt: skip
"""Tools whose names are recognised when they are misspelled."""
_NEAR = 0.8
_RULE = re.compile(r"([A-Za-z*][A-Za-z0-9_*-]{0,127})(?:\((.*)\))?")


_TOOL_GLOB = re.compile(r"[A-Za-z0-9_*-]{1,128}")


class PolicyRule(msgspec.Struct, frozen=True, gc=False):
    """A rule as it was written, and the layer that it comes from."""

    text: str
    layer: Layer = "user"


class Rule(NamedTuple):
    """A rule, taken apart."""

    tool: str
    """A glob on the name of the tool."""
    path: str = ""
    """A glob on a path; empty if the rule names none."""
    words: tuple[str, ...] = ()
    """The program and its words; empty if the rule names none."""
    is_open: bool = False
    """Whether any further words may follow."""


class WrongRule(ValueError):
    """The text is not a rule. The message says why, and names the nearest one that is."""

    def __init__(self, why: str, *nearest: str) -> None:
        super().__init__(why)
        self.nearest = nearest
        """What may have been meant, the likeliest first."""


def is_launcher(program: str) -> bool:
    """Return whether a program runs whatever it is given. It may be a path, and have a version in its name."""
    name = program.rsplit("/", 1)[-1].casefold()
    return name in LAUNCHERS or _VERSION.sub("", name) in LAUNCHERS


@lru_cache(maxsize=4_096)
def rule_of(text: str) -> Rule:
    """Take a rule apart.

    Raises:
        WrongRule: it is not a rule.
    """
    try:
        return _rule(text)
    except WrongRule as error:
        near = next(filter(_is_rule, error.nearest), "")
        advice = f"; the nearest rule is {near}" if near else ""
        raise WrongRule(f"{error}{advice}") from None


def allow_rule_of(text: str) -> Rule:
    """Take a rule apart that allows something.

    Raises:
        WrongRule: it is not a rule, or it would allow everything.
    """
    rule = rule_of(text)
    if rule.words:
        if is_launcher(rule.words[0]):
            raise WrongRule(
                f"would allow everything, because `{rule.words[0]}` runs whatever it is given; "
                "allow the program that it runs"
            )
    elif fnmatchcase(SHELL, rule.tool):
        near = "name the tools" if rule.tool != SHELL else "name a program, as in shell(PROGRAM *)"
        raise WrongRule(f"would allow every command; {near}")
    return rule


def _is_rule(text: str) -> bool:
    try:
        _rule(text)
    except WrongRule:
        return False
    return True


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text) if len(text) <= RULE_MAX_CHARS and text.isprintable() else None
    if found is None:
        plain = " ".join(text.split())[:RULE_MAX_CHARS]
        meant = (plain.replace(" (", "(", 1), f"{plain})", f"shell({plain})")
        raise WrongRule("is not TOOL, TOOL(PATH) or shell(PROGRAM WORDS *)", *meant)
    tool, within = found[1], found[2]
    near = [] if "*" in tool or tool in BUILT_IN else get_close_matches(tool, BUILT_IN, 1, _NEAR)
    near = [SHELL] if tool.casefold() == SHELL != tool else near
    if near:
        raise WrongRule("names no tool", text.replace(tool, near[0], 1))
    if within is None:
        return Rule(tool)
    if not within.strip():
        raise WrongRule("has nothing in its parentheses", tool)
    return _command_rule(within) if tool == SHELL else _path_rule(tool, within)


def _command_rule(within: str) -> Rule:
    try:
        words = shlex.split(within)
    except ValueError:
        raise WrongRule("has a quote that is not closed") from None
    if not words or not words[0]:
        raise WrongRule("names no program", SHELL)
    first = next((at for at, word in enumerate(words) if "*" in word), len(words))
    if first == 0:
        raise WrongRule("names no program; a rule for all commands is written `shell`")
    is_open = first == len(words) - 1 and words[-1] == "*"
    if first < len(words) and not is_open:
        near = f"shell({shlex.join(words[:first])} *)"
        raise WrongRule("has a `*` that is not a word of its own at the end", near)
    return Rule(SHELL, words=tuple(words[:first]), is_open=is_open)


def _path_rule(tool: str, path: str) -> Rule:
    names = path.split("/")
    if ".." in names or path.startswith("~"):
        kept = "/".join(name for name in names if name not in ("..", "~")) or "**"
        raise WrongRule("has a path that is neither in the workspace nor absolute", f"{tool}({kept})")
    if path != path.strip():
        raise WrongRule("has spaces around its path", f"{tool}({path.strip()})")
    return Rule(tool, path=path)


def tool_glob_of(text: str) -> str:
    """Return a glob on the names of tools.

    Raises:
        WrongRule: it is not one.
    """
    if not _TOOL_GLOB.fullmatch(text):
        raise WrongRule("is not the name of a tool, in which * stands for any letters")
    if (
        "*" not in text
        and text not in BUILT_IN
        and (near := get_close_matches(text, BUILT_IN, n=1, cutoff=_NEAR))
    ):
        raise WrongRule("is not a built-in tool", *near)
    return text


def globs_are_within(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether globs match no more names than other ones. A `*` of a glob is matched only by a `*`."""
    return all(any(fnmatchcase(glob, theirs) for theirs in old) for glob in new)


def common_globs(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the globs of two lists that the other list covers too."""
    kept = [glob for glob in one if globs_are_within([glob], other)]
    return tuple(dict.fromkeys([*kept, *(glob for glob in other if globs_are_within([glob], one))]))
