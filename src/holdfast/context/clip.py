"""Long texts cut to head and tail, so that a model sees how an output began and how it ended.

Pure. Where the whole is kept is the caller's business; here it is only named.
"""

from __future__ import annotations

import re

_HEAD_SHARE = 0.6
"""A little more head than tail: the head says what it is, the tail what came of it."""
_LINE_SLACK = 0.2
"""How much of a half may be given up so that the cut falls between two lines."""

_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def clip(text: str, max_chars: int, blob: str = "") -> str:
    """The text itself when it fits, else its head and tail around a line that tells what was left out.

    Args:
        text: Any text; control characters but tab and newline, and lone surrogates, come out as `\\ufffd`.
        max_chars: The most characters that the result may have, marker included (unless the marker alone
            is longer).
        blob: The handle under which the whole is kept; empty when it is not.
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
    """The text with what no reader can show, and no encoder can write, replaced by `\\ufffd`."""
    return _UNSAFE.sub("\ufffd", text)


def _marker(chars: int, lines: int, blob: str) -> str:
    whole = f"; the whole is blob {blob}" if blob else ""
    return f"[... {chars} characters, {lines} lines left out{whole} ...]\n"


def _whole_lines_before(text: str, end: int) -> str:
    newline = text.rfind("\n", int(end * (1 - _LINE_SLACK)), end)
    return text[: newline + 1] if newline >= 0 else text[:end]


def _whole_lines_after(text: str, start: int) -> str:
    newline = text.find("\n", start, start + int((len(text) - start) * _LINE_SLACK) + 1)
    return text[newline + 1 :] if newline >= 0 else text[start:]
