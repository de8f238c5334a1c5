"""Finds the files that a text inside a command names: a script of an interpreter, a document, a message.

Nobody reads such texts as their programs do. But a name that is written out in one counts as used, if there is such a
file: a secret is read, and a file that controls other programs is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

from holdfast.policy.commands import Command, Step, pieces_of, program_of, texts_of
from holdfast.policy.paths import may_be_secret, secret_rule
from holdfast.policy.protected import steering
from holdfast.policy.simple import SimpleCommand
from holdfast.policy.uses import LOOKS_AT_NAMES
from holdfast.protocol.launchers import SHELLS, is_interpreter

_NAME = re.compile(r"""[^\s'"`()\[\]{}<>|&;,=:@$!?*+^#%]+""")
_ESCAPED_BLANK = re.compile(r"\\[nrt0]")
_AFTER_LETTER = re.compile(r"[0-9]*[rRwWe](?=[./~])")
"""What an editor writes in front of a file: `r.env`."""
_IS_CODE = re.compile(r"""[\s'"(]""")
_TAKES_NAMES = frozenset({"parallel", "cpio", "pax", "zip", "tar", "rsync"})
"""Programs that may get the names of files, or more words, on their input."""
_TAKES_TEXT = frozenset({"read", "mapfile", "readarray", ""})
_MESSAGES = {"git": re.compile(r"-[a-zA-Z]*m|--message"), "gh": re.compile(r"-[mbt]|--body|--title")}
"""Options whose value is prose for people."""


def secret_named(command: Command) -> str:
    """Return the first word that names a secret path; empty if no word does."""
    words = [word for step in command.simple for word in texts_of(step.command)]
    if not may_be_secret("\n".join(words)):
        return ""
    named, run = takers(command.simple)
    if 0 not in named:  # otherwise a word may go anywhere
        words = [word for step in command.simple for word in _names_in(step, run)]
    return next(
        (piece for word in dict.fromkeys(words) for piece in pieces_of(word) if secret_rule(piece)), ""
    )


def _names_in(step: Step, run: set[int]) -> list[str]:
    """Return the texts of a command that may name a path. If all of it is known, its other words are only text."""
    command, uses = step.command, step.uses
    if uses.asks or uses.denies or uses.inner or uses.scripts or not run.isdisjoint(command.pipes):
        return texts_of(command)
    return [*texts_of(command._replace(words=())), *[use.word.text for use in uses.files]]


def takers(steps: Iterable[Step]) -> tuple[set[int], set[int]]:
    """Return the pipelines in which a command may read the files whose names others print, and those in which one
    takes what others print for code or for names.
    """
    named, run = set[int](), set[int]()
    for step in steps:
        command = step.command
        program = program_of(command)
        files = [each.target for each in command.redirections if each.operator == "<"]
        is_open = any(not word.is_known for word in (*command.words[1:], *files))
        if program in _TAKES_NAMES or (is_open and program not in LOOKS_AT_NAMES):
            named.update(command.pipes, (0,) if is_open else ())
        if program in _TAKES_NAMES or program in SHELLS or is_interpreter(program) or is_open:
            run.update(command.pipes, (0,))
    return named, run


def mentioned(step: Step, is_taken: bool) -> Iterator[tuple[str, Literal["read", "write"]]]:
    """Return the names of files in the texts of a command, with what may be done to them.

    Args:
        step: The command.
        is_taken: Whether another command takes what it prints for code or for names.
    """
    command, uses = step.command, step.uses
    program = program_of(command)
    prints = is_taken and (program != "find" or "-printf" in command.texts)
    is_unread = bool(uses.asks or uses.denies or not command.is_folder_known)
    texts = list(_words(command, program)) if is_unread or prints else []
    documents = [each.target.text for each in command.redirections if each.operator.startswith("<<")]
    if not (is_unread or prints or uses.inner or uses.scripts or program in _TAKES_TEXT):
        documents = []
    every = "\0".join(texts)
    if not documents and "/" not in every and not _IS_CODE.search(every) and not may_be_secret(every):
        return
    for text in dict.fromkeys(chain(texts, documents)):
        is_code = text in documents or bool(_IS_CODE.search(text))
        if not (is_code or "/" in text or may_be_secret(text)):
            continue
        whole = pieces_of(text)
        for name in dict.fromkeys(_NAME.findall(_ESCAPED_BLANK.sub(" ", text) if prints else text)):
            names = [_AFTER_LETTER.sub("", name, count=1)]
            if name not in whole or text in documents:
                names += [name, name.lstrip("-")]
            for each in dict.fromkeys(names):
                yield from _used(each, is_code=is_code)


def _used(name: str, *, is_code: bool) -> Iterator[tuple[str, Literal["read", "write"]]]:
    is_secret = bool(secret_rule(name))
    if is_code and (found := steering(name, "")) is not None and found[1].verdict == "deny":
        yield name, "write"
    elif is_secret or "/" in name:
        yield name, "read"
    if is_secret and name.startswith("/"):  # `home + '/.ssh/id_rsa'`
        yield f"~{name}", "read"
        yield name.lstrip("/"), "read"


def _words(command: SimpleCommand, program: str) -> Iterator[str]:
    """Return the texts of a command's words, without those that are prose."""
    message = _MESSAGES.get(program)
    is_message = False
    for word in command.words[1:]:
        name = word.text.partition("=")[0]
        if not is_message and not (message and "=" in word.text and message.fullmatch(name)):
            yield word.text
        is_message = bool(message and message.fullmatch(word.text))
    yield from (value.text for _, value in command.assigned)
