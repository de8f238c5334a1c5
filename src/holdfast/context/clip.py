"""Clips long texts to head and tail, so that a model sees how an output began and how it ended.

Pure. The caller stores the whole text; this only names it.
"""

from __future__ import annotations

import re

from holdfast.protocol.counts import counted

_HEAD_SHARE = 0.6
"""The head is slightly longer: the head shows what it is, the tail shows the result."""
_LINE_SLACK = 0.2
"""How much of each half may be given up to cut between two lines."""

_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def clip(text: str, max_chars: int, blob: str = "") -> str:
    """Return the text if it fits, otherwise its head and tail around a line that says how much was left out.

    Args:
        text: Any text. Control characters except tab and newline, and lone surrogates, become `\\ufffd`.
        max_chars: The most characters of the result, with the marker (unless the marker alone is longer).
        blob: The blob that has the whole text; empty if it is not stored.
    """
    text = clean(text)
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_marker(len(text), text.count("\n"), blob)) - 1
    head_chars = max(int(room * _HEAD_SHARE), 0)
    head = _whole_lines_before(text, head_chars)
    tail = _whole_lines_after(text, len(text) - max(room - head_chars, 0))
    left_out = text[len(head) : len(text) - len(tail)]
    newline = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{newline}{_marker(len(left_out), left_out.count(chr(10)), blob)}{tail}"


def clean(text: str) -> str:
    """Return the text with `\\ufffd` for everything that cannot be shown or encoded."""
    return _UNSAFE.sub("\ufffd", text)


def _marker(chars: int, lines: int, blob: str) -> str:
    whole = f"; the full text is blob {blob}" if blob else ""
    return f"[... {counted(chars, 'character')}, {counted(lines, 'line')} left out{whole} ...]\n"


def _whole_lines_before(text: str, end: int) -> str:
    newline = text.rfind("\n", int(end * (1 - _LINE_SLACK)), end)
    return text[: newline + 1] if newline >= 0 else text[:end]


def _whole_lines_after(text: str, start: int) -> str:
    newline = text.find("\n", start, start + int((len(text) - start) * _LINE_SLACK) + 1)
    return text[newline + 1 :] if newline >= 0 else text[start:]
