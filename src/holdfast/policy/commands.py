"""Finds obvious catastrophes and literal secret paths in the text of a shell command.

This catches accidents. It is not a security boundary, because a shell can hide any word from a reader of its text.
The permissions of the process decide what a command can reach. `rules` has the verdicts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from holdfast.policy.paths import secret_rule

_OPERATORS = frozenset(";&|()<>")
_OPERATOR = re.compile(r"&>>|&>|<<<|<<|<>|>>|>\||>&|<&|<|>|\|\||\|&|&&|[;&|()]")
_UNQUOTED = re.compile(r"""[();<>|&]+|[^\s();<>|&'"]+""")
_WRAPPERS = frozenset(
    {"sudo", "doas", "env", "nohup", "time", "exec", "command", "builtin", "nice", "setsid", "xargs", "then",
     "do", "else", "if", "while", "until", "!", "{"}
)  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "eval"})
_POWER = frozenset({"shutdown", "reboot", "halt", "poweroff"})
_SYSTEM_FOLDERS = "bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|srv|sys|usr|var"
_WHOLE_TREE = re.compile(
    rf"(?:/|~|\$HOME|\$\{{HOME\}}|/(?:{_SYSTEM_FOLDERS}))/*(?:\.{{1,2}}/*)*\*?", re.ASCII
)
_BLOCK_DEVICE = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|md|loop|mapper/)\w*")
_FORK_BOMB = re.compile(r"([\w:.]{1,32})\s{0,8}\(\)\s{0,8}\{\s{0,8}\1\s{0,8}\|\s{0,8}\1\s{0,8}&")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_MAX_NESTING = 4


class Command(NamedTuple):
    """A shell command and the simple commands in it."""

    text: str
    simple: tuple[list[str], ...]
    """The words of each simple command, including those in `sh -c`. A redirection is `>` and its target."""


def parsed(text: str) -> Command:
    """Parse a command as far as possible."""
    return Command(text, tuple(_simple_commands(text)))


def catastrophe(command: Command) -> str:
    """Return the catastrophe that the command spells out, in a few words; empty if it is harmless in this respect."""
    if _FORK_BOMB.search(command.text):
        return "a fork bomb"
    for words in command.simple:
        if reason := _disaster_of(words):
            return reason
    return ""


def secret_named(command: Command) -> str:
    """Return the first word that names a secret path; empty if no word does."""
    for words in command.simple:
        for word in words:
            for piece in {word, *re.split(r"[=,:@]", word)}:
                if piece and secret_rule(piece):
                    return piece
    return ""


def _disaster_of(words: list[str]) -> str:
    words = unwrapped(words)
    if not words:
        return ""
    program, operands = words[0].rsplit("/", 1)[-1], words[1:]
    flags = "".join(word for word in operands if word.startswith("-"))
    is_recursive = "r" in flags.casefold()
    if _writes_block_device(program, words):
        return "a write to a block device"
    if program in ("rm", "chmod", "chown", "chgrp", "shred") and is_recursive:
        target = next((word for word in operands if _WHOLE_TREE.fullmatch(word)), "")
        return f"`{program}` over the whole of `{target}`" if target else ""
    if program == "find" and "-delete" in operands and any(_WHOLE_TREE.fullmatch(word) for word in operands):
        return "`find -delete` over a system or home folder"
    if program.startswith("mkfs") or program == "wipefs":
        return "formatting a disk"
    if program in _POWER or (program == "systemctl" and _POWER & set(operands)):
        return "shutting down the machine"
    if program in ("init", "telinit") and operands[:1] in (["0"], ["6"]):
        return "shutting down the machine"
    return ""


def _writes_block_device(program: str, words: list[str]) -> bool:
    if program == "dd":
        return any(word.startswith("of=") and _BLOCK_DEVICE.match(word[3:]) for word in words)
    return any(word.startswith(">") and _BLOCK_DEVICE.match(target) for word, target in pairwise(words))


def unwrapped(words: list[str]) -> list[str]:
    """Return the words from the program on, without the variables and wrappers before it."""
    start = 0
    while start < len(words) and (
        _ASSIGNMENT.match(words[start])
        or words[start].rsplit("/", 1)[-1] in _WRAPPERS
        or (start > 0 and words[start].startswith("-"))
    ):
        start += 1
    return words[start:]


def _simple_commands(command: str, depth: int = 0) -> Iterator[list[str]]:
    words: list[str] = []
    for word in [*_words(command), ";"]:
        if (word and not set(word) <= _OPERATORS) or not {"<", ">"}.isdisjoint(word):
            words.append(word)
            continue
        if words:
            yield words
            yield from _nested(words, depth)
        words = []


def _nested(words: list[str], depth: int) -> Iterator[list[str]]:
    inner = unwrapped(words)
    if depth < _MAX_NESTING and inner and inner[0].rsplit("/", 1)[-1] in _SHELLS:
        for script in inner[1:]:
            if " " in script or inner[0] == "eval":
                yield from _simple_commands(script, depth + 1)


def _words(command: str) -> list[str]:
    """Split a command as the shell would. If its quotes do not match, split it without quoting."""
    text = command.replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        found = list(lexer)
    except ValueError:
        found = _UNQUOTED.findall(text)
    return [piece for word in found for piece in _operators(word)]


def _operators(word: str) -> list[str]:
    """Split a run of operators as the shell would. Return any other word unchanged."""
    return _OPERATOR.findall(word) if word and set(word) <= _OPERATORS else [word]
