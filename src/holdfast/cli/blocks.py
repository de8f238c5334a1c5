"""Splits streamed Markdown into blocks, each as soon as it is finished. It draws nothing.

It reads line by line, like the algorithm of CommonMark: a line continues the open quotes and list items, then it
opens new ones, and what is left belongs to a leaf: text, a heading, code, a table or a rule. Each line is read once,
so the cost of a piece of text does not grow with the answer. What is held back has a bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from holdfast.views.lines import neutral

Kind = Literal["text", "heading", "code", "table", "rule"]

_HEAD_CHARS = 1_000
"""The kind of a line is decided by so many characters. The rest of a longer line is added to its block."""
_HELD_CHARS = 2_000
"""A longer text or table is emitted in parts."""
_DEPTH = 8
"""The most quotes and list items inside each other."""
_ROWS = 40

_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"( {0,3})([-+*]|\d{1,9}[.)])(?: +(?=\S)| *$)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?: +(.*?))??(?: +#+)? *$")
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,}) *(\S*)")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_ALIGNMENTS = re.compile(r" {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$")
_BAR = re.compile(r"(?<!\\)\|")
_APART: frozenset[Kind] = frozenset({"heading", "code", "table", "rule"})
"""The blocks with an empty line before and after them."""


class Block(NamedTuple):
    """A finished block, or a part of a long one."""

    kind: Kind
    lines: tuple[str, ...]
    """Safe to show. Those of text have their inline marks; those of a table are its rows, from the first on."""
    level: int = 0
    """That of a heading, from 1 to 6."""
    first: str = ""
    """What precedes its first line: bars of quotes, the mark or number of a list item."""
    rest: str = ""
    """What precedes its further lines."""
    gap: str | None = None
    """The empty line before it, which shows the bars of open quotes; None if there is none."""
    is_begun: bool = False
    """It continues the block before it."""
    goes_on: bool = False
    """The next block continues it."""


@dataclass
class _Container:
    """An open quote, or an open item of a list."""

    indent: int = 0
    """The column at which the content of an item begins; 0 for a quote."""
    label: str = ""
    """The mark of an item that was not shown yet."""
    blanks: str = ""

    def content(self, line: str) -> str | None:
        """Return what is inside the container; None if the line does not continue it."""
        if not self.indent:
            found = _QUOTE.match(line)
            return line[found.end() :] if found else None
        if not line.strip(" "):
            return ""
        return line[self.indent :] if line.startswith(" " * self.indent) else None


@dataclass
class _Leaf:
    """The block that is being read."""

    kind: Kind
    lines: list[str]
    fence: str = ""
    """The fence that opened code; empty if its lines are indented."""
    indent: int = 0
    """The most blanks that are removed from a line of code."""
    gap: str | None = None
    is_begun: bool = False
    chars: int = 0
    blank_lines: int = 0
    """Empty lines that belong to indented code only if more of it follows."""


@dataclass
class Blocks:
    """The blocks of one stream of Markdown."""

    _open: list[_Container] = field(default_factory=list)
    _leaf: _Leaf | None = None
    _numbers: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The delimiter and the last number of the list at each depth."""
    _last: Kind = "text"
    _is_after_blank: bool = False
    _is_first: bool = True
    _partial: list[str] = field(default_factory=list)
    """The pieces of the line that has not ended yet."""
    _partial_chars: int = 0
    _is_mid_line: bool = False
    """The beginning of the current line was read already."""
    _done: list[Block] = field(default_factory=list)

    def feed(self, text: str) -> list[Block]:
        """Return the blocks that are finished with this piece of text."""
        for start in range(0, len(text), _HEAD_CHARS):
            self._take(text[start : start + _HEAD_CHARS])
        return self._taken()

    def end(self) -> list[Block]:
        """Return the rest, because the text is over."""
        if self._partial:
            self._end_line()
        self._close(0)
        self._is_mid_line = False
        return self._taken()

    def _take(self, text: str) -> None:
        *ends, rest = text.split("\n")
        for end in ends:
            self._partial.append(end)
            self._end_line()
        if rest:
            self._partial.append(rest)
            self._partial_chars += len(rest)
            if self._partial_chars >= _HEAD_CHARS:
                self._read("".join(self._partial), is_whole=False)

    def _taken(self) -> list[Block]:
        taken, self._done = self._done, []
        return taken

    def _end_line(self) -> None:
        self._read("".join(self._partial).removesuffix("\r"), is_whole=True)

    def _read(self, raw: str, *, is_whole: bool) -> None:
        self._partial, self._partial_chars = [], 0
        text = neutral(raw).expandtabs(4)
        if self._is_mid_line:
            self._add_to_line(text)
        else:
            self._line(text)
        self._is_mid_line = not is_whole

    def _add_to_line(self, text: str) -> None:
        """Add the next part of a long line to its block."""
        if self._leaf is None or self._leaf.kind == "code":
            self._add(self._leaf.kind if self._leaf else "text", text)
            return
        if not self._leaf.lines:
            self._leaf.lines.append("")
        self._leaf.lines[-1] += text
        self._leaf.chars += len(text)
        self._emit_early()

    # --- lines ----------------------------------------------------------------------------------

    def _line(self, line: str) -> None:
        rest, kept = line, 0
        for container in self._open:
            inside = container.content(rest)
            if inside is None:
                break
            rest, kept = inside, kept + 1
        is_inside = kept == len(self._open)
        leaf = self._leaf
        if leaf is not None and leaf.kind == "code" and is_inside and self._is_code(leaf, rest):
            return
        if not rest.strip(" "):
            self._blank(kept)
            return
        if leaf is not None and leaf.kind == "text" and not is_inside and not _begins(rest):
            self._add("text", rest.lstrip(" "))  # a lazy line of a quote or an item
            return
        if not is_inside:
            self._close(kept)
        self._place(self._opened(rest, kept), kept)

    def _is_code(self, leaf: _Leaf, line: str) -> bool:
        """Read a line of open code. Return False if it is not one."""
        if leaf.fence:
            bare = line.strip(" ")
            is_end = bare.startswith(leaf.fence) and not bare.strip(leaf.fence[0]) and _indent(line) < 4
            if is_end:
                self._leaf, self._last = None, "code"
            else:
                self._add("code", line[min(leaf.indent, _indent(line)) :])
            return True
        if not line.strip(" "):
            leaf.blank_lines += 1
            return True
        if _indent(line) < 4:
            self._is_after_blank = bool(leaf.blank_lines)
            self._close(len(self._open))
            return False
        for _ in range(leaf.blank_lines):
            self._add("code", "")
        leaf.blank_lines = 0
        self._add("code", line[4:])
        return True

    def _blank(self, kept: int) -> None:
        has_quote = any(not each.indent for each in self._open[kept:])
        self._close(kept if has_quote else len(self._open))
        self._is_after_blank = True

    def _opened(self, rest: str, kept: int) -> str:
        """Open the quotes and items that begin in this line. Return what is inside of them."""
        while len(self._open) < _DEPTH and _indent(rest) < 4:
            is_in_text = self._leaf is not None and self._leaf.kind == "text"
            quote, item = _QUOTE.match(rest), _ITEM.match(rest)
            if quote:
                self._close(len(self._open))
                self._forget_list(len(self._open))
                self._open.append(_Container())
                rest = rest[quote.end() :]
            elif item and not _RULE.match(rest) and not (is_in_text and not _may_interrupt(item, rest)):
                self._close(len(self._open))
                rest = self._item(item, rest)
            else:
                break
        return rest

    def _item(self, item: re.Match[str], rest: str) -> str:
        """Open an item of a list. Return what is inside of it."""
        before, mark = item[1], item[2]
        depth, label = len(self._open), "• "
        if mark[0].isdigit():
            delimiter, number = self._numbers.get(depth, ("", 0))
            number = number + 1 if delimiter == mark[-1] else int(mark[:-1])
            self._forget_list(depth)
            self._numbers[depth] = (mark[-1], number)
            label = f"{number}{mark[-1]} "
        else:
            self._forget_list(depth)
        blanks = len(rest[: item.end()]) - len(before) - len(mark)
        content = rest[item.end() :]
        if not content or blanks > 4:
            content, blanks = rest[len(before) + len(mark) + 1 :], 1
        self._open.append(_Container(len(before) + len(mark) + blanks, label, " " * len(label)))
        return content

    def _forget_list(self, depth: int) -> None:
        for each in [each for each in self._numbers if each >= depth]:
            del self._numbers[each]

    def _place(self, rest: str, kept: int) -> None:
        """Put what is left of a line into a leaf."""
        leaf = self._leaf
        is_text = leaf is not None and leaf.kind == "text"
        if not rest.strip(" "):
            return  # an item without words, so far
        if _indent(rest) >= 4 and leaf is None:
            self._begin(_Leaf("code", []), kept)
            self._add("code", rest[4:])
        elif is_text and (found := _UNDERLINE.match(rest)):
            self._underline(1 if found[1][0] == "=" else 2)
        elif is_text and self._is_table(rest):
            self._table(rest)
        elif heading := _HEADING.match(rest):
            self._close(len(self._open))
            self._begin(_Leaf("heading", [heading[2] or ""]), kept)
            self._emit(level=len(heading[1]))
        elif _RULE.match(rest):
            self._close(len(self._open))
            self._begin(_Leaf("rule", []), kept)
            self._emit()
        elif fence := _FENCE.match(rest):
            self._close(len(self._open))
            self._begin(_Leaf("code", [], fence[2], len(fence[1])), kept)
        else:
            if leaf is None:
                self._begin(_Leaf("text", []), kept)
            self._add(self._leaf.kind if self._leaf else "text", rest.lstrip(" "))

    def _underline(self, level: int) -> None:
        leaf = self._leaf
        assert leaf is not None
        if leaf.is_begun:  # its first part was shown as text
            self._close(len(self._open))
        else:
            leaf.kind = "heading"
            leaf.gap = self._gap(0) if leaf.gap is None else leaf.gap
            self._emit(level=level)

    def _is_table(self, rest: str) -> bool:
        """Return whether the line below the open text makes its last line the head of a table."""
        assert self._leaf is not None
        head = self._leaf.lines[-1]
        is_whole = len(self._leaf.lines) > 1 or not self._leaf.is_begun
        return (
            is_whole
            and "|" in head
            and bool(_ALIGNMENTS.match(rest))
            and len(fields(head)) == len(fields(rest))
        )

    def _table(self, rest: str) -> None:
        leaf = self._leaf
        assert leaf is not None
        head = leaf.lines.pop()
        gap = leaf.gap
        if leaf.lines:
            self._emit()
            gap = self._blanks(len(self._open))
        self._leaf = _Leaf("table", [head, rest], gap=gap, chars=len(head) + len(rest))

    # --- leaves ---------------------------------------------------------------------------------

    def _begin(self, leaf: _Leaf, kept: int) -> None:
        """Open a leaf. `kept`: how many containers were open before this line."""
        is_first_inside = any(each.label for each in self._open)
        is_apart = not is_first_inside and leaf.kind in _APART
        is_quote = any(not each.indent for each in self._open[kept:])
        has_gap = self._is_after_blank or is_apart or is_quote or self._last in _APART
        leaf.gap = self._gap(kept) if has_gap else None
        self._is_after_blank = False
        self._forget_list(len(self._open))
        self._leaf = leaf

    def _gap(self, kept: int) -> str | None:
        return None if self._is_first else self._blanks(kept)

    def _blanks(self, depth: int) -> str:
        return "".join(each.blanks or "│ " for each in self._open[:depth]).rstrip(" ")

    def _add(self, kind: Kind, line: str) -> None:
        """Add a line to the open leaf. A line of code is finished as soon as it has ended."""
        leaf = self._leaf
        if leaf is None:
            leaf = self._leaf = _Leaf(kind, [])
        leaf.lines.append(line)
        leaf.chars += len(line) + 1
        if leaf.kind == "code":
            self._emit(goes_on=True)
        else:
            self._emit_early()

    def _emit_early(self) -> None:
        """Emit the first part of a leaf that is held for too long."""
        leaf = self._leaf
        assert leaf is not None
        if leaf.kind == "table" and (leaf.chars > _HELD_CHARS or len(leaf.lines) > _ROWS):
            self._emit(goes_on=True)
        elif leaf.kind == "text" and leaf.chars > _HELD_CHARS:
            text = "\n".join(leaf.lines)
            at = _break(text)
            leaf.lines = text[:at].split("\n")
            self._emit(goes_on=True)
            left = text[at:]
            self._leaf = _Leaf("text", left.split("\n"), is_begun=True, chars=len(left))

    def _emit(self, *, level: int = 0, goes_on: bool = False) -> None:
        """Finish the leaf, or what was read of it so far."""
        leaf = self._leaf
        assert leaf is not None
        first = "".join((each.label or each.blanks) if each.indent else "│ " for each in self._open)
        for each in self._open:
            each.label = ""
        rest = "".join(each.blanks or "│ " for each in self._open)
        block = Block(leaf.kind, tuple(leaf.lines), level, first, rest, leaf.gap, leaf.is_begun, goes_on)
        self._done.append(block)
        self._is_first, self._last = False, leaf.kind
        if goes_on:
            leaf.lines, leaf.chars, leaf.gap, leaf.is_begun = [], 0, None, True
        else:
            self._leaf = None

    def _close(self, depth: int) -> None:
        """Finish the leaf, and the containers from this depth on."""
        if self._leaf is not None:
            if self._leaf.kind == "code":
                self._leaf, self._last = None, "code"
            else:
                self._emit()
        if any(each.label for each in self._open[depth:]):  # an item without words
            self._leaf = _Leaf("text", [""], gap=self._gap(0) if self._is_after_blank else None)
            self._emit()
        del self._open[depth:]


