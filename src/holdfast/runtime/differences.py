"""Compares what a session's edits came to, and what an undo would do, from the content that is kept of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.protocol.events import Record
from holdfast.redact import Redactor
from holdfast.runtime.undo import Workshop
from holdfast.tools.restoring import Shelf, content_at
from holdfast.views.diffs import FileDiff, file_diff, untold
from holdfast.views.edits import Edit, Place, changes_of, edits_of


def all_changes(shelf: Shelf, records: Sequence[Record], redact: Redactor) -> list[FileDiff]:
    """Return all that file tools changed in a session, file by file. What was undone is not in it."""
    edits = edits_of(records)
    shown = _names(edits)
    return [
        difference(shelf, shown(each.place), each.before, each.after, redact) for each in changes_of(edits)
    ]


def changed_since(
    workshop: Workshop, shelf: Shelf, records: Sequence[Record], paths: Sequence[str], redact: Redactor
) -> list[FileDiff]:
    """Return what something else changed in these files after their last edit, where that is known."""
    last = {edit.change.path: edit for edit in edits_of(records) if not edit.is_undone}
    found: list[FileDiff] = []
    for path in paths:
        edit = last.get(path)
        left = shelf.content(edit.change.after) if edit is not None and edit.change.after else None
        now = content_at(workshop.own, edit.place) if edit is not None else None
        if left is not None and now != left:
            found.append(file_diff(path, left, now, redact))
    return found


def _names(edits: Sequence[Edit]) -> Callable[[Place], str]:
    """Return how to name files: by their path in the last workspace, else in full."""
    workspace = edits[-1].workspace if edits else ""
    return lambda place: place.path if place.workspace == workspace else f"{place.workspace}/{place.path}"


def difference(shelf: Shelf, path: str, before: str, after: str, redact: Redactor) -> FileDiff:
    """Compare two contents of a file that were kept, each by its SHA-256; empty: there is no file."""
    old, new = (shelf.content(each) if each else None for each in (before, after))
    if (before and old is None) or (after and new is None):
        return untold(path, "changed" if before and after else "deleted" if before else "added")
    return file_diff(path, old, new, redact)
