"""Finds text that may become a secret when it continues: a card's first digits, an open quotation, the first line of
a private key.

Unfinished words need none of this: they are not shown before they end.
"""

from __future__ import annotations

import re
from itertools import chain

from holdfast.redact.assigned import find_assigned
from holdfast.redact.credentials import find_credentials
from holdfast.redact.likely import GATE

_SEEN_CHARS = 512
"""The longest quotation of a secret."""
_CARD_BEGUN = re.compile(r"(?<![\w.+-])[2-6]\d{3}(?:[ -]\d{1,6}){0,4}[ -]?\Z")
_KEY_BEGUN = re.compile(r"-----BEGIN[A-Z0-9 ]{0,60}-{0,4}\Z")
_MARKS = "\"'`"


def find_begun(text: str) -> int:
    """Return where the begun secret starts; the length of the text if none has begun."""
    line = text[max(text.rfind("\n") + 1, len(text) - _SEEN_CHARS) :]
    begin = len(line)
    if (text[-1:].isdigit() or text[-2:-1].isdigit()) and (card := _CARD_BEGUN.search(line)):
        begin = card.start()
    if "-----BEGIN" in line and (key := _KEY_BEGUN.search(line)):
        begin = min(begin, key.start())
    for mark in _MARKS:
        if mark in line and _is_open(line, mark):
            begin = min(begin, _quoted(line, mark))
    return len(text) - len(line) + begin


def _is_open(line: str, mark: str) -> bool:
    """Return whether a quotation is open, or one with `\\` before its marks, as within a string of JSON."""
    escaped = line.count("\\" + mark)
    return bool(escaped % 2 or (line.count(mark) - escaped) % 2)


def _quoted(line: str, mark: str) -> int:
    """Return where the secret begins in the quotation, if another word of it ends the line."""
    closed = f"{line}0{mark}"
    if not GATE.is_open(closed):
        return len(line)
    spans = chain(find_assigned(closed), find_credentials(closed))
    return min((span.start for span in spans if span.end >= len(line)), default=len(line))
