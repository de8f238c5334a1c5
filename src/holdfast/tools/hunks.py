"""Applies the hunks of a patch to the text of a file.

The lines of a hunk must be in the file exactly. Only spaces and line ends at the end of lines may differ; then the
lines of the file stay as they are. A place is never guessed: if several fit, the patch is refused.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice

from holdfast.redact import begin_of
from holdfast.tools.patch import Hunk, PatchError

MOST_LINES = 1_000_000
_MOST_PLACES = 8
_HINT_LINES = 5_000


def applied(path: str, text: str, hunks: Sequence[Hunk]) -> tuple[str, tuple[str, ...]]:
    """Return the new text, and what a reader should know of how the hunks fitted.

    Raises:
        PatchError: a hunk does not fit, or fits in several places. The message names file, hunk and lines.
    """
    if text.count("\n") > MOST_LINES:
        raise PatchError(f"{path} has more than {MOST_LINES:,} lines and is too long for a patch.")
    old = _Text(text)
    new: list[str] = []
    notes: list[str] = []
    done = 0
    for hunk in hunks:
        at, is_exact = _Search(path, old, hunk, done).place()
        new += old.lines[done:at]
        count = len(hunk.old)
        new += _exact(hunk) if is_exact else _fitted(old, hunk, at, count)
        done = at + count
        if not is_exact:
            notes.append(f"{path}, hunk {hunk.number}: spaces or line ends at the end of lines differ.")
    new += old.lines[done:]
    return "".join(_ended(new)), tuple(notes)


def _ended(lines: Sequence[str]) -> Iterator[str]:
    """Return the lines, all but the last with a newline."""
    for number, line in enumerate(lines, 1):
        yield line if line.endswith("\n") or number == len(lines) else f"{line}\n"


def _exact(hunk: Hunk) -> list[str]:
    return [text for sign, text in hunk.lines if sign != "-"]


def _fitted(old: _Text, hunk: Hunk, at: int, count: int) -> list[str]:
    """Return the new lines of a hunk that fits but for what is at the end of lines. Those that it adds end as the
    lines of the file do."""
    found = old.lines[at : at + count]
    ends = {line.endswith("\r\n") for line in found if line.endswith("\n")}
    has_returns = any(text.endswith("\r\n") for text in hunk.old)
    new: list[str] = []
    rest = iter(found)
    for sign, text in hunk.lines:
        if sign != "+":
            kept = next(rest)
            new += [kept] if sign == " " else []
            continue
        line = text.removesuffix("\n")
        if ends == {True} and not has_returns:
            line += "\r"
        elif has_returns and ends == {False}:
            line = line.removesuffix("\r")
        new.append(f"{line}\n")
    is_end = at + count == len(old.lines)
    if is_end and new and found and not found[-1].endswith("\n"):
        new[-1] = new[-1].removesuffix("\n").removesuffix("\r")
    return new


class _Text:
    """The text of a file in lines, which only a newline ends."""

    def __init__(self, text: str) -> None:
        self.lines = [f"{line}\n" for line in text.split("\n")]
        self.lines[-1] = self.lines[-1][:-1]
        if not self.lines[-1]:
            self.lines.pop()
        self.text = text

    @cached_property
    def loose_lines(self) -> list[str]:
        """The lines without what is at their end."""
        return [line.rstrip() for line in self.lines]

    @cached_property
    def loose_text(self) -> str:
        """The same in one text, with a newline after each line."""
        return "".join(f"{line}\n" for line in self.loose_lines)

    def exact(self, lines: Sequence[str], first: int) -> Iterator[int]:
        """Yield where the lines are, from a line on."""
        for at in _found(self.text, "".join(lines), self._starts[first], first):
            if self.lines[at + len(lines) - 1] == lines[-1]:  # not only the beginning of a longer line
                yield at

    def loose(self, lines: Sequence[str], first: int) -> Iterator[int]:
        """Yield where the lines are but for what is at their end."""
        wanted = "".join(f"{line.rstrip()}\n" for line in lines)
        yield from _found(self.loose_text, wanted, self._loose_starts[first], first)

    def anchors(self, anchor: str, first: int) -> Iterator[int]:
        """Yield the lines that are like an anchor, from a line on."""
        places = self._places.get(anchor, [])
        yield from islice(places, bisect_left(places, first), None)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Where each line is, without the spaces around it."""
        places: dict[str, list[int]] = {}
        for at, line in enumerate(self.lines):
            places.setdefault(line.strip(), []).append(at)
        return places

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins in the text, and where the last one ends."""
        return [*accumulate(map(len, self.lines), initial=0)]

    @cached_property
    def _loose_starts(self) -> list[int]:
        return [*accumulate((len(line) + 1 for line in self.loose_lines), initial=0)]


def _found(text: str, wanted: str, start: int, line: int) -> Iterator[int]:
    """Yield the number of each line at which a text begins, from 0. `start` is where line number `line` begins."""
    last, at = start, start
    if not text.startswith(wanted, start):
        at = text.find(f"\n{wanted}", max(start - 1, 0)) + 1 or -1
    while at >= 0:
        line += text.count("\n", last, at)
        last = at
        yield line
        at = text.find(f"\n{wanted}", at) + 1 or -1


class _Search:
    """Looks for the place of one hunk, behind the places of those before it."""

    def __init__(self, path: str, old: _Text, hunk: Hunk, done: int) -> None:
        self._path, self._old, self._hunk, self._done = path, old, hunk, done
        self._lines = hunk.old

    def place(self) -> tuple[int, bool]:
        """Return the first line of the hunk, from 0, and whether its lines are exactly those of the file."""
        firsts = self._firsts()
        if not self._lines:
            return self._insertion(firsts), True
        for is_exact, find in ((True, self._old.exact), (False, self._old.loose)):
            places = self._places(find, firsts)
            if len(places) == 1:
                return places[0], is_exact
            if self._hunk.start - 1 in places:
                return self._hunk.start - 1, is_exact
            if places:
                shown = ", ".join(str(each + 1) for each in places[:_MOST_PLACES])
                more = ", ..." if len(places) > _MOST_PLACES else ""
                raise self._error(
                    f"it fits at several lines ({shown}{more}). Give more lines around it, or the line above it "
                    "after `@@`."
                )
        raise self._error(f"its lines are not in the file{self._behind()}. {self._nearest()}")

    def _firsts(self) -> list[int]:
        """Return the lines from which the hunk may begin: behind each place of its last anchor."""
        firsts = [self._done]
        for anchor in self._hunk.anchors:
            found = list(islice(self._old.anchors(anchor, firsts[0]), _MOST_PLACES + 1))
            if not found:
                raise self._error(f"the file has no line {begin_of(anchor, 80)!r}{self._behind()}.")
            firsts = [at + 1 for at in found]
        return firsts

    def _places(self, find: Callable[[Sequence[str], int], Iterator[int]], firsts: list[int]) -> list[int]:
        """Return where the hunk fits: some places are enough to know that it is not one."""
        if self._is_at(self._hunk.start - 1, is_exact=find == self._old.exact):
            return [self._hunk.start - 1]
        end = len(self._old.lines) - len(self._lines)
        found: list[int] = []
        if self._hunk.ends_file:
            return [at for at in find(self._lines, max(end, firsts[0])) if at == end]
        for first in firsts[: _MOST_PLACES + 1]:
            for at in find(self._lines, first):
                if at not in found:
                    found.append(at)
                if self._hunk.anchors or len(found) > _MOST_PLACES:
                    break
        return found

    def _is_at(self, at: int, *, is_exact: bool) -> bool:
        """Return whether the hunk fits at the line that it names."""
        if at < self._done:
            return False
        lines = self._lines
        if is_exact:
            return self._old.lines[at : at + len(lines)] == lines
        return self._old.loose_lines[at : at + len(lines)] == [line.rstrip() for line in lines]

    def _insertion(self, firsts: list[int]) -> int:
        """Return where lines are added without a line of the file around them."""
        hunk, end = self._hunk, len(self._old.lines)
        if hunk.anchors and len(firsts) == 1:
            return firsts[0]
        if hunk.ends_file or end == 0:
            return end
        if self._done < hunk.start <= end + 1:
            return hunk.start - 1
        raise self._error("it has no line of the file that says where to add its lines.")

    def _behind(self) -> str:
        return f" below line {self._done}, where the hunk before it ends" if self._done else ""

    def _nearest(self) -> str:
        """Return the first line of the hunk that the file does not have, and the one most like it."""
        known = set(self._old.loose_lines)
        missing = next((line.rstrip() for line in self._lines if line.rstrip() not in known), "")
        if not missing:
            return "Each line is there, but not one after the other: read the file again."
        lines = [line[:200] for line in self._old.loose_lines[:_HINT_LINES]]
        nearest = difflib.get_close_matches(missing[:200], [line for line in lines if line], n=1, cutoff=0.5)
        if not nearest:
            return f"No line is like {begin_of(missing, 200)!r}. Read the file first."
        number = lines.index(nearest[0])
        shown = begin_of(self._old.loose_lines[number], 200)
        return f"It has {begin_of(missing, 200)!r}, and the nearest line is {number + 1}: {shown!r}."

    def _error(self, why: str) -> PatchError:
        return PatchError(f"{self._path}, hunk {self._hunk.number}: {why}")
