"""Renders Markdown as lines for a terminal, one finished block at a time. What was rendered never changes.

The text comes from a model, so it is data: control characters are escaped, HTML is shown as written, and each link
shows its target. Without styles the marks of Markdown stay, because nothing else would show what they mean.

Only a terminal loads this module, and `chat` only after its first prompt, because the parser takes long to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from markdown_it import MarkdownIt
from markdown_it.token import Token

from holdfast.cli.blocks import Block, Blocks, fields
from holdfast.views.lines import Span, cells, filled, neutral

_INLINE = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
_STYLES: Mapping[str, str] = {"strong_open": "bold", "em_open": "italic", "s_open": "strike"}
_HEADINGS = ("bold underline", "bold", "bold italic")
_CODE, _BAR = "cyan", " │ "
_CODE_INDENT = "  "
_RULE_CELLS = 40

Spans = Sequence[Span]


class Page:
    """A stream of Markdown on its way to a terminal."""

    def __init__(self, style: str = "", *, has_styles: bool = True) -> None:
        """`style`: that of all text. Without styles the marks of Markdown are shown."""
        self._blocks = Blocks()
        self._style, self._has_styles = style, has_styles
        self._carried: list[Span] = []
        """The last line of a text that goes on: it may not be full."""
        self._widths: Sequence[int] = ()
        """The columns of a table that goes on."""

    def feed(self, text: str, width: int) -> list[Spans]:
        """Return the lines that are finished with this piece of text."""
        return [line for block in self._blocks.feed(text) for line in self._block(block, width)]

    def end(self, width: int) -> list[Spans]:
        """Return the rest, because the text is over. The next text is another page."""
        lines = [line for block in self._blocks.end() for line in self._block(block, width)]
        self._blocks = Blocks()
        return lines

    def unfinished(self, width: int) -> list[Spans]:
        """Return the lines of the block that is not finished, as they would be if the text were over."""
        return deepcopy(self).end(width)

    # --- blocks ---------------------------------------------------------------------------------

    def _block(self, block: Block, width: int) -> Iterator[Spans]:
        room = max(width // 2, 1)  # of deeply nested text, the bars and blanks give way
        first, rest = Span(block.first[-room:], "dim"), Span(block.rest[-room:], "dim")
        if block.gap is not None:
            yield [Span(block.gap[-room:], "dim")]
        match block.kind:
            case "text":
                yield from self._text(block, first, rest, width)
            case "heading":
                style = _both([self._style], _HEADINGS[min(block.level, len(_HEADINGS)) - 1])
                mark = [] if self._has_styles else [Span("#" * block.level + " ")]
                yield from filled([*mark, *self._inline("\n".join(block.lines), style)], width, first, rest)
            case "code":
                for line in block.lines:
                    yield from self._code_line(line, width, first, rest)
                    first = rest
            case "table":
                yield from self._table(block, width, first, rest)
            case "rule":
                yield [first, Span("─" * min(_RULE_CELLS, width - cells(first.text)), "dim")]

    def _text(self, block: Block, first: Span, rest: Span, width: int) -> Iterator[Spans]:
        spans = [*self._carried, *self._inline("\n".join(block.lines), self._style)]
        self._carried = []
        lines = list(filled(spans, width, rest if block.is_begun else first, rest))
        if block.goes_on:
            self._carried = list(lines.pop()[1:])
        yield from lines

    def _code_line(self, line: str, width: int, first: Span, rest: Span) -> Iterator[Spans]:
        blanks = line[: len(line) - len(line.lstrip(" "))][: width // 4]
        head = Span(first.text + _CODE_INDENT + blanks, first.style)
        further = Span(rest.text + 2 * _CODE_INDENT + blanks, rest.style)
        yield from filled([Span(line.strip(" "), _both([self._style], _CODE))], width, head, further)

    # --- inline marks ---------------------------------------------------------------------------

    def _inline(self, text: str, style: str = "") -> list[Span]:
        """Return a text as spans, with line breaks where they are written."""
        (token,) = _INLINE.parseInline(text)
        spans: list[Span] = []
        styles = [style] if style else []
        targets: list[tuple[str, int]] = []
        for each in token.children or ():
            match each.type:
                case "softbreak" | "hardbreak":
                    spans.append(Span("\n"))
                case "code_inline":
                    mark = "" if self._has_styles else each.markup
                    spans.append(Span(mark + _safe(each.content) + mark, _both(styles, _CODE)))
                case "image":
                    label = _safe(each.content)
                    spans.append(Span(f"{label} ({_target(each, 'src')})".lstrip(), _both(styles)))
                case "link_open":
                    targets.append((_target(each, "href"), len(spans)))
                case "link_close":
                    target, start = targets.pop()
                    label = "".join(span.text for span in spans[start:])
                    if _bare(label) != _bare(target):
                        plain = _both(styles)
                        spans += [Span(" (", plain), Span(target, _both(styles, "blue")), Span(")", plain)]
                case "strong_open" | "em_open" | "s_open":
                    styles.append(_STYLES[each.type])
                    spans += self._mark(each)
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                    spans += self._mark(each)
                case _:
                    spans.append(Span(_safe(each.content), _both(styles)))
        return spans

    def _mark(self, token: Token) -> list[Span]:
        return [] if self._has_styles else [Span(token.markup)]

    # --- tables ---------------------------------------------------------------------------------

    def _table(self, block: Block, width: int, first: Span, rest: Span) -> Iterator[Spans]:
        has_head = not block.is_begun
        if has_head:
            self._head = fields(block.lines[0])
            self._is_right = [each.endswith("-:") and each[0] != ":" for each in fields(block.lines[1])]
            self._widths = ()
        count = len(self._head)
        rows = [self._row(row, count) for row in (block.lines[2:] if has_head else block.lines)]
        head = [self._inline(each, _both([self._style], "bold")) for each in self._head]
        room = width - cells(rest.text) - len(_BAR) * (count - 1)
        widths = self._fitted([head, *rows], room)
        if not widths:
            yield from self._records(head, rows, width, first if has_head else rest, rest)
            return
        self._widths = widths
        if has_head:
            yield from self._aligned(head, widths, first, rest)
            yield [rest, Span("─┼─".join("─" * each for each in widths), "dim")]
        for row in rows:
            yield from self._aligned(row, widths, rest, rest)

    def _row(self, row: str, count: int) -> list[list[Span]]:
        texts = fields(row)
        texts = [*texts[: count - 1], " | ".join(texts[count - 1 :])]
        return [self._inline(each, self._style) for each in [*texts, *[""] * (count - len(texts))]]

    def _fitted(self, rows: Sequence[Sequence[list[Span]]], room: int) -> Sequence[int]:
        """Return widths of columns in which no word is cut; empty if there are none."""
        columns = list(zip(*rows, strict=True))
        least = [max(_longest_word(cell) for cell in column) for column in columns]
        whole = [max(cells(_text_of(cell)) for cell in column) for column in columns]
        if self._widths and sum(self._widths) <= room and all(map(int.__le__, least, self._widths)):
            return self._widths
        if sum(least) > room:
            return ()
        widths, left = least, room - sum(least)
        wants = [most - each for most, each in zip(whole, least, strict=True)]
        if sum(wants) <= left:
            return whole
        return [each + left * want // sum(wants) for each, want in zip(widths, wants, strict=True)]

    def _aligned(
        self, row: Sequence[list[Span]], widths: Sequence[int], first: Span, rest: Span
    ) -> Iterator[Spans]:
        nothing = Span("")
        columns = [list(filled(cell, wide, nothing, nothing)) for cell, wide in zip(row, widths, strict=True)]
        for at in range(max(map(len, columns))):
            line = [rest if at else first]
            for number, (column, wide) in enumerate(zip(columns, widths, strict=True)):
                cell = column[at] if at < len(column) else [nothing]
                blanks = Span(" " * (wide - cells(_text_of(cell))))
                line += [Span(_BAR, "dim")] if number else []
                line += [blanks, *cell] if self._is_right[number] else [*cell, blanks]
            yield line

    def _records(
        self,
        head: Sequence[list[Span]],
        rows: Sequence[Sequence[list[Span]]],
        width: int,
        first: Span,
        rest: Span,
    ) -> Iterator[Spans]:
        """Show a table that is too wide: each cell on lines of its own, after the head of its column."""
        further = Span(rest.text + "  ", rest.style)
        for at, row in enumerate(rows):
            if at or first is rest:
                yield [rest]
            for name, cell in zip(head, row, strict=True):
                yield from filled([*name, Span(": ", "bold"), *cell], width, first, further)
                first = rest


def rendered(text: str, width: int, *, has_styles: bool) -> list[Spans]:
    """Return a whole text as lines."""
    page = Page(has_styles=has_styles)
    return [*page.feed(text, width), *page.end(width)]


def _safe(text: str) -> str:
    """Return a text that stays on its line. An entity may have been a control character or a line break."""
    return neutral(text).replace("\n", " ").replace("\t", " ")


def _both(styles: Sequence[str], style: str = "") -> str:
    return " ".join(dict.fromkeys(" ".join([*styles, style]).split()))


def _target(token: Token, name: str) -> str:
    return _safe(str(token.attrs.get(name, "")))


def _bare(target: str) -> str:
    return target.removeprefix("mailto:").removeprefix("https://").removeprefix("http://").rstrip("/")


def _text_of(cell: Spans) -> str:
    return "".join(span.text for span in cell)


def _longest_word(cell: Spans) -> int:
    return max(map(cells, _text_of(cell).split()), default=1)
