"""What matters in rows: how many there are, what their columns are called, and both ends of rows that are very wide.

Pure and linear. Head and tail of the text show the first and last rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence

import msgspec

from holdfast.protocol.counts import counted

_LOOKED_AT = 20
"""How many of the first rows are looked at."""
_LOOKED_AT_CHARS = 120_000
_LEAST = 4
"""A table has at least so many rows."""
_WIDE_CHARS = 2_000
"""Head and tail show little else than a wider row."""
_RULE = re.compile(r"[|+:\s]*[-=]{3,}[-=|+:\s]*\Z")
_GAP = re.compile(r" {2,}|\t")


def rows(text: str, room: int) -> str:
    """Return the header and the size of a table, within so many characters; empty for other texts."""
    first = text[:_LOOKED_AT_CHARS].split("\n", _LOOKED_AT)[:-1]
    if len(first) < _LEAST:
        return ""
    read = ((name, *columns_of(first)) for name, columns_of in _TABLES)
    name, header, columns = next((each for each in read if each[2]), ("", "", 0))
    if not columns:
        return ""
    many = counted(text.count("\n") + (not text.endswith("\n")), "line")
    told = f"[{name}: {many}, {counted(columns, 'column')}; the first line is the header]"
    if name == "JSON Lines":
        told = f"[{name}: {many}; keys of the first one: {header}"[: room - 1] + "]"
    elif max(map(len, first)) > _WIDE_CHARS:
        last = text[-_LOOKED_AT_CHARS:].rstrip("\n").split("\n")[-2:]
        share = max((room - len(told) - 10) // 5, 0)
        told = "\n".join([told, *(_cut(row, share) for row in (*first[:3], *last))])
    elif len(told) + len(header) < room:
        told += f"\n{header}"
    return told if len(told) <= room else ""


def _cut(row: str, chars: int) -> str:
    more = f" [{counted(len(row), 'character')}]"
    return row if len(row) <= chars else f"{row[: max(chars - len(more) - 1, 0)]}{more}"


def _delimited(delimiter: str) -> Callable[[Sequence[str]], tuple[str, int]]:
    def columns_of(first: Sequence[str]) -> tuple[str, int]:
        """Return the header and the number of columns, if all rows have as many."""
        if delimiter not in first[0]:
            return "", 0
        try:
            sizes = {len(row) for row in csv.reader(first, delimiter=delimiter)}
        except csv.Error:
            return "", 0
        # Two columns with spaces in the header are rather prose, or lines of a log.
        is_table = len(sizes) == 1 and (max(sizes) > 2 or " " not in first[0])
        return (first[0], max(sizes)) if is_table and max(sizes) > 1 else ("", 0)

    return columns_of


def _json_lines(first: Sequence[str]) -> tuple[str, int]:
    if not all(line.startswith("{") and line.rstrip().endswith("}") for line in first):
        return "", 0
    try:
        keys = [*msgspec.json.decode(first[0], type=dict[str, msgspec.Raw])]
    except (msgspec.DecodeError, RecursionError):
        return "", 0
    return ", ".join(keys), len(keys)


def _ruled(first: Sequence[str]) -> tuple[str, int]:
    """A line under the header: `---|---`, `----+----`, `+---+---+`."""
    if not any(_RULE.match(line) for line in first[:3]):
        return "", 0
    header = next((line for line in first if not _RULE.match(line)), "")
    names = header.strip().strip("|").split("|") if "|" in header else _GAP.split(header.strip())
    return (header, len(names)) if len(names) > 1 else ("", 0)


def _aligned(first: Sequence[str]) -> tuple[str, int]:
    """Columns with spaces between them, at least two; at most one row in five may be different."""
    sizes = [len(_GAP.split(line.strip())) for line in first]
    is_table = sizes[0] > 2 and sizes.count(sizes[0]) * 5 >= len(sizes) * 4
    return (first[0], sizes[0]) if is_table else ("", 0)


_TABLES: tuple[tuple[str, Callable[[Sequence[str]], tuple[str, int]]], ...] = (
    ("JSON Lines", _json_lines),
    ("table", _ruled),
    ("TSV", _delimited("\t")),
    ("CSV", _delimited(",")),
    ("CSV", _delimited(";")),
    ("CSV", _delimited("|")),
    ("table", _aligned),
)
