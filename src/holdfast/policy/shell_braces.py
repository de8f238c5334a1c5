"""Writes out braces as the shell does: `{a,b}` and `{1..3}`, nested and side by side, with a bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, product

from holdfast.policy.shell_text import Unreadable
from holdfast.policy.simple import Piece

MAX_WORDS = 1_024
"""How many words one word may become."""
_MAX_DEPTH = 16
_TOKEN = re.compile(r"[{},]|[^{},]+")
_RANGE = re.compile(r"(?:(-?\d{1,9})\.\.(-?\d{1,9})|([A-Za-z])\.\.([A-Za-z]))(?:\.\.(-?\d{1,9}))?", re.ASCII)
_TOO_MANY = "its braces stand for too many words"

Pieces = list[Piece]


def expanded_braces(pieces: Sequence[Piece], budget: list[int]) -> list[Pieces]:
    """Return the words that a word with braces becomes, each as its parts.

    Args:
        pieces: The parts of the word.
        budget: How many more characters words may have.

    Raises:
        Unreadable: it has braces without a partner, or becomes too many words.
    """
    tokens: Pieces = []
    for piece in pieces:
        if piece.kind == "raw":
            tokens += [piece._replace(text=text) for text in _TOKEN.findall(piece.text)]
        else:
            tokens.append(piece)
    levels: list[list[list[Pieces]]] = [[[[]]]]
    """For each open brace, its alternatives so far; each is the list of words that it stands for."""
    for token in tokens:
        mark = token.text if token.kind == "raw" else ""
        if mark == "{":
            if len(levels) > _MAX_DEPTH:
                raise Unreadable("its braces are nested too deeply")
            levels.append([[[]]])
        elif mark == "," and len(levels) > 1:
            levels[-1].append([[]])
        elif mark == "}":
            if len(levels) == 1:
                raise Unreadable("a brace has no partner")
            within = _alternatives(token, levels.pop())
            levels[-1][-1] = _times(levels[-1][-1], within, budget)
        else:
            for word in levels[-1][-1]:
                word.append(token)
            budget[0] -= len(levels[-1][-1])
            if budget[0] < 0:
                raise Unreadable(_TOO_MANY)
    if len(levels) > 1:
        raise Unreadable("a brace has no partner")
    found = levels[0][0]
    if any(piece.is_open for piece in pieces) and any(_is_misread(word) for word in found):
        raise Unreadable("a variable and braces touch")
    return found


def _is_misread(word: Pieces) -> bool:
    """Return whether a variable in a word becomes another one: the shell writes out braces first."""
    written = [piece for piece in word if piece.text or piece.kind == "quoted"]
    return any(
        first.is_open and second.kind == "raw" and (second.text[0].isalnum() or second.text[0] == "_")
        for first, second in pairwise(written)
    )


def _alternatives(closing: Piece, alternatives: list[list[Pieces]]) -> list[Pieces]:
    """Return what a pair of braces stands for."""
    if len(alternatives) > 1:
        return [word for each in alternatives for word in each]
    words = alternatives[0]
    if len(words) == 1 and all(piece.kind == "raw" for piece in words[0]):
        text = "".join([piece.text for piece in words[0]])
        if found := _RANGE.fullmatch(text):
            return [[closing._replace(text=each, is_range=True)] for each in _range(found)]
    if any(piece.kind == "raw" and ".." in piece.text for word in words for piece in word):
        raise Unreadable("a range in braces is not understood")
    return [[closing._replace(text="{"), *word, closing] for word in words]


def _range(found: re.Match[str]) -> list[str]:
    is_number = found[1] is not None
    first, last = (int(found[1]), int(found[2])) if is_number else (ord(found[3]), ord(found[4]))
    step = abs(int(found[5] or 1)) or 1
    if abs(last - first) // step >= MAX_WORDS:
        raise Unreadable(_TOO_MANY)
    if is_number and any(
        len(each.lstrip("-")) > 1 and each.lstrip("-")[0] == "0" for each in (found[1], found[2])
    ):
        raise Unreadable("a range in braces is not understood")  # the shell fills such numbers up with zeros
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if not is_number and not all(chr(each).isalnum() for each in numbers):
        raise Unreadable("a range in braces is not understood")
    return [str(each) if is_number else chr(each) for each in numbers]


def _times(before: list[Pieces], after: list[Pieces], budget: list[int]) -> list[Pieces]:
    if len(before) * len(after) > MAX_WORDS:
        raise Unreadable(_TOO_MANY)
    found = [[*first, *second] for first, second in product(before, after)]
    budget[0] -= sum(map(len, found))
    if budget[0] < 0:
        raise Unreadable(_TOO_MANY)
    return found
