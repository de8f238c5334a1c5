"""Lines for people: styled spans, aligned tables, safe text, short forms of times and amounts.

Stored text must pass through `neutral` before it is shown: a tool's output must not move the cursor, change the
title or hide what follows it. Writing the lines is the business of the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\u115f\u1160\u2800\u3164\uffa0]"
)
"""Control characters except tab and newline, characters that change the text direction, invisible characters, and
letters that look like a blank."""
_INDENT = re.compile(r"\s*(?:\S+ )?\S+ {2,}|\s*")
"""The label of a line, like `  model     `. Wrapped text is indented to the column after it."""
COMMAND = "command"
"""The style of a command to copy. It is never wrapped, and shown as the user would have to type it."""
EXACT = "exact"
"""The style of text that must be shown exactly, at the end of its line. It is cut where the line is full, and each of
its further lines has a frame, so that it cannot pass for another line."""
FRAME = "│ "
"""Precedes text that must be shown exactly."""
_FIRST_MS = -62_135_510_400_000
"""The first full day of the calendar is over."""
_LAST_MS = 253_402_128_000_000
"""The last day but one of the year 9999 begins."""
_LAST_CELLS = 16
"""A table drops a column before it clips its last column below this width."""


class Span(NamedTuple):
    """A piece of a line with its style: `bold`, `dim`, `red`, `green` ..., or `COMMAND`."""

    text: str
    style: str = ""


Line = Sequence[Span | str]


MASKED = "masked copy"
"""Said beside arguments in which what looks like a secret is hidden; the call runs as the model wrote it."""


def neutral(text: str) -> str:
    """Escape everything in the text that a terminal would act on: `\\x1b[2J`."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def safe_json(value: object) -> str:
    """Return the value as JSON on one line, with everything escaped that a terminal would act on."""
    text = msgspec.json.encode(value).decode()
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str, width: int) -> str:
    """Return the text on one line of at most `width` cells, safe to show, with an ellipsis if it was cut."""
    return clipped(" ".join(neutral(text[: width * 8]).split()), width)


def clipped(text: str, width: int) -> str:
    """Cut a line to at most `width` cells, with an ellipsis if it was longer."""
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
    """Count the terminal cells that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """Pad the text with blanks to `width` cells."""
    blanks = " " * max(width - cells(text), 0)
    return blanks + text if is_right else text + blanks


def wrapped(line: Line, width: int) -> Iterator[Sequence[Span]]:
    """Wrap a line between words into pieces of at most `width` cells.

    Commands are never wrapped, and neither is a word that would not fit on a line of its own.
    """
    spans = [each if isinstance(each, Span) else Span(each) for each in line]
    if spans and spans[-1].style == EXACT:
        yield from _cut(spans[:-1], spans[-1].text.expandtabs(), width)
        return
    text = "".join(span.text for span in spans)
    head = _INDENT.match(text)
    if cells(text) <= width or head is None:
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
            if word.isspace() and not is_begun:
                word = word[: max(width // 2 - used, 0)]
            piece.append(Span(word, span.style))
            used += cells(word)
            is_begun = is_begun or not word.isspace()
    yield piece


def _cut(head: Sequence[Span], text: str, width: int) -> Iterator[Sequence[Span]]:
    """Yield the text after the head, cut into pieces that fit, each after the first behind a frame."""
    column = sum(cells(span.text) for span in head)
    frame = Span(" " * (column - len(FRAME)) + FRAME, "yellow")
    start, used = 0, column
    for at, character in enumerate(text):
        size = cells(character)
        if used + size > width and at > start:
            yield [*head, Span(text[start:at], EXACT)]
            head, start, used = [frame], at, column
        used += size
    yield [*head, Span(text[start:], EXACT)]


def table(
    rows: Sequence[Sequence[Span | str]],
    width: int = 0,
    *,
    right: Sequence[int] = (),
    drop: Sequence[int] = (),
) -> list[Line]:
    """Align rows of cells in columns.

    Args:
        width: The most cells that a line may take; 0 for no limit.
        right: The columns to align right.
        drop: The columns to leave out if the table is too wide, least important first.
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
    """Return the least width of the table: the last column may be clipped."""
    *others, last = widths.values()
    return sum(others) + 2 * len(others) + min(last, _LAST_CELLS)


def utc(at_ms: int) -> datetime:
    """Return a time. One that no calendar has becomes the nearest that every time zone can show."""
    within = min(max(at_ms, _FIRST_MS), _LAST_MS)
    return datetime.fromtimestamp(within // 1000, UTC).replace(microsecond=within % 1000 * 1000)


def iso(at_ms: int) -> str:
    """Return a time for scripts: ISO 8601 in UTC with milliseconds."""
    return utc(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at_ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time for people, in the time zone of this machine."""
    return utc(at_ms).astimezone().strftime(form)


def moment(at_ms: int, now_ms: int) -> str:
    """Return the time of day, with the date if it is not the same day as `now_ms`."""
    time = local(at_ms, "%H:%M:%S")
    day = local(at_ms, "%Y-%m-%d")
    return time if day == local(now_ms, "%Y-%m-%d") else f"{day} {time}"


def took(duration_ms: int) -> str:
    """Return a duration for people: `0.4s`, `12s`, `3m 05s`, `2h 10m`."""
    seconds = duration_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes_left:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def counted(count: int, name: str) -> str:
    """Return a count with its noun: `1 turn`, `12 turns`."""
    return f"{count:,} {name}" + ("" if count == 1 else "s")


def short(count: int) -> str:
    """Return a short form of a large number: `950`, `12.3k`, `4.1M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