def fields(row: str) -> Sequence[str]:
    """Return the cells of a row of a table."""
    bare = row.strip(" ").removeprefix("|")
    if bare.endswith("|") and not bare.endswith("\\|"):
        bare = bare[:-1]
    return [each.strip(" ").replace("\\|", "|") for each in _BAR.split(bare)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _begins(line: str) -> bool:
    """Return whether a line begins a block, so that it cannot continue the text before it."""
    if _indent(line) >= 4:
        return False
    return any(each.match(line) for each in (_QUOTE, _ITEM, _HEADING, _FENCE, _RULE))


def _may_interrupt(item: re.Match[str], rest: str) -> bool:
    """Return whether an item may begin right after text: a sentence may begin a line with a year and a dot."""
    return len(rest) > item.end() and (not item[2][0].isdigit() or item[2][:-1] == "1")


def _break(text: str) -> int:
    """Return where to break a long text: at a blank in its second half, if possible outside of inline marks."""
    spaces = [at for at in range(len(text) - 1, len(text) // 2, -1) if text[at] in " \n"]
    return next((at for at in spaces if _is_balanced(text, at)), spaces[0] if spaces else len(text))


def _is_balanced(text: str, at: int) -> bool:
    marks = ("`", "**", "__", "~~")
    return all(text.count(mark, 0, at) % 2 == 0 for mark in marks) and text.count("[", 0, at) == text.count(
        "]", 0, at
    )
