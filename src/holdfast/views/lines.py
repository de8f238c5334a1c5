"""Lines for people: styled spans, aligned tables, text that is safe to show, times and amounts in few words.

Everything that was stored passes `neutral` before it is shown: a tool's output must not move the cursor, change
a title or hide what follows it. Where lines are written to belongs to who shows them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but tab and newline, what changes the direction of a text, and what cannot be seen."""
_INDENT = re.compile(r"\s*(?:\S+ )?\S+ {2,}|\s*")
"""The head of a line, as `  model     `: what does not fit goes on below the text after it."""
COMMAND = "command"
"""The style of a command that works when it is copied: it is shown on one line, as this program was called."""
FRAME = "│ "
"""Stands before text that is shown exactly as it is."""
_LAST_CELLS = 16
"""A table rather loses a column than more of its last one."""


class Span(NamedTuple):
    """A piece of a line, in a style that terminals show: `bold`, `dim`, `red`, `green` ..., or `COMMAND`."""

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


def wrapped(line: Line, width: int) -> Iterator[Sequence[Span]]:
    """The line in pieces of at most so many cells, broken between words.

    A command is never broken. What does not fit on a line of its own, and framed text, is left to the terminal.
    """
    spans = [each if isinstance(each, Span) else Span(each) for each in line]
    text = "".join(span.text for span in spans)
    head = _INDENT.match(text)
    if cells(text) <= width or text.lstrip().startswith(FRAME) or head is None:
        yield spans
        return
    indent = min(cells(head[0]), width // 2)
    piece: list[Span] = []
    used, is_begun = 0, False
    for span in spans:
        for word in [span.text] if span.style == COMMAND else re.findall(r"\s+|\S+", span.text):
            if is_begun and used + cells(word) > width and indent + cells(word) <= width:
                yield piece
                piece, used, is_begun = [Span(" " * indent)], indent, False
                if word.isspace():
                    continue
            piece.append(Span(word, span.style))
            used += cells(word)
            is_begun = is_begun or not word.isspace()
    yield piece


def table(
    rows: Sequence[Sequence[Span | str]],
    width: int = 0,
    *,
    right: Sequence[int] = (),
    drop: Sequence[int] = (),
) -> list[Line]:
    """Rows of cells as aligned lines.

    Args:
        width: How many cells a line may take; 0: any number.
        right: The columns whose cells end flush.
        drop: The columns that a narrow terminal does without, the first of them first.
    """
    spans = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    widths = {at: max(cells(row[at].text) for row in spans) for at in range(len(spans[0]))} if spans else {}
    for at in drop:
        if width and _least(widths) > width:
            del widths[at]
    last = max(widths, default=0)
    if width and last not in right and widths:
        others = sum(widths.values()) - widths[last] + 2 * (len(widths) - 1)
        widths[last] = min(widths[last], max(width - others, 1))
    lines: list[Line] = []
    for row in spans:
        line: list[Span] = []
        for at, cells_wide in widths.items():
            text, style = row[at]
            if at == last and at not in right:
                line.append(Span(clipped(text, cells_wide), style))
            else:
                line += [Span(padded(text, cells_wide, is_right=at in right), style)]
                line += [Span("  ")] if at != last else []
        lines.append(line)
    return lines


def _least(widths: dict[int, int]) -> int:
    """How many cells columns take with a last one that is clipped."""
    *others, last = widths.values()
    return sum(others) + 2 * len(others) + min(last, _LAST_CELLS)


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
