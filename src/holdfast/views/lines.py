"""Lines for people: styled spans, aligned tables, safe text, short forms of times and amounts.

Stored text must pass through `neutral` before it is shown: a tool's output must not move the cursor, change the
title or hide what follows it. Writing the lines is the business of the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\u115f\u1160\u2800\u3164\uffa0]"
)
"""Control characters except tab and newline, characters that change the text direction, invisible characters, and
letters that look like a blank."""
_SHELL_WORD = re.compile(r"""(?:\\.|"[^"]*"|'[^']*'|\S)+""")
_READS_ON = " \\"
_EMOJI_STYLE = "\ufe0f"
"""Shows the character before it as an emoji, which takes one cell more."""
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]"
_CHARACTER = re.compile(f".{_MARK}*(?:\u200d.{_MARK}*)*", re.DOTALL)
_PART = re.compile(r"[^ /]*")
_INDENT = re.compile(r"\s*(?:\S+ )?\S+ {2,}|\s*")
"""The label of a line, like `  model     `. Wrapped text is indented to the column after it."""
COMMAND = "command"
"""The style of a command to copy. It is shown as the user would have to type it, and works when it is pasted."""
EXACT = "exact"
"""The style of text that must be shown exactly, at the end of its line. It is cut before the blanks of a word, so
that none gets lost, and each of its further lines has a frame, so that it cannot pass for another line."""
FRAME = "│ "
"""Precedes text that must be shown exactly."""
_PIECE = re.compile(
    r"\n|[^\S\n\xa0]+|[^ \t\v\f\r\n\x1c-\x1f\x85\u1680\u2000-\u2006\u2008-\u200a\u205f\u3000]+"
)
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
    """Cut a line to at most `width` cells, with an ellipsis if it was longer.

    It is cut between words or parts of a path. Only a word that is longer than a line is cut inside.
    """
    if cells(text) <= width:
        return text
    end, used = 0, 1
    for character in _characters(text):
        used += cells(character)
        if used > width:
            break
        end += len(character)
    begin = max(text.rfind(" ", 0, end + 1), text.rfind("/", 0, end)) + 1
    (rest,) = _PART.findall(text, begin)[:1] or [""]
    is_cut = begin <= end and cells(rest) <= width
    return text[: begin if is_cut else end].rstrip() + "…"


