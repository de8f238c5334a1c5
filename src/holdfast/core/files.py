"""Undo, redo and rewind of files: the intent, the outcome, a note for the model. Another room writes the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.draft import Draft
from holdfast.protocol import events as e
from holdfast.protocol.commands import Restore, Restored, Restoring

TOLD_PATHS = 20
UNDONE = "The user took back your edits of these files: {paths}. "
REDONE = "The user made your edits of these files again: {paths}. "
ACCEPTED = "The user accepted what you changed. These files are in the user's workspace now: {paths}. "
DISCARDED = "The user discarded what you changed in the copy of the workspace. The next copy has none of it. "
LEFT = "These were left as they are: {paths}. "
_SAID: Mapping[Restoring, str] = {
    "undo": UNDONE,
    "redo": REDONE,
    "rewind": "",
    "accept": ACCEPTED,
    "discard": DISCARDED,
}
LOOK = "Read a file again before you rely on what you know of it."


def restore(draft: Draft, asked: Restore, by: str) -> None:
    """Record the intent, unless another one has no outcome yet."""
    if not draft.state.restoring_seq:
        draft.add(e.FilesRestoring(asked.why, by, asked.messages, asked.files, asked.kept))


def restored(draft: Draft, told: Restored) -> None:
    """Record the outcome, and tell the model which files changed. After a rewind it knows of no edit anyway."""
    if not draft.state.restoring_seq:
        return
    draft.add(e.FilesRestored(told.why, told.restored, told.kept))
    # A discard puts no file back. The model has to learn of it all the same,
    # because its edits are gone.
    if told.why != "rewind" and (told.restored or told.why == "discard"):
        text = _SAID[told.why].format(paths=_listed(told.restored))
        if told.kept:
            text += LEFT.format(paths=_listed([kept.path for kept in told.kept]))
        draft.add(e.NoteAdded("files", text + LOOK))


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - TOLD_PATHS} more" if len(paths) > TOLD_PATHS else ""
    # On one line: a name must not begin a line of its own in what Holdfast says.
    return ", ".join([" ".join(path.split()) for path in paths[:TOLD_PATHS]]) + more
