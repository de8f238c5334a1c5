"""Reads the documents that a shell text gives to its commands: `<<END`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.policy.shell_text import Unreadable
from holdfast.policy.simple import Word

if TYPE_CHECKING:
    from tree_sitter import Node

    from holdfast.policy.shell_words import WordReader

_DELIMITER = re.compile(
    r"(?P<plain>[A-Za-z0-9_.!@%+-]+)|'(?P<single>[^'\\\n]+)'|\"(?P<double>[^\"\\$`\n]+)\""
)
_OWN = ("file_descriptor", "<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end", "\n")


def after_document(node: Node) -> list[Node]:
    """Return what follows `<<END` on its line."""
    return [child for child in node.children if child.type not in _OWN]


def ends_of_documents(node: Node) -> Iterator[int]:
    """Return where the documents under a node end."""
    stack = [node]
    while stack:
        each = stack.pop()
        if each.type == "heredoc_redirect":
            yield each.end_byte
        stack.extend(each.children)


def document_of(node: Node, data: bytes, words: WordReader) -> Word:
    """Return the text of a document. It is not known if the shell expands something in it.

    Raises:
        Unreadable: the tree and the shell may see its end in different places, or it is not understood.
    """
    parts = {child.type: child for child in node.children if child.type in _OWN}
    start, body, end = parts.get("heredoc_start"), parts.get("heredoc_body"), parts.get("heredoc_end")
    found = _DELIMITER.fullmatch(words.text(start)) if start is not None else None
    if start is None or found is None or end is None:
        raise Unreadable("a document has no plain delimiter or no end")
    delimiter = found[0].strip("'\"").encode()
    first = data.find(b"\n", start.end_byte) + 1
    if any(child.end_byte > first for child in after_document(node)):
        raise Unreadable("what follows a document is not understood")
    is_indented = "<<-" in parts
    at, line = first, b""
    while at <= end.end_byte:
        after = data.find(b"\n", at)
        line = data[at : after if after >= 0 else len(data)]
        if (line.lstrip(b"\t") if is_indented else line) == delimiter:
            break
        if after < 0:
            break
        at = after + 1
    if end.end_byte != at + len(line) or (
        body is not None and not first <= body.start_byte <= body.end_byte <= at + len(line)
    ):
        raise Unreadable("the end of a document is not understood")
    if found["plain"] is None or body is None:
        return Word(data[first:at].decode())
    if b"\\\n" in data[first:at]:
        raise Unreadable("a line of a document is broken")
    pieces = words.quoted_pieces(body.children, first, at, is_document=True)
    return Word("".join([piece.text for piece in pieces]), all(piece.kind != "unknown" for piece in pieces))
