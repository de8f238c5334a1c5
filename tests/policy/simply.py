"""Simple commands as the tests of the table write them: no operators, and `$` for what is only known when it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from holdfast.policy.programs import uses_of
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import Uses

RAW = re.compile(r"""(?:'[^']*'|"[^"]*"|[^'"\s])+""")
"""A word with its quotes."""


def command(text: str) -> SimpleCommand:
    """A command of words with blanks between them. A variable or a wildcard counts outside quotes."""
    return SimpleCommand(tuple(words(text)))


def words(text: str) -> Iterator[Word]:
    for raw in RAW.findall(text):
        is_quoted = "'" in raw or '"' in raw
        plain = "".join(shlex.split(raw)[:1])
        yield Word(plain, is_quoted or "$" not in raw, not is_quoted and not {"*", "?"}.isdisjoint(raw))


def uses(text: str) -> Uses:
    return uses_of(command(text))


def files(text: str) -> set[str]:
    """The files of a command: `read a`, `write b`, `tree c`."""
    return {f"{use.access} {use.word.text}" for use in uses(text).files}


def is_known(text: str) -> bool:
    """Whether only the files of a command decide about it."""
    found = uses(text)
    return not (found.asks or found.denies or found.inner or found.scripts or found.sends)
