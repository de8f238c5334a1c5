"""Reads plain shell texts: literal words with blanks, `&&`, `||`, `;` and `|` between them. A command may end with
`2>&1` or `>/dev/null`.

Most commands are plain. Nothing in them has a second meaning, so a pattern reads them, in a tenth of the time that a
syntax tree takes. `shell` reads all others, and what this module leaves to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.policy.shell_flow import OF_SHELL, START, Flow, Ways, sets_variables, ways_of
from holdfast.policy.shell_text import MAX_COMMANDS, MAX_WORDS, TOO_MANY
from holdfast.policy.simple import Redirection, Script, SimpleCommand, Word, fed

_TOKEN = re.compile(
    r"""
    [ ]*+ (?:
        ([A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*+ | '[^'\n]*+' | "[^"\n$`\\!]*+") (?=[ ;|&]|\Z)
      | (&& | \|\| | [;|])
      | ((?:2>&1 | 2?>[ ]?/dev/null) (?=[ ]*+(?:[;|]|&&|\Z)|[ ]++2?>))
      | (.+)
    )
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_PROGRAM = re.compile(r"""[A-Za-z0-9_./][A-Za-z0-9_.+/-]*\Z|['"]""")
"""A first word that no grammar takes for anything else."""
_END = ("", ";", "", "")
_WIDE = " " * 100
"""The tree judges what is pushed out of sight."""
RESERVED = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "select",
    "function", "coproc", "{", "}", "!", "[[", "]]",
})  # fmt: skip
_OF_GRAMMAR = RESERVED | {"time", "declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}
"""First words that the grammar of the shell knows. What follows them is not read like other words."""

_TO_NOTHING = Redirection(">", Word("/dev/null"))

Pipeline = list[tuple[tuple[Word, ...], tuple[Redirection, ...]]]
"""The words and the redirections of each command."""


def plain_script(text: str, home: str, entry: Flow = START) -> Script | None:
    """Read a plain text; None if it is not plain.

    Args:
        text: What a shell would run.
        home: The folder that a `cd` without a word leads to; empty if it is not known.
        entry: Where it may run.
    """
    if _WIDE in text:
        return None
    tokens = _TOKEN.findall(text.rstrip(" ").removesuffix(";").rstrip(" "))
    pipelines = _pipelines(tokens)
    if pipelines is None:
        return None
    is_literal = not "".join([redirected for _, _, redirected, _ in tokens])
    if len(pipelines) == 1 and len(pipelines[0][1]) == 1:
        ((words, redirections),) = pipelines[0][1]
        if words[0].text not in OF_SHELL and len(words) < MAX_WORDS // 2:
            only = SimpleCommand(words, (), redirections, entry.folders, entry.is_known)
            return Script((only,), is_plain=is_literal, ends=entry.folders)
    ways = Ways(entry, entry)
    commands: list[SimpleCommand] = []
    words_left, count, data = MAX_WORDS, 0, text.encode()
    for operator, pipeline in pipelines:
        entry = ways.entry(operator)
        if len(pipeline) > 1:
            count += 1
        pipes = (count,) if len(pipeline) > 1 else ()
        for words, redirections in pipeline:
            words_left -= 1 + len(words) + len(redirections)
            if len(commands) >= MAX_COMMANDS or words_left < 0:
                return Script(tuple(commands), TOO_MANY)
            commands.append(SimpleCommand(words, (), redirections, entry.folders, entry.is_known, pipes))
        if len(pipeline) > 1:
            commands[-len(pipeline) :] = fed(commands[-len(pipeline) :], data)
        found = Ways(entry, entry)
        words = pipeline[0][0]
        if len(pipeline) == 1 and words[0].text in OF_SHELL:  # longer ones run in shells of their own
            if sets_variables(words):
                home = ""
            found = ways_of(words, entry, home)
        ways = ways.then(found, operator)
    return Script(tuple(commands), is_plain=is_literal, ends=ways.either.folders)


def _pipelines(tokens: Iterable[tuple[str, ...]]) -> list[tuple[str, Pipeline]] | None:
    """Return the pipelines of a plain text, each with the operator before it."""
    found: list[tuple[str, Pipeline]] = []
    operator, pipeline = "", Pipeline()
    words, redirections, is_redirected = list[Word](), list[Redirection](), False
    for literal, mark, redirected, other in (*tokens, _END):
        if other or not (literal or words):
            return None
        if literal:
            is_no_program = not words and (literal in _OF_GRAMMAR or not _PROGRAM.match(literal))
            if is_redirected or is_no_program:
                return None
            words.append(Word(literal[1:-1] if literal[0] in "'\"" else literal))
        elif redirected:
            is_redirected = True
            if redirected != "2>&1":
                redirections.append(_TO_NOTHING)
        else:
            pipeline.append((tuple(words), tuple(redirections)))
            words, redirections, is_redirected = [], [], False
            if mark != "|":
                found.append((operator, pipeline))
                operator, pipeline = mark, []
    return found
