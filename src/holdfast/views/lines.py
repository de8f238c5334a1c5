"""Lines for people: styled spans, aligned tables, text that is safe to show, times and amounts in few words.

Everything that was stored passes `neutral` before it is shown: a tool's output must not move the cursor, change
a title or hide what follows it. Where lines are written to belongs to who shows them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but tab and newline, what changes the direction of a text, and what cannot be seen."""


class Span(NamedTuple):
    """A piece of a line, in a style that terminals show: `bold`, `dim`, `red`, `green` ..."""

    text: str
    style: str = ""


Line = Sequence[Span | str]


def neutral(text: str) -> str:
    """The text with everything that a terminal would act on written out: `\\x1b[2J`."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def safe_json(value: object) -> str:
    """The value as JSON on one line; what a terminal would act on is escaped in it."""
    text = msgspec.json.encode(value).decode()
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str, width: int) -> str:
    """The text on one line of at most that many cells, safe to show; an ellipsis stands for the rest."""
    return clipped(" ".join(neutral(text[: width * 8]).split()), width)


def clipped(text: str, width: int) -> str:
    """The beginning of a line that fits into so many cells, with an ellipsis when it is not all."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += cells(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """The text filled up with blanks to so many cells."""
    blanks = " " * max(width - cells(text), 0)
    return blanks + text if is_right else text + blanks


def table(rows: Sequence[Sequence[Span | str]], right: Sequence[int] = ()) -> list[Line]:
    """Rows of cells as aligned lines; the columns numbered in `right` end flush, the last is not padded."""
    spans = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    widths = [max(cells(row[at].text) for row in spans) for at in range(len(spans[0]))] if spans else []
    lines: list[Line] = []
    for row in spans:
        line: list[Span] = []
        for at, (text, style) in enumerate(row):
            is_last = at == len(row) - 1 and at not in right
            shown = text if is_last else padded(text, widths[at], is_right=at in right)
            line += [Span(shown, style), Span("" if at == len(row) - 1 else "  ")]
        lines.append(line)
    return lines


def iso(at_ms: int) -> str:
    """A moment for scripts: ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at_ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment for people, in the time zone of this machine."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime(form)


def moment(at_ms: int, now_ms: int) -> str:
    """A moment near now: the time of day, and the date where it is another day."""
    time = local(at_ms, "%H:%M:%S")
    day = local(at_ms, "%Y-%m-%d")
    return time if day == local(now_ms, "%Y-%m-%d") else f"{day} {time}"


def took(duration_ms: int) -> str:
    """A length of time for people: `0.4s`, `12s`, `3m 05s`, `2h 10m`."""
    seconds = duration_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes_left:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def counted(count: int, name: str) -> str:
    """So many of a thing: `1 turn`, `12 turns`."""
    return f"{count:,} {name}" + ("" if count == 1 else "s")


def short(count: int) -> str:
    """A large number for people: `950`, `12.3k`, `4.1M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
