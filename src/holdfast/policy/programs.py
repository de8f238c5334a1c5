"""The table of programs: what a simple command reads, writes, runs and sends, as far as its words tell.

Each program has a row or a reader of its own in one of the `programs_*` modules. A program without one makes a person
look, and so does everything about a known program that the table does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.policy.programs_files import FILE_READERS, WRITERS
from holdfast.policy.programs_git import GIT_READERS
from holdfast.policy.programs_languages import LANGUAGE_READERS
from holdfast.policy.programs_net import NET_READERS
from holdfast.policy.programs_options import Program, shown, uses_by_row
from holdfast.policy.programs_places import PLACES, placed_uses, started_by
from holdfast.policy.programs_risks import MEDIUM_RISK, why_it_asks
from holdfast.policy.programs_search import SEARCH_READERS, SEARCHERS
from holdfast.policy.programs_shell import BUILTINS, SHELL_READERS, uses_of_variable
from holdfast.policy.programs_text import PRINTERS, READERS
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import NOTHING, Reader, Use, Uses, merged, unknown
from holdfast.protocol.launchers import is_interpreter

ROWS: Mapping[str, Program] = {**READERS, **PRINTERS, **SEARCHERS, **WRITERS, **BUILTINS}
_READERS: Mapping[str, Reader] = {
    **SEARCH_READERS,
    **LANGUAGE_READERS,
    **FILE_READERS,
    **GIT_READERS,
    **NET_READERS,
    **SHELL_READERS,
}

KNOWN = frozenset({*ROWS, *_READERS})
"""Every program that has a place in the table."""
PROGRAMS_THAT_LOOK = frozenset({*READERS, *PRINTERS, *SEARCHERS, *SEARCH_READERS, *LANGUAGE_READERS})
"""Programs that read and print, unless an option says otherwise."""
_BACK = re.compile(r"(?:\A|/)(?!\.\.?/)[^/]+/+(?:\./+)*\.\.(?:/|\Z)")
_COUNTED = re.compile(r"\(\(|\$\(\(|\[|[A-Za-z_]\w*(?:\[.*\])?\+?=|\$\{\w*[^\w}]", re.DOTALL)
"""What the shell sets or counts out by itself: `x[i]=1`, `((`, `${x[i]}`."""
_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_SHOWS_VERSION = frozenset(
    {"python", "python3", "node", "ruby", "perl", "gcc", "cc", "clang", "g++", "php", "lua", "java"}
)


def uses_of(command: SimpleCommand) -> Uses:
    """Return what a simple command does. Its redirections are not part of the answer."""
    variables = [uses_of_variable(name, value) for name, value in command.assigned]
    if not command.words:
        return merged(variables)
    uses = _by_program(command)
    if variables:
        uses = merged([*variables, uses])
    if uses.asks and not uses.is_unknown:
        return uses
    doubts = [doubt for use in uses.files if (doubt := _doubt(use)).asks]
    return merged([uses, *doubts]) if doubts else uses


def program_name(word: Word) -> str:
    """Return the program that a command's first word names; empty if it is not one of the system's."""
    if not word.is_known or word.is_glob:
        return ""
    folder, slash, name = word.text.rpartition("/")
    return name if not slash or folder in _SYSTEM_FOLDERS else ""


def _by_program(command: SimpleCommand) -> Uses:
    first, words = command.words[0], command.words[1:]
    name = program_name(first)
    if not name:
        if not first.is_known:
            return _unknown(first)
        asks = f"`{shown(first.text)}` is not a program of the system."
        return merged([unknown(asks), _placed(first.text.rpartition("/")[2], words)])
    if (reader := _READERS.get(name)) is not None:
        return reader(command, name)
    if (row := ROWS.get(name)) is not None:
        return uses_by_row(name, row, words)
    if name in _SHOWS_VERSION and [word.text for word in words] == ["--version"]:
        return Uses()
    started = started_by(command, lambda text: text in KNOWN or text in PLACES or is_interpreter(text))
    why = Uses(asks=why_it_asks(name), is_unknown=name not in MEDIUM_RISK)
    return merged([why, _placed(name, words), started])


def _placed(name: str, words: Sequence[Word]) -> Uses:
    """Return the files that an unknown program names. What else its words say is as unknown as the program."""
    return placed_uses(name, words)._replace(is_unknown=True)


def _unknown(first: Word) -> Uses:
    """Return what is not known about a command, which may be something that the shell counts out itself."""
    if _COUNTED.match(first.text):
        return unknown(f"`{shown(first.text)}` may run what is in its brackets or in its variables.")
    return Uses(asks="Which program it is, is known only when it runs.")  # it may be `rm`


def _doubt(use: Use) -> Uses:
    """Return why a person must look at the use of a file."""
    if not (use.word.is_known or (use.word.found and use.access == "read")):
        return Uses(asks="A path is known only when it runs.", is_unknown=use.access == "read")
    if use.access != "read" and use.word.is_glob:
        return Uses(asks=f"It changes every file that `{shown(use.word.text)}` matches.")
    if use.access == "write" and _BACK.search(use.word.text):
        return Uses(asks=f"{shown(use.word.text)} goes through a folder that it may make.")
    return NOTHING
