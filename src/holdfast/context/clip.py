"""Clips long texts, so that a model sees what matters in them: what their shape shows, then head and tail.

Pure and linear. The caller stores the whole text, and says here how to read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.context.clip_diffs import changed_files
from holdfast.context.clip_json import outline
from holdfast.context.clip_rows import rows
from holdfast.context.clip_tests import failures
from holdfast.protocol.counts import counted

SHAPED_FROM_CHARS = 2_000
"""In less room, a shape leaves no head and no tail."""

_SHAPES: tuple[Callable[[str, int], str], ...] = (failures, changed_files, outline, rows)
"""What is known about shapes: each returns what matters in a text of its shape, within some characters; empty for
other texts. An output may have several: a diff, then tests."""
_SHAPE_SHARE = 0.65
"""The most room for what shapes show. A text that only looks like something still shows its head and tail."""
_HEAD_SHARE = 0.6
"""The head is slightly longer: the head shows what it is, the tail shows the result."""
_SHAPED_HEAD_SHARE = 0.35
"""Beside a shape, the tail is longer: it sums up, and ends with what went wrong at last."""
_LINE_SLACK = 0.2
"""How much of each half may be given up to cut between two lines."""

_CONTROLS = bytes(
    byte if byte in b"\t\n\r" or (byte > 0x1F and byte != 0x7F) else byte == 0 for byte in range(256)
)
"""Maps control characters to the first two bytes: 0 to 1, all others to 0. So whatever has one is changed."""
_COLOUR = re.compile("\ufffd\\[[0-9;?]*[A-Za-z]")
_CHARS_PER_COLOUR = 12
"""A text with more control sequences than one in so many characters keeps them: they are not colours."""


def clip(text: str, max_chars: int, rest: str = "") -> str:
    """Return the text if it fits, otherwise what its shape shows, with its head and tail and a line that says how
    much was left out.

    Args:
        text: Any text. Control characters except tab and newline, and lone surrogates, become `\\ufffd`; the colours
            of a clipped text are dropped.
        max_chars: The most characters of the result, with the marker (unless the marker alone is longer).
        rest: How to read the whole text, for the marker.
    """
    text = clean(text)
    if len(text) <= max_chars:
        return text
    total, plain = len(text), _plain(text)
    room = max_chars - len(_marker(total, text.count("\n"), rest)) - 2
    shown = _shapes(plain, int(room * _SHAPE_SHARE)) if max_chars >= SHAPED_FROM_CHARS else ""
    room -= len(shown)
    head_chars = max(int(room * (_SHAPED_HEAD_SHARE if shown else _HEAD_SHARE)), 0)
    head = _whole_lines_before(plain, head_chars)
    tail = _whole_lines_after(plain, len(plain) - max(room - head_chars, 0))
    newline = "" if not head or head.endswith("\n") else "\n"
    lines = plain.count("\n", len(head), len(plain) - len(tail))
    return f"{head}{newline}{_marker(total - len(head) - len(tail), lines, rest)}{shown}{tail}"


def clean(text: str) -> str:
    """Return the text with `\\ufffd` for everything that cannot be shown or encoded."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # lone surrogates
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        encoded = text.encode()
    # Over bytes: a pattern takes long for a text that is full of control characters.
    mapped = encoded.translate(_CONTROLS)
    return text if mapped == encoded else mapped.decode().replace("\0", "\ufffd").replace("\1", "\ufffd")


def _plain(text: str) -> str:
    """Return the text with `\\n` at the ends of its lines, and without colours."""
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    if 0 < text.count("\ufffd[") * _CHARS_PER_COLOUR < len(text):
        text = _COLOUR.sub("", text)
    return text


def _shapes(text: str, room: int) -> str:
    shown = ""
    for shape in _SHAPES:
        found = shape(text, room - len(shown) - 1)
        shown += f"{found}\n" if found else ""
    return shown


def _marker(chars: int, lines: int, rest: str) -> str:
    whole = f"; {rest}" if rest else ""
    return f"[... {counted(chars, 'character')}, {counted(lines, 'line')} left out{whole} ...]\n"


def _whole_lines_before(text: str, end: int) -> str:
    newline = text.rfind("\n", int(end * (1 - _LINE_SLACK)), end)
    return text[: newline + 1] if newline >= 0 else text[:end]


def _whole_lines_after(text: str, start: int) -> str:
    newline = text.find("\n", start, start + int((len(text) - start) * _LINE_SLACK) + 1)
    return text[newline + 1 :] if newline >= 0 else text[start:]