def cells(text: str) -> int:
    """Count the terminal cells that the text takes, also where emoji are not joined but shown side by side."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(4_096)
def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") and character != _EMOJI_STYLE:
        return 0
    is_wide = unicodedata.east_asian_width(character) in "WF" or "\U0001f1e6" <= character <= "\U0001f1ff"
    return 2 if is_wide else 1  # the second range has the letters of flags


def _characters(text: str) -> Sequence[str]:
    """Return the characters as a person sees them: with their accents, and joined emoji in one piece."""
    return text if text.isascii() else _CHARACTER.findall(text)


def padded(text: str, width: int, *, is_right: bool = False) -> str:
    """Pad the text with blanks to `width` cells."""
    blanks = " " * max(width - cells(text), 0)
    return blanks + text if is_right else text + blanks


def wrapped(line: Line, width: int) -> Iterator[Sequence[Span]]:
    """Wrap a line between words into pieces of at most `width` cells.

    A command has a line of its own if it does not fit in this one, and a longer one has more, with the mark with
    which a shell reads on. A word that would not fit on a line of its own is not cut.
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
    for word in _words(spans):
        size, is_blank = _size(word), _is_blank(word)
        if size > width and any(span.style == COMMAND for span in word):
            yield piece
            *full, piece = _command("".join(span.text for span in word), width)
            yield from full
            used, is_begun = _size(piece), True
            continue
        if is_begun and used + size > width and size <= width:
            yield piece
            blanks = min(indent, width - size)
            piece, used, is_begun = [Span(" " * blanks)], blanks, False
            if is_blank:
                continue
        if is_blank and not is_begun:
            word = [Span(span.text[: max(width // 2 - used, 0)], span.style) for span in word]
        piece += word
        used += _size(word)
        is_begun = is_begun or not is_blank
    yield piece


def _command(command: str, width: int) -> Iterator[list[Span]]:
    """Yield a command that is longer than a line in lines that a shell reads as one, broken between its words."""
    line = ""
    for word in _SHELL_WORD.findall(command):
        if line and cells(f"{line} {word}") > width - len(_READS_ON):
            yield [Span(line + _READS_ON, COMMAND)]
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    yield [Span(line, COMMAND)]


def filled(spans: Line, width: int, first: Span, rest: Span) -> Iterator[list[Span]]:
    """Fill lines of at most `width` cells with words, behind what precedes the first line and the others.

    A word that is longer than a line is cut where the line is full. Each line begins with `first` or `rest`.
    """
    line, used, begin = [first], cells(first.text), cells(rest.text)
    blank: list[Span] = []
    for word in _words([each if isinstance(each, Span) else Span(each) for each in spans]):
        if word[0].text == "\n":
            yield line
            line, used, blank = [rest], begin, []
            continue
        if _is_blank(word):
            blank = word if len(line) > 1 else []
            continue
        size, gap = _size(word), _size(blank)
        if used + gap + size <= width:
            line += [*blank, *word]
            used += gap + size
        elif begin + size <= width:
            if len(line) > 1:
                yield line
                line = [rest]
            line += word
            used = begin + size
        else:
            *full, line = _broken([*line, *blank] if used + gap < width else line, word, width, rest)
            yield from full
            used = _size(line)
        blank = []
    yield line


def _broken(line: Sequence[Span], word: Sequence[Span], width: int, rest: Span) -> Iterator[list[Span]]:
    """Yield lines with a word that is longer than a line, cut where a line is full."""
    line, used = list(line), _size(line)
    for text, style in word:
        kept = ""
        for character in _characters(text):
            size = cells(character)
            if used + size > width and (kept or len(line) > 1):
                yield [*line, Span(kept, style)]
                line, kept, used = [rest], "", cells(rest.text)
            kept += character
            used += size
        line.append(Span(kept, style))
    yield line


def _words(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield words, and what is between them. A word may have several styles; a command is one word."""
    word: list[Span] = []
    for span in spans:
        for piece in [span.text] if span.style == COMMAND else _PIECE.findall(span.text):
            if not piece.isspace():
                word.append(Span(piece, span.style))
                continue
            if word:
                yield word
                word = []
            yield [Span(piece, span.style)]
    if word:
        yield word


def _is_blank(word: Sequence[Span]) -> bool:
    return len(word) == 1 and word[0].text.isspace()


def _size(spans: Sequence[Span]) -> int:
    return sum(cells(span.text) for span in spans)


def _cut(head: Sequence[Span], text: str, width: int) -> Iterator[Sequence[Span]]:
    """Yield the text after the head, cut into pieces that fit, each after the first behind a frame."""
    column = sum(cells(span.text) for span in head)
    frame = Span(" " * (column - len(FRAME)) + FRAME, "yellow")
    start, used = 0, column
    for at, character in enumerate(text):
        size = cells(character)
        if used + size > width and at > start:
            end = _before_word(text, start, at)
            end = end if column + cells(text[end:at]) + size <= width else at
            yield [*head, Span(text[start:end], EXACT)]
            head, start, used = [frame], end, column + cells(text[end:at])
        used += size
    yield [*head, Span(text[start:], EXACT)]


def _before_word(text: str, start: int, at: int) -> int:
    """Return where to cut a full line: before the blanks before a word that would be cut, so that none gets lost."""
    end = at
    while end > start and text[end] != " ":
        end -= 1
    while end > start and text[end - 1] == " ":
        end -= 1
    return end if end > start else at


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


def short(count: int) -> str:
    """Return a short form of a large number: `950`, `12.3k`, `4.1M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
