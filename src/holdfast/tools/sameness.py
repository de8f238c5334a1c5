"""Finds what makes two calls the same: other spellings of a path, other spaces or comments in a command do not.

It also finds the commands that only look: what every program of theirs does is known, and none of them writes.
"""

# Names are compared as they are written; nothing is opened.
# ruff: noqa: PTH118

from __future__ import annotations

import hashlib
import os.path
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from holdfast.policy.commands import Command, parsed, program_of
from holdfast.policy.simple import SimpleCommand
from holdfast.policy.words import words_of
from holdfast.protocol.evidence import ANY_CALL, Likeness
from holdfast.protocol.tools import ToolSpec

_encode = msgspec.json.Encoder(order="sorted").encode

PARSED_CHARS = 4_000
"""A longer command is compared as it is."""
_WORDS = 50
_MOST_PATHS = 2_000
"""A word counts once for each folder in which it may be read. A command with more is not one that only looks."""

_SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "find", "fd", "fdfind", "locate"})
_COMPARES = frozenset({"diff", "cmp", "test", "["})
_FILTERS = frozenset(
    {"ls", "cat", "head", "tail", "wc", "sort", "uniq", "cut", "tr", "nl", "tac", "echo", "printf", "true", "false",
     ":", "cd", "pwd", "file", "stat", "du", "df", "tree", "basename", "dirname", "realpath", "readlink", "which",
     "type", "date", "whoami", "id", "uname", "ps", "env", "printenv", "sleep", "jq", "column", "less", "more",
     "md5sum", "sha1sum", "sha256sum", "cksum", "od", "hexdump", "strings", "comm", "seq"}
)  # fmt: skip
_LOOKS = _SEARCHES | _COMPARES | _FILTERS
_GIT_LOOKS = frozenset(
    {"status", "diff", "log", "show", "ls-files", "grep", "blame", "rev-parse", "describe"}
)
_HIDES = re.compile(r"\$\(|`|<\(|>\(")
"""A substitution may run anything."""
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "&1", "&2", "1", "2"})

_TOKEN = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?<![^\s;&|(])\#[^\n]*|\s+""", re.DOTALL)
_HERE = re.compile(r"(?<![^\s=:'\"])\./(?=[\w.])")
_SLEEP = re.compile(r"\bsleep\s+[\d.]+[smh]?\b")


def likeness_of(spec: ToolSpec, values: dict[str, Any], workspace: str) -> Likeness:
    """Return what makes a call that passed the gates the same as another one."""
    if not spec.kinds:  # the arguments say it all
        return ANY_CALL
    plain, place, only_looks = dict(values), "", False
    for name, kind in spec.kinds.items():
        value = values.get(name)
        if kind == "timeout":
            plain.pop(name, None)
        elif kind == "path" and value is not None:
            plain[name] = _each(value, lambda path: os.path.normpath(os.path.join(workspace, path)))
        elif kind == "command" and isinstance(value, str):
            plain[name], place, only_looks = _command(value, workspace)
    if "query" in spec.kinds.values():
        place = _text({name: value for name, value in plain.items() if spec.kinds.get(name) != "query"})
    return Likeness(
        _digest(f"{spec.name}\0{_text(plain)}"), _digest(f"{spec.name}\0{place}") if place else "", only_looks
    )


def is_answer(text: str, exit_code: int) -> bool:
    """Return whether exit code 1 is an answer of this command, and no failure: nothing was found, or files differ."""
    if exit_code != 1 or len(text) > PARSED_CHARS:
        return False
    programs = [program_of(each) for each in _run(parsed(text))]
    return bool(programs) and programs[-1] in _SEARCHES | _COMPARES and set(programs) <= _LOOKS


def _command(text: str, workspace: str) -> tuple[str, str, bool]:
    """Return a command in its plain spelling, where it searches (empty if it does not), and whether it only looks."""
    if len(text) > PARSED_CHARS:
        return text, "", False
    plain, command = _plain(text, workspace), parsed(text)
    if not _only_looks(command):
        return plain, "", False
    programs = [program_of(each) for each in _run(command)]
    if _SEARCHES.isdisjoint(programs):
        return plain, "", True
    return plain, " ".join([*programs, *sorted(set(_places(command, workspace)))]), True


def _plain(text: str, workspace: str) -> str:
    """Return a command without comments, without spaces that mean nothing, and with the short forms of paths."""
    if "<<" in text:  # in a document, each space may matter
        return text.strip()
    plain = _TOKEN.sub(_token, text).strip()
    plain = re.sub(r"[ \n]*\n[ \n]*", "\n", plain)
    return _SLEEP.sub("sleep", _HERE.sub("", plain.replace(f"{workspace}/", "")))


def _token(found: re.Match[str]) -> str:
    token = found[0]
    if token.startswith("#"):
        return ""
    return ("\n" if "\n" in token else " ") if token.isspace() else token


def _run(command: Command) -> list[SimpleCommand]:
    """Return the commands that run, without the wrappers around them."""
    return [
        step.command
        for step in command.simple
        if step.command.words and not (step.uses.inner or step.uses.scripts)
    ]


def _only_looks(command: Command) -> bool:
    run = _run(command)
    if not run or command.unread or _HIDES.search(command.text):
        return False
    for each in run:
        program, words = program_of(each), [word.text for word in each.words]
        if program == "git":
            if words[1:2] == [] or words[1] not in _GIT_LOOKS:
                return False
        elif program not in _LOOKS or not _FIND_WRITES.isdisjoint(words):
            return False
    paths = [*islice(words_of(command), _MOST_PATHS + 1)]
    if len(paths) > _MOST_PATHS:
        return False
    return all(path.access == "read" or path.text in _NOWHERE for path in paths)


def _places(command: Command, workspace: str) -> Iterator[str]:
    """Return the words that name something that exists."""
    for each in _run(command):
        for word in each.words[1:_WORDS]:
            if not word.text.startswith("-"):
                path = os.path.normpath(os.path.join(workspace, word.text))
                if os.path.lexists(path):
                    yield path


def _each(value: Any, spell: Any) -> Any:
    if isinstance(value, str):
        return spell(value)
    return [_each(item, spell) for item in value] if isinstance(value, list) else value


def _text(values: dict[str, Any]) -> str:
    return _encode(values).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
