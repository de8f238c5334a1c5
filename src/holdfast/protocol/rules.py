"""The rules that a configuration lists: `TOOL`, `TOOL(PATH)` and `shell(PROGRAM WORDS *)`.

This reads them and says what is wrong with one. `policy.listed` has what they match.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

Layer = Literal["admin", "user", "project"]
SHELL = "shell"
RULE_MAX_CHARS = 500

BUILT_IN = (
    "read_file", "write_file", "edit_file", "apply_patch", "list_dir", "glob", "grep", "shell", "ask_user",
    "update_plan", "answer", "read_output", "recall_history", "git_status", "git_diff", "git_log", "web_fetch",
    "http_request", "web_search", "process_output", "process_stop",
)  # fmt: skip
"""The tools that come with Holdfast."""
_RULE = re.compile(r"([A-Za-z*][A-Za-z0-9_*-]{0,127})(?:\((.*)\))?")


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


@lru_cache(maxsize=4_096)
def rule_of(text: str) -> Rule:
    """Take a rule apart. `known_rules` says whether it can match anything.

    Raises:
        WrongRule: it is not a rule.
    """
    tool, within = parts_of(text)
    if within is None:
        return Rule(tool)
    if not within.strip():
        raise WrongRule("has nothing in its parentheses", tool)
    return _command_rule(within) if tool == SHELL else _path_rule(tool, within)


def parts_of(text: str) -> tuple[str, str | None]:
    """Return the tool of a rule, and what is in its parentheses; None without them.

    Raises:
        WrongRule: it is not written as a rule.
    """
    found = _RULE.fullmatch(text) if len(text) <= RULE_MAX_CHARS and text.isprintable() else None
    if found is None:
        plain = " ".join(text.split())[:RULE_MAX_CHARS]
        meant = (plain.replace(" (", "(", 1), f"{plain})", f"shell({plain})")
        raise WrongRule("is not TOOL, TOOL(PATH) or shell(PROGRAM WORDS *)", *meant)
    return found[1], found[2]


def _command_rule(within: str) -> Rule:
    try:
        words = shlex.split(within)
    except ValueError:
        raise WrongRule("has a quote that is not closed") from None
    if not words or not words[0]:
        raise WrongRule("names no program", SHELL)
    first = next((at for at, word in enumerate(words) if "*" in word), len(words))
    if first == 0:
        program = words[0].removesuffix(":*")
        near = f"shell({shlex.quote(program)} *)" if "*" not in program else SHELL
        raise WrongRule("names no program; a rule for all commands is written `shell`", near)
    is_open = first == len(words) - 1 and words[-1] == "*"
    if first < len(words) and not is_open:
        whole = [*words[:first], *filter(None, [words[first].removesuffix("*").removesuffix(":")])]
        kept = whole if words[first].endswith(":*") else words[:first]
        near = f"shell({shlex.join(kept)} *)"
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


def globs_are_within(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether globs match no more names than other ones. A `*` of a glob is matched only by a `*`."""
    return all(any(fnmatchcase(glob, theirs) for theirs in old) for glob in new)


def common_globs(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the globs of two lists that the other list covers too."""
    kept = [glob for glob in one if globs_are_within([glob], other)]
    return tuple(dict.fromkeys([*kept, *(glob for glob in other if globs_are_within([glob], one))]))
