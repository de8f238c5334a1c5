"""Compares what a session's edits came to, and what an undo would do, from the content that is kept of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from holdfast.protocol.events import Record
from holdfast.protocol.tools import KeptFile
from holdfast.redact import Redactor
from holdfast.runtime.undo import Workshop
from holdfast.tools.restoring import Shelf, content_at
from holdfast.views.diffs import FileDiff, file_diff, hidden, untold
from holdfast.views.edits import BETWEEN, CHANGED, REMOVED, Edit, Place, changes_of, edits_of

_MARK = re.compile(r"\[redacted:[^\]]*\]")
"""What stands for a secret. The same secret may be found as another kind in a longer text."""
_ANY = "[redacted]"


def all_changes(shelf: Shelf, records: Sequence[Record], redact: Redactor) -> list[FileDiff]:
    """Return all that file tools changed in a session, file by file. What was undone is not in it."""
    edits = edits_of(records)
    shown = _names(edits)
    return [
        difference(shelf, shown(each.place), (each.before, each.after), redact, each.edits)
        for each in changes_of(edits)
    ]


def changed_since(
    workshop: Workshop, shelf: Shelf, records: Sequence[Record], kept: Sequence[KeptFile], redact: Redactor
) -> list[FileDiff]:
    """Return what something else changed in the files that were left as they are, where that is known. One that
    may not be read is not gone.
    """
    chains: dict[str, list[Edit]] = {}
    for edit in edits_of(records):
        if not edit.is_undone:
            chains.setdefault(edit.change.path, []).append(edit)
    found: list[FileDiff] = []
    for path, reason in ((each.path, each.reason) for each in kept):
        if path not in chains or reason not in (CHANGED, REMOVED, BETWEEN):
            continue
        last = chains[path][-1]
        left = shelf.content(last.change.after) if last.change.after else None
        now = content_at(workshop.own, last.place)
        if left is not None and now != left and (now is not None or reason == REMOVED):
            careful = _careful(shelf, redact, chains[path])
            found.append(
                hidden(path, "changed" if now is not None else "deleted")
                if careful is None
                else file_diff(path, left, now, careful)
            )
    return found


def _names(edits: Sequence[Edit]) -> Callable[[Place], str]:
    """Return how to name files: by their path in the last workspace, else in full."""
    workspace = edits[-1].workspace if edits else ""
    return lambda place: place.path if place.workspace == workspace else f"{place.workspace}/{place.path}"


def difference(
    shelf: Shelf, path: str, marks: tuple[str, str], redact: Redactor, edits: Sequence[Edit]
) -> FileDiff:
    """Compare two contents of a file that were kept, each by its mark; empty: there is no file.

    Args:
        edits: What led from the one to the other.
    """
    before, after = marks
    change: Literal["added", "changed", "deleted"] = "changed"
    if not (before and after):
        change = "deleted" if before else "added"
    old, new = (shelf.content(each) if each else None for each in marks)
    if (before and old is None) or (after and new is None):
        return untold(path, change)
    careful = _careful(shelf, redact, edits)
    return hidden(path, change) if careful is None else file_diff(path, old, new, careful)


def _careful(shelf: Shelf, redact: Redactor, edits: Sequence[Edit]) -> Redactor | None:
    """Return a redactor that hides everywhere what was masked of the edits of a file; None if it cannot be found.

    What an argument shows as a secret, the whole file may not: its words may stand between others there.
    """
    masked = [(edit.change, edit.masked) for edit in edits if edit.masked is not None]
    if not masked:
        return redact
    marks = {mark for change, _ in masked for mark in (change.before, change.after) if mark}
    texts = {mark: (shelf.content(mark) or b"").decode(errors="replace") for mark in marks}
    values = [text[span.start : span.end] for text in texts.values() for span in redact.find(text)]
    careful = redact.also(values)
    shown = {mark: _MARK.sub(_ANY, careful(text)) for mark, text in texts.items()}
    for change, copies in masked:
        for mark, copy in zip((change.before, change.after), copies, strict=True):
            if _MARK.sub(_ANY, copy) not in shown.get(mark, ""):
                return None
    return careful
