"""Everything that a shell text runs: its simple commands, those inside wrappers and scripts, and what each does.

A command is read as far as its words tell. What a program does by itself is not seen, so this is not a security
boundary: the permissions of the process decide what a command can reach. `rules` has the verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from holdfast.policy.pieces import secret_in_pieces
from holdfast.policy.programs import uses_of
from holdfast.policy.shell import read_script
from holdfast.policy.shell_flow import MAX_FOLDERS, Flow
from holdfast.policy.simple import Redirection, Script, SimpleCommand, Word
from holdfast.policy.uses import Uses

MAX_STEPS = 16_000
"""How many commands are looked at, with those inside of others."""
MAX_DEPTH = 16
"""How deep commands may stand inside of others."""

_POWER = frozenset({"shutdown", "reboot", "halt", "poweroff"})
_OVER_TREES = frozenset({"rm", "chmod", "chown", "chgrp", "shred"})
_DISASTROUS = _POWER | _OVER_TREES | {"dd", "find", "wipefs", "systemctl", "init", "telinit"}
"""Programs that may be a catastrophe, apart from `mkfs` in all its forms."""
_SYSTEM_FOLDERS = "bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|srv|sys|usr|var"
_WHOLE_TREE = re.compile(rf"(?:/|~|\$HOME|\$\{{HOME\}}|/(?:{_SYSTEM_FOLDERS}))[./]*\*?", re.ASCII)
_BLOCK_DEVICE = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|md|loop|mapper/)\w*")
_FORK_BOMB = re.compile(r"([\w:.]{1,32})\s{0,8}\(\)\s{0,8}\{\s{0,8}\1\s{0,8}\|\s{0,8}\1\s{0,8}&")
_SEPARATOR = re.compile(r"[=,:@()]")
_SHORT = re.compile(r"-[A-Za-z][^-]")
_POSIX_SHELLS = frozenset({"sh", "dash", "ash"})
"""Shells that are not bash, or not everywhere."""
_BASH = frozenset({"bash", "rbash"})
_NOT_POSIX = re.compile(
    r"""\$['"]|\[\[|(?<!\$)\(\(|&>|\{[^{}\s;]*(?:,|\.\.)|[}\d]\d[<>]|\}[<>]|\b(?:export|readonly|local)\b"""
)
"""What bash reads in a way of its own: `[[ a || ./x ]]` runs a program in other shells."""
_ROUGH_COMMAND = re.compile(r"[;&|()\n]+")
_ROUGH_WORD = re.compile(r"[<>]+|[^\s<>]+")


class Step(NamedTuple):
    """A simple command, and what it does."""

    command: SimpleCommand
    uses: Uses


class Command(NamedTuple):
    """The text of a shell, and everything that it runs."""

    text: str
    simple: tuple[Step, ...]
    """Every simple command at any depth. A wrapper is followed by what it runs."""
    unread: str = ""
    """Why it is not understood completely; empty if it is."""
    hidden: str = ""
    """Its invisible and bidirectional characters, spelled out."""
    plain: tuple[SimpleCommand, ...] = ()
    """Its commands, if it has nothing but literal words, `&&`, `||`, `;` and `|`."""
    home: str = ""
    """The folder that `~` means."""
    pieced: str = ""
    """The name of a secret that it has in pieces, if something in it is known only when it runs."""


class _Next(NamedTuple):
    """A simple command that is not yet looked at."""

    command: SimpleCommand
    depth: int
    around: Script
    """The text that it is in."""
    is_posix: bool = False
    """Whether another shell than bash may read the text."""


@lru_cache(maxsize=64)
def parsed(text: str, home: str = "", here: str = "", there: frozenset[str] = frozenset()) -> Command:
    """Read a shell text.

    Args:
        text: What the shell would run.
        home: The folder that `~` means; empty if it is not known.
        here: The folder in which the shell begins; empty if it is not known.
        there: Folders into which a `cd` leads for certain.
    """
    script = read_script(text, home, here, Flow(("",), there=there))
    unread, hidden = [script.unread], [script.hidden]
    steps: list[Step] = []
    entered: dict[int, tuple[Script, tuple[str, ...]]] = {}
    stack = [_Next(command, 0, script) for command in reversed(script.commands)]
    while stack:
        command, depth, around, is_posix = stack.pop()
        if len(steps) >= MAX_STEPS:
            unread.append("it runs too many commands")
            break
        uses = uses_of(command)
        steps.append(Step(command, uses))
        if depth >= MAX_DEPTH and (uses.inner or uses.scripts):
            unread.append("its commands stand too deep inside of others")
            continue
        within = [_Next(_inside(each, command), depth + 1, around, is_posix) for each in uses.inner]
        for word in uses.scripts:
            name = program_of(command)
            is_posix = name in _POSIX_SHELLS or (is_posix and name not in _BASH)
            folders, is_known = command.folders, command.is_folder_known
            if name == "trap":  # it runs the text later
                if id(around) not in entered:
                    entered[id(around)] = around, _entered(around)
                folders = entered[id(around)][1]
                is_known = is_known and len(folders) == 1
            is_here = is_known and folders == ("",)
            inner = read_script(word.text, home, here if is_here else "", Flow(folders))
            if is_posix and (found := _NOT_POSIX.search(word.text)):
                unread.append(f"`{name}` may read `{found[0].strip()}` in another way than bash")
            unread.append(inner.unread)
            hidden.append(inner.hidden)
            within += [
                _Next(
                    _inside(each, command)._replace(is_folder_known=each.is_folder_known and is_known),
                    depth + 1,
                    inner,
                    is_posix,
                )
                for each in inner.commands
            ]
        stack += reversed(within)
    why = next(filter(None, unread), "")
    if why:
        steps += _rough_steps(text)
    plain = script.commands if script.is_plain else ()
    return Command(
        text,
        tuple(steps),
        why,
        next(filter(None, hidden), ""),
        plain,
        home,
        secret_in_pieces(text) if why or any(map(_is_open, steps)) else "",
    )


