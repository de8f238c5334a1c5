"""Reads a git configuration as git reads it, and says what its entries can do. It starts no git.

`git_made` asks whether a new configuration may stay, and `led` which files an old one names.
"""

# Pathlib cannot join what may not be a path.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from holdfast.policy.paths import is_inside

MOST_CHARS = 1 << 20
_SECTION = re.compile(r'\[([A-Za-z0-9.-]*)(?:[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|(?=\n)|\Z)")
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"', "\n": ""}

_FLAG = r"(?i:true|false|yes|no|on|off|[01])"
_NUMBER = r"[0-9]{1,9}"
_TEXT = r"[^\x00-\x1f\x7f]{0,200}"
_REMOTE = r"\.|\w[\w./-]*"
"""The name of a remote, and no address: `branch.main.remote` may have one."""
_REFS = r"[+^]?(?:HEAD|refs/[\w./*@-]+)(?::refs/[\w./*@-]+)?"
_ADDRESS = (
    r"(?:(?:https?|ssh|git|file)://|(?![A-Za-z0-9+.-]*::)(?!.*://))(?!-)(?!.*(?:@|//)-)[^\x00-\x20\x7f]+"
)
"""The address of a server or a folder. `ext::` and the like name a program."""
_HARMLESS = MappingProxyType(
    {
        "core.repositoryformatversion": _NUMBER,
        "core.filemode": _FLAG,
        "core.bare": _FLAG,
        "core.logallrefupdates": f"{_FLAG}|always",
        "core.ignorecase": _FLAG,
        "core.precomposeunicode": _FLAG,
        "core.symlinks": _FLAG,
        "core.autocrlf": f"{_FLAG}|input",
        "core.eol": "lf|crlf|native",
        "core.sparsecheckout": _FLAG,
        "core.sparsecheckoutcone": _FLAG,
        "extensions.objectformat": "sha1|sha256",
        "extensions.partialclone": _REMOTE,
        "extensions.refstorage": "files|reftable",
        "extensions.relativeworktrees": _FLAG,
        "extensions.worktreeconfig": _FLAG,
        "remote.*.url": _ADDRESS,
        "remote.*.pushurl": _ADDRESS,
        "remote.*.fetch": _REFS,
        "remote.*.tagopt": "--(?:no-)?tags",
        "remote.*.mirror": _FLAG,
        "remote.*.prune": _FLAG,
        "remote.*.promisor": _FLAG,
        "remote.*.partialclonefilter": r"[\w:=]+",
        "branch.*.remote": _REMOTE,
        "branch.*.merge": _REFS,
        "branch.*.rebase": f"{_FLAG}|merges",
        "submodule.active": r"[\w./*-]+",
        "submodule.*.url": _ADDRESS,
        "submodule.*.active": _FLAG,
        "submodule.*.branch": r"[\w./-]+",
        "submodule.*.update": "checkout|rebase|merge|none",
        "user.name": _TEXT,
        "user.email": _TEXT,
        "init.defaultbranch": r"\w[\w./-]*",
        "commit.gpgsign": "(?i:false|no|off|0)",
        "pull.rebase": _FLAG,
        "pull.ff": f"{_FLAG}|only",
        "push.default": "nothing|current|upstream|simple|matching",
        "gc.auto": _NUMBER,
    }
)
"""Keys, with patterns of the values that name no program and no file that git runs or includes. They are compiled
when they are needed: not every process does."""
_BETWEEN = re.compile(r"(?!-)(?!.*\.\.)[^\x00-\x1f\x7f:]+")
"""The name of a remote, branch or submodule in a key."""
_OF_SUBMODULE = re.compile(r"(.*?)/\.git/modules/.+/config")

_FOLDERS = frozenset({"core.hookspath", "init.templatedir"})
_INCLUDES = frozenset({"include.path", "includeif.*.path"})
_DATA = frozenset(
    {
        "blame.ignorerevsfile",
        "branch.*.description",
        "commit.template",
        "core.attributesfile",
        "core.excludesfile",
        "core.worktree",
        "fetch.fsck.skiplist",
        "format.signaturefile",
        "fsck.skiplist",
        "mailmap.file",
        "receive.fsck.skiplist",
    }
)
"""Keys with a text, or a file that git only reads."""
_TYPED = frozenset({"alias"})
"""Sections with programs that run only when somebody types their name."""
_WORD = re.compile(r"""[^\s'"`;|&<>()=!$]+""")


class Entry(NamedTuple):
    """One line of a configuration."""

    key: str
    """In small letters, with `*` for what is between the first and the last part."""
    between: str
    value: str

    @property
    def is_harmless(self) -> bool:
        """Whether git runs and includes nothing because of it."""
        allowed = _HARMLESS.get(self.key)
        return (
            allowed is not None
            and re.fullmatch(allowed, self.value) is not None
            and (not self.between or _BETWEEN.fullmatch(self.between) is not None)
        )

    @property
    def is_folder(self) -> bool:
        """Whether it names a folder with what git runs."""
        return self.key in _FOLDERS

    @property
    def is_include(self) -> bool:
        """Whether it names another configuration."""
        return self.key in _INCLUDES

    def words(self) -> Iterator[str]:
        """Yield what may be the name of a program or its script in its value."""
        is_other = self.is_folder or self.is_include or self.key in _DATA
        if not (is_other or self.is_harmless or self.key.partition(".")[0] in _TYPED):
            yield self.value
            yield from _WORD.findall(self.value)


def is_harmless(path: str, text: str) -> bool:
    """Return whether a configuration makes git run and include nothing.

    Args:
        path: Where it lies. That of a submodule may name its working tree.
        text: What is in it.
    """
    entries = parsed(text)
    return entries is not None and all(each.is_harmless or _is_own_tree(path, each) for each in entries)


def _is_own_tree(path: str, entry: Entry) -> bool:
    """Return whether it names the folder of a submodule, which lies beside the `.git` that has its repository."""
    place = _OF_SUBMODULE.fullmatch(path) if entry.key == "core.worktree" else None
    if place is None or entry.value.startswith("/") or "\0" in entry.value:
        return False
    top = os.path.realpath(place[1])
    tree = os.path.realpath(os.path.join(os.path.dirname(path), entry.value))
    return tree != top and is_inside(top, tree) and not is_inside(f"{top}/.git", tree)


@lru_cache(maxsize=256)
def parsed(text: str) -> tuple[Entry, ...] | None:
    """Return the entries of a configuration; None if git cannot read it."""
    if len(text) > MOST_CHARS:
        return None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    entries: list[Entry] = []
    section, between, at = "", "", 0
    while at < len(text):
        char = text[at]
        if char in " \t\r\n":
            at += 1
        elif char in "#;":
            at = _end_of_line(text, at)
        elif (found := _SECTION.match(text, at)) is not None:
            first, _, rest = found[1].lower().partition(".")
            # Git lets both kinds of name stand in one section.
            more = None if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])
            section, between, at = first, ".".join(each for each in (rest, more) if each), found.end()
        elif (name := _NAME.match(text, at)) is not None:
            read = _value(text, name.end()) if name[2] else ("true", name.end())
            if read is None:
                return None
            value, at = read
            key = f"{section}.*.{name[1].lower()}" if between else f"{section}.{name[1].lower()}"
            entries.append(Entry(key, between, value))
        else:
            return None
    return tuple(entries)


def _value(text: str, at: int) -> tuple[str, int] | None:
    """Return the value that begins at a place, and the end of its line; None if git cannot read it."""
    value, is_quoted, kept = "", False, 0
    while at < len(text):
        char = text[at]
        if char == "\n":
            break
        if char in "#;" and not is_quoted:
            at = _end_of_line(text, at)
            break
        at += 1
        if char == '"':
            is_quoted = not is_quoted
            kept = len(value)
            continue
        if char == "\\":
            escaped = _ESCAPED.get(text[at : at + 1])
            if escaped is None:
                return None
            value, at = value + escaped, at + 1
        elif char in " \t\r" and not is_quoted:
            value += char if value else ""
            continue
        else:
            value += char
        kept = len(value)
    return None if is_quoted else (value[:kept], at)


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
