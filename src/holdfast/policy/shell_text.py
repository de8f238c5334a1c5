"""The text of a shell command before it is read: its bound, what hides in it, and its syntax tree."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser

MAX_TEXT_BYTES = 32_768
"""A longer text is not read: what it does is not known."""
MAX_PIPES = 1_000
"""A text with more `|` is not read: the parser needs long for them if something else is wrong."""
MAX_COMMANDS = 2_000
"""How many simple commands of a text are read."""
MAX_WORDS = 20_000
"""How many words they may have."""
TOO_MANY = "it has too many commands or words"

_AT_ONCE = 1_024
"""A text up to this length is parsed without counting: at the worst, that costs as little."""
_CHUNK = 1_024
_READS_PER_CHUNK = 8
_STEPS_PER_BYTE = 0.25
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
"""The parser reads memory that is not its own, and may crash, when it classifies such a character. For the shell each
is a part of a word. So the tree is made of letters instead, and `shell_words` reads what they stand for."""
_ODD = re.compile(r"[^\t\n\r\x20-\x7e]")
_FILLERS = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Invisible characters that Unicode counts as letters, marks or symbols."""
_JOINS_EMOJI = frozenset("\u200d\ufe0f")


class Unreadable(Exception):
    """The text cannot be read. The message says why, in words for a person."""


def hidden_in(text: str) -> str:
    """Return the invisible and bidirectional characters of a text, spelled out; empty if it has none."""
    if text.isascii() and not _ODD.search(text):
        return ""
    found = dict.fromkeys(
        text[at.start()] for at in _ODD.finditer(text) if _is_hidden(text[max(at.start() - 1, 0) : at.end()])
    )
    return ", ".join(f"U+{ord(char):04X}" for char in list(found)[:5])


def _is_hidden(pair: str) -> bool:
    """Return whether the last character of a pair does not show, or changes the order of others."""
    char = pair[-1]
    if char in _FILLERS:
        return True
    category = unicodedata.category(char)
    if char in _JOINS_EMOJI or "\ufe00" <= char <= "\ufe0f":  # they belong to the picture before them
        return len(pair) < 2 or not (unicodedata.category(pair[0]) in ("So", "Sk") or pair[0] == "\ufe0f")
    return category in ("Cc", "Cf", "Zl", "Zp", "Cn", "Co")


def encoded(text: str) -> bytes:
    """Return a text as bytes.

    Raises:
        Unreadable: it is not valid, or too long.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Unreadable("it is not valid Unicode text") from None
    if len(data) > MAX_TEXT_BYTES:
        raise Unreadable(f"it is longer than {MAX_TEXT_BYTES:,} bytes")
    if data.count(b"|") > MAX_PIPES:
        raise Unreadable("it has too many pipes")
    return data


def tree_of(data: bytes) -> Node:
    """Return the root of the syntax tree of a text. What does not fit the grammar is in nodes `ERROR`.

    Raises:
        Unreadable: reading it takes too long.
    """
    if not data.isascii():
        data = _BEYOND_ASCII.sub(b"Z", data)
    parser = tree_sitter_parser()
    if len(data) <= _AT_ONCE:
        return parser.parse(data).root_node
    reads, most_reads = 0, 32 + _READS_PER_CHUNK * (len(data) // _CHUNK)
    steps, most_steps = 0, 64 + len(data) * _STEPS_PER_BYTE

    def read(offset: int, _: object) -> bytes:
        nonlocal reads
        reads += 1
        return data[offset : offset + _CHUNK] if reads <= most_reads else b""

    def is_enough(_: int, has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return has_error or steps > most_steps or reads > most_reads

    try:
        root = parser.parse(read, progress_callback=is_enough).root_node
    except ValueError:
        raise Unreadable("it does not follow the grammar of a shell") from None
    if reads > most_reads:
        raise Unreadable("its quotes and brackets take too long to match")
    return root


def tree_sitter_parser() -> Parser:
    """Make a parser of the shell language. Its library is loaded when the first one is made."""
    from tree_sitter import Parser

    return Parser(_language())


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())