def _is_open(step: Step) -> bool:
    """Return whether not everything that a command uses is known."""
    command, uses = step
    return bool(uses.asks or uses.inner or uses.scripts) or False in [word.is_known for word in command.words]


def _inside(command: SimpleCommand, around: SimpleCommand) -> SimpleCommand:
    return command._replace(pipes=tuple({*around.pipes, *command.pipes})) if around.pipes else command


def _entered(script: Script) -> tuple[str, ...]:
    """Return every folder in which a part of the text may run."""
    folders = (folder for each in script.commands for folder in each.folders)
    return tuple(dict.fromkeys([*folders, *script.ends]))[: MAX_FOLDERS + 1]


def _rough_steps(text: str) -> Iterator[Step]:
    """Split a text that is not understood at blanks and operators: what it names plainly still counts."""
    for part in _ROUGH_COMMAND.split(text)[:MAX_STEPS]:
        words = [word.strip("'\"`\\$") for word in _ROUGH_WORD.findall(part)]
        targets = [
            Redirection(operator, Word(target))
            for operator, target in pairwise(words)
            if operator[:1] in ("<", ">")
        ]
        plain = tuple([Word(word, is_known=False) for word in words if word and word[0] not in "<>"])
        if plain or targets:
            yield Step(SimpleCommand(plain, (), tuple(targets), is_folder_known=False), Uses())


# --- catastrophes ---------------------------------------------------------------------------------


def catastrophe(command: Command) -> str:
    """Return the catastrophe that the command spells out, in a few words; empty if it is harmless in this respect."""
    if "()" in command.text and _FORK_BOMB.search(command.text):
        return "a fork bomb"
    for step in command.simple:
        if reason := _disaster_of(step.command, command.home):
            return reason
    return ""


def _disaster_of(command: SimpleCommand, home: str) -> str:
    written = [each.target.text for each in command.redirections if ">" in each.operator]
    if written and any(map(_BLOCK_DEVICE.match, written)):
        return "a write to a block device"
    program = program_of(command)
    if not (program in _DISASTROUS or program.startswith("mkfs")):
        return ""
    operands = [word.text for word in command.words[1:]]
    if program == "dd" and any(word.startswith("of=") and _BLOCK_DEVICE.match(word[3:]) for word in operands):
        return "a write to a block device"
    flags = "".join(word for word in operands if word.startswith("-"))
    if program in _OVER_TREES and "r" in flags.casefold():
        target = next((word for word in operands if _is_whole_tree(word, command.folders, home)), "")
        return f"`{program}` over the whole of `{target}`" if target else ""
    if (
        program == "find"
        and "-delete" in operands
        and any(_is_whole_tree(word, command.folders, home) for word in operands)
    ):
        return "`find -delete` over a system or home folder"
    if program.startswith("mkfs") or program == "wipefs":
        return "formatting a disk"
    if program in _POWER or (program == "systemctl" and _POWER & set(operands)):
        return "shutting down the machine"
    if program in ("init", "telinit") and operands[:1] in (["0"], ["6"]):
        return "shutting down the machine"
    return ""


def _is_whole_tree(word: str, folders: Sequence[str], home: str) -> bool:
    """Return whether a word names the home or a folder of the system, from any of the folders."""
    if word.startswith("-"):
        return False
    for path in (word, *[f"{folder}/{word}" for folder in folders if folder and not word.startswith("/")]):
        short = f"~{path[len(home) :]}" if home and f"{path}/".startswith(f"{home}/") else path
        if _WHOLE_TREE.fullmatch(short):
            return True
    return False


def program_of(command: SimpleCommand) -> str:
    """Return the last part of the name of the program; empty if the command has none."""
    return command.words[0].text.rsplit("/", 1)[-1] if command.words else ""


# --- texts ----------------------------------------------------------------------------------------


def texts_of(command: SimpleCommand) -> list[str]:
    """Return every text of a command that may name a path."""
    found = [word.text for word in command.words]
    if command.assigned:
        found += [value.text for _, value in command.assigned]
    if command.redirections:
        found += [each.target.text for each in command.redirections if each.operator != "<<"]
    return found


def pieces_of(word: str) -> Collection[str]:
    """Return the word and the paths that it may contain: `--file=PATH`, `-fPATH`, `HOST:PATH`, `@PATH`."""
    pieces = _SEPARATOR.split(word) if _SEPARATOR.search(word) else []
    if word[:1] == "-" and _SHORT.match(word):
        pieces.append(word[2:])
    return {word, *filter(None, pieces)} if pieces else (word,) if word else ()
