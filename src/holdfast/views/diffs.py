"""Unified diffs of files, for people and scripts, from content that was kept. The caller masks secrets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from holdfast.protocol.counts import counted
from holdfast.views.lines import Line, Span, neutral

MOST_LINES = 20_000
"""Comparing longer files could take minutes."""
_CONTEXT = 3
_STYLES = {"+": "green", "-": "red", "@": "cyan"}

Redact = Callable[[str], str]


class FileDiff(msgspec.Struct, frozen=True):
    """How one file changed."""

    path: str
    change: Literal["added", "changed", "deleted"]
    diff: str
    """A unified diff, or a sentence that says why no diff is possible."""


def file_diff(path: str, before: bytes | None, after: bytes | None, redact: Redact) -> FileDiff:
    """Compare two contents of a file. None: the file does not exist."""
    change: Literal["added", "changed", "deleted"] = "changed"
    if before is None or after is None:
        change = "added" if before is None else "deleted"
    return FileDiff(path, change, _unified(path, before, after, redact))


def untold(path: str, change: Literal["added", "changed", "deleted"]) -> FileDiff:
    """Return the sentence about a file whose old content is not kept."""
    return FileDiff(path, change, f"{path}: its old content is not kept, or was dropped.\n")


def hidden(path: str, change: Literal["added", "changed", "deleted"]) -> FileDiff:
    """Return the sentence about a file whose diff might show a secret."""
    return FileDiff(
        path, change, f"{path}: an edit of it contained what looks like a secret; open the file to see it.\n"
    )


def _unified(path: str, before: bytes | None, after: bytes | None, redact: Redact) -> str:
    try:
        old, new = [redact((content or b"").decode()) for content in (before, after)]
    except UnicodeDecodeError:
        return f"{path}: a binary file, {_size(before)} before, {_size(after)} after.\n"
    left, right = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if max(len(left), len(right)) > MOST_LINES:
        return f"{path}: too long to compare, {counted(len(left), 'line')} before, {len(right)} after.\n"
    if old == new:
        return f"{path}: empty.\n" if not old else f"{path}: only what looks like a secret is different.\n"
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    return "".join(_ended(difflib.unified_diff(left, right, *names, n=_CONTEXT)))


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _size(content: bytes | None) -> str:
    return "no file" if content is None else f"{counted(len(content), 'byte')}"


def diff_row(found: FileDiff) -> dict[str, Any]:
    """Return the difference for scripts."""
    return {"path": found.path, "change": found.change, "diff": found.diff}


def diff_lines(found: Sequence[FileDiff]) -> Iterator[Line]:
    """Return the differences for people, and for programs that read a diff."""
    for each in found:
        for line in each.diff.split("\n")[:-1]:
            head = line.startswith(("--- ", "+++ "))
            yield [Span(neutral(line), "bold" if head else _STYLES.get(line[:1], ""))]
