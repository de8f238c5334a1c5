"""Which files a session edited, read from its journal: the intents of file tools, and what was put back since.

What is on the disk is not asked here. `undo_of`, `redo_of` and `rewind_of` say what would have to be done to files
with given content, so that the caller looks at the disk once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import NamedTuple

import msgspec

from holdfast.protocol.events import (
    FilesRestored,
    FilesRestoring,
    MessageReceived,
    Record,
    Responded,
    RunStarted,
    SessionImported,
    SettingsChanged,
    SettingsStored,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.protocol.messages import ToolCall, calls_of
from holdfast.protocol.settings import Group, settings_by
from holdfast.protocol.tools import FileChange, FileRestore, Files, KeptFile
from holdfast.protocol.untrusted import decode_untrusted

CHANGED = "it has changed since"
REMOVED = "it was removed since"
MODE = "its permissions have changed since"
BETWEEN = "something else changed it between two edits"
MASKED = "its path contains what looks like a secret, so it is not known which file was edited"
LARGE = "it was over 32 MiB before the edit, and so large a file is not kept"
FOREIGN = "it was edited before the session was imported, so maybe not here"
_MASK = "[redacted:"
OPEN = "a call that edits it has not ended; resume or stop the session first"


class Edit(msgspec.Struct, frozen=True):
    """One change of one file by one call."""

    seq: int
    """The record of the intent."""
    message: int
    """The record of the message that it serves."""
    workspace: str
    change: FileChange
    is_certain: bool = False
    """The call said that it succeeded. Otherwise the file shows whether it happened."""
    is_open: bool = False
    is_foreign: bool = False
    """It was recorded before the session was imported."""
    is_nameless: bool = False
    """Its path contained what looks like a secret. So its intent names no file, and it cannot be undone."""
    masked: MaskedTexts | None = None
    """What was masked of the texts that it replaced and wrote; None if nothing was."""
    undone_seq: int = 0
    """The record that tells that it was undone; 0: it is in effect."""
    mode: int = 0
    """The permission bits of the file when it was undone; 0 if it was not."""
    left: str | None = None
    """The mark of the file when it was undone; None if it was not."""

    @property
    def is_undone(self) -> bool:
        """Return whether it is not in effect."""
        return self.undone_seq > 0

    @property
    def place(self) -> Place:
        """Which file it is."""
        return Place(self.workspace, self.change.path)


class MaskedTexts(NamedTuple):
    """The masked copies of the text that a call replaces, and of the one that it writes."""

    old: str
    new: str


class Place(NamedTuple):
    """A file."""

    workspace: str
    path: str


class Found(msgspec.Struct, frozen=True):
    """What is at a place now."""

    sha256: str
    """Empty if there is no file."""
    mode: int = 0
    problem: str = ""
    """Why it cannot be put back, if so."""


class Todo(msgspec.Struct, frozen=True):
    """What to do to put files back."""

    messages: tuple[int, ...]
    files: tuple[FileRestore, ...]
    """Those whose content stays the same are only cleared up."""
    kept: tuple[KeptFile, ...]


Look = Callable[[Place], Found]


def edits_of(records: Iterable[Record]) -> list[Edit]:
    """Return all edits in order, each with what became of it.

    A branch that works in a copy of the workspace has the edits of its parent there.
    """
    edits: list[Edit] = []
    calls: dict[str, range] = {}
    """Where the edits of each call are."""
    message = 0
    restoring: FilesRestoring | None = None
    copies: dict[str, ToolCall] = {}
    """The calls that contained what looks like a secret, by id."""
    place = ""
    for record, workspace in _in_workspaces(records):
        edits, place = _moved(edits, record, place, workspace), workspace
        match record.event:
            case MessageReceived():
                message = record.seq
            case Responded(parts=parts):
                copies |= {call.call_id: call for call in calls_of(parts) if call.is_masked}
            case ToolCallStarted(call_id=call_id, effect="write", expects=None, is_masked=True):
                path = _text_in(copies.get(call_id), "path").removeprefix("./")
                if _MASK in path:
                    change = FileChange(path, "?", "!")
                    calls[call_id] = range(len(edits), len(edits) + 1)
                    edits.append(Edit(record.seq, message, workspace, change, is_open=True, is_nameless=True))
            case ToolCallStarted(call_id=call_id, expects=Files(changes=changes)) as started:
                masked = masked_texts(copies.get(call_id)) if started.is_masked else None
                made = [
                    Edit(record.seq, message, workspace, change, is_open=True, masked=masked)
                    for change in changes
                    if change.before != change.after
                ]
                places = calls.get(call_id, range(0))
                if len(places) == len(made):  # another attempt of the same
                    for at, edit in zip(places, made, strict=True):
                        edits[at] = _again(edits[at], edit)
                else:
                    calls[call_id] = range(len(edits), len(edits) + len(made))
                    edits += made
            case ToolCallFinished(call_id=call_id, result=result):
                _close(edits, calls.pop(call_id, range(0)), is_certain=result.status == "ok")
            case ToolCallAbandoned(call_id=call_id):
                _close(edits, calls.pop(call_id, range(0)), is_certain=False)
            case SessionImported():
                edits = [msgspec.structs.replace(edit, is_foreign=True) for edit in edits]
                restoring = None
            case FilesRestoring() as restoring:
                pass
            case FilesRestored(kept=kept) if restoring is not None:
                edits = [_after(edit, restoring, record.seq, kept) for edit in edits]
                restoring = None
    return edits


def _moved(edits: list[Edit], record: Record, before: str, workspace: str) -> list[Edit]:
    """Return the edits. If the session works in a copy from this record on, they are there too."""
    if not moves_to_copy(record):
        return edits
    return [
        msgspec.structs.replace(edit, workspace=workspace) if edit.workspace == before else edit
        for edit in edits
    ]


def moves_to_copy(record: Record) -> bool:
    """Return whether the session works in a copy of its workspace from this record on."""
    return isinstance(record.event, SettingsChanged) and record.cause.kind == "fork"


def _in_workspaces(records: Iterable[Record]) -> Iterator[tuple[Record, str]]:
    """Yield each record with the workspace of its run."""
    groups: dict[str, Group] = {}
    workspace = ""
    for record in records:
        match record.event:
            case SettingsStored(groups=stored):
                groups |= stored
            case RunStarted(settings=ref) | SettingsChanged(settings=ref):
                settings = settings_by(ref, groups)
                workspace = settings.tools.workspace if settings is not None else workspace
        yield record, workspace


def open_restore(records: Sequence[Record]) -> FilesRestoring | None:
    """Return the intent to put files back that has no outcome yet."""
    for record in reversed(records):
        match record.event:
            case FilesRestored() | SessionImported():
                return None
            case FilesRestoring() as restoring:
                return restoring
    return None


def masked_texts(call: ToolCall | None) -> MaskedTexts:
    """Return the masked copies of what a call of a file tool replaces and writes."""
    return MaskedTexts(_text_in(call, "old"), _text_in(call, "new") or _text_in(call, "content"))


def _text_in(call: ToolCall | None, name: str) -> str:
    """Return an argument of a call; empty if it is not a text."""
    try:
        found = decode_untrusted(call.arguments if call is not None else "").get(name, "")
    except (msgspec.DecodeError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _again(first: Edit, again: Edit) -> Edit:
    """Return the edit of another attempt. The first one may have made folders, although it did not make the file."""
    folders = max(first.change.new_folders, again.change.new_folders)
    return msgspec.structs.replace(again, change=msgspec.structs.replace(again.change, new_folders=folders))


def _close(edits: list[Edit], places: range, *, is_certain: bool) -> None:
    for at in places:
        edits[at] = msgspec.structs.replace(edits[at], is_certain=is_certain, is_open=False)


def _after(edit: Edit, restoring: FilesRestoring, seq: int, kept: Sequence[KeptFile]) -> Edit:
    """Return the edit after files were put back. One whose file was left as it is stays in effect."""
    is_kept = edit.change.path in [each.path for each in kept]
    if edit.message not in restoring.messages or is_kept or restoring.why == "rewind":
        return edit
    told = ((each.before_mode, each.before) for each in restoring.files if each.path == edit.change.path)
    mode, left = next(told, (edit.mode, edit.left))
    undone_seq = seq if restoring.why == "undo" else 0
    return msgspec.structs.replace(edit, undone_seq=undone_seq, mode=mode, left=left)


# --- what to do ---------------------------------------------------------------------------------


def undo_of(edits: Sequence[Edit], count: int, look: Look) -> Todo:
    """Return what takes back the edits of the last `count` messages with edits that the files still show."""
    look = cache(look)
    chosen, todo = [], Todo((), (), ())
    for message in sorted({edit.message for edit in edits if not edit.is_undone}, reverse=True):
        if count <= 0:
            break
        chosen.append(message)
        before = todo
        theirs = [edit for edit in edits if edit.message in chosen]
        found = [edit for edit in theirs if not edit.is_undone]
        todo = _without_folders(_todo(tuple(reversed(chosen)), found, look, _backwards), theirs)
        count -= (_changed(todo), todo.kept) != (_changed(before), before.kept)
    return todo


def redo_of(edits: Sequence[Edit], count: int, look: Look) -> Todo:
    """Return what makes the edits of the `count` messages again that were undone last and that changed something. A
    new edit ends that: what was undone before it stays undone."""
    look = cache(look)
    last_seq = max((edit.seq for edit in edits), default=0)
    undone = _happened([edit for edit in edits if edit.undone_seq > last_seq])
    chosen: list[int] = []
    todo = Todo((), (), ())
    for message in sorted({edit.message for edit in undone}):
        if count <= 0:
            break
        chosen.append(message)
        before = todo
        todo = _todo(tuple(chosen), [edit for edit in undone if edit.message in chosen], look, _forwards)
        count -= (_changed(todo), todo.kept) != (_changed(before), before.kept)
    return todo


def _happened(undone: Sequence[Edit]) -> list[Edit]:
    """Return the edits without those that did not happen. The next edit of the file shows that, or its undo did."""
    found: list[Edit] = []
    told: dict[Place, str] = {}
    for edit in reversed(undone):
        then = told.get(edit.place, edit.left)
        if edit.is_certain or then != edit.change.before:
            found.append(edit)
        told[edit.place] = edit.change.before
    return found[::-1]


def rewind_of(records: Sequence[Record], seq: int, look: Look) -> Todo:
    """Return what takes back everything that was done to files after a record: edits, and what was put back."""
    steps = [*edits_of(records), *_put_back(records)]
    chosen = sorted((step for step in steps if step.seq > seq), key=lambda step: step.seq)
    return _without_folders(_todo((), chosen, look, _backwards), chosen)


def _without_folders(todo: Todo, edits: Sequence[Edit]) -> Todo:
    """Return what to do, with all folders that these edits made and that are above a removed file. Another file may
    have been the first in a folder, and may be gone already."""
    made = {
        Place(edit.workspace, folder)
        for edit in edits
        for folder in _above(edit.change.path)[: edit.change.new_folders]
    }
    files: list[FileRestore] = []
    for each in todo.files:
        above = [Place(each.workspace, folder) for folder in _above(each.path)]
        count = max(each.new_folders, len(list(takewhile(made.__contains__, above))))
        files.append(msgspec.structs.replace(each, new_folders=0 if each.after else count))
    return msgspec.structs.replace(todo, files=tuple(files))


def _above(path: str) -> list[str]:
    """Return the folders above a file, the nearest first."""
    names = path.split("/")[:-1]
    return ["/".join(names[:end]) for end in range(len(names), 0, -1)]


def _put_back(records: Sequence[Record]) -> Iterator[Edit]:
    """Yield the files that were put back, as if they had been edited."""
    restoring: FilesRestoring | None = None
    for record in records:
        match record.event:
            case FilesRestoring() as restoring:
                pass
            case FilesRestored(restored=restored) if restoring is not None:
                # A rewind took back what the parent did later, which is not in this journal.
                for file in restoring.files if restoring.why != "rewind" else ():
                    if file.path in restored:
                        change = FileChange(
                            file.path, file.before, file.after, file.before_mode, file.new_folders
                        )
                        yield Edit(record.seq, 0, file.workspace, change, is_certain=True)
                restoring = None


def _changed(todo: Todo) -> list[FileRestore]:
    return [each for each in todo.files if each.before != each.after]


class _Walk(msgspec.Struct, frozen=True):
    sha256: str
    """What the file is to be."""
    mode: int
    new_folders: int
    problem: str = ""


def _todo(
    messages: tuple[int, ...],
    edits: Sequence[Edit],
    look: Look,
    walk: Callable[[Sequence[Edit], Found], _Walk],
) -> Todo:
    by_place: dict[Place, list[Edit]] = {}
    for edit in edits:
        by_place.setdefault(edit.place, []).append(edit)
    files: list[FileRestore] = []
    kept: list[KeptFile] = []
    for place, chain in by_place.items():
        found = look(place)
        goal = walk(chain, found)
        problem = found.problem or goal.problem
        if any(edit.is_nameless for edit in chain):
            problem = MASKED
        if any(edit.is_open for edit in chain):
            problem = OPEN
        if any(edit.is_foreign for edit in chain):
            problem = FOREIGN
        if problem:
            kept.append(KeptFile(place.path, problem))
        elif goal.sha256 != found.sha256 or not all(edit.is_certain for edit in chain):
            # An edit that was killed may have left an empty folder or a draft of the file, and no change.
            files.append(
                FileRestore(*place, found.sha256, goal.sha256, found.mode, goal.mode, goal.new_folders)
            )
    return Todo(messages, tuple(files), tuple(kept))


def since(now: str) -> str:
    """Return what something else did to a file. `now`: the mark of its content; empty if there is no file."""
    return CHANGED if now else REMOVED


def _other_mode(edit: Edit, found: Found) -> str:
    """Return a problem if somebody changed the permissions of a file: an edit, its undo and its redo keep them."""
    is_same = not edit.change.mode or edit.change.mode == found.mode
    is_put_back = not edit.message  # it may have got other permissions then
    return "" if is_same or is_put_back or not found.sha256 else MODE


def _backwards(chain: Sequence[Edit], found: Found) -> _Walk:
    """Walk from the file as it is to what it was before the first edit. An edit that is not certain is skipped if the
    file shows that it did not happen."""
    goal = _Walk(found.sha256, found.mode, 0, _other_mode(chain[-1], found))
    if goal.problem:
        return goal
    if found.sha256 == chain[0].change.before != chain[-1].change.after:
        folders = sum(edit.change.new_folders for edit in chain)
        return msgspec.structs.replace(
            goal, new_folders=folders
        )  # something else put it back, or no edit happened
    for number, edit in enumerate(reversed(chain)):
        change = edit.change
        if goal.sha256 == change.after:
            folders = goal.new_folders + change.new_folders
            goal = _Walk(change.before, change.mode or goal.mode, folders, LARGE if change.is_large else "")
        elif not edit.is_certain and goal.sha256 == change.before:
            goal = msgspec.structs.replace(goal, new_folders=goal.new_folders + change.new_folders)
        else:
            return msgspec.structs.replace(goal, problem=BETWEEN if number else since(found.sha256))
    return goal


def _forwards(chain: Sequence[Edit], found: Found) -> _Walk:
    """Walk from the file as it is to what it was after the last edit."""
    goal = _Walk(found.sha256, found.mode, 0, _other_mode(chain[0], found))
    if goal.problem:
        return goal
    if found.sha256 == chain[-1].change.after != chain[0].change.before:
        return goal
    for number, edit in enumerate(chain):
        change = edit.change
        if goal.sha256 == change.before:
            folders = goal.new_folders + change.new_folders
            goal = _Walk(change.after, edit.mode or goal.mode, folders)
        elif edit.is_certain:
            return msgspec.structs.replace(goal, problem=BETWEEN if number else since(found.sha256))
    return goal


# --- what changed -------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """What all edits of a file came to."""

    place: Place
    before: str
    """The mark of its content before the first edit; empty if there was no file."""
    after: str
    edits: tuple[Edit, ...]


def changes_of(edits: Sequence[Edit]) -> list[Change]:
    """Return what the edits in effect came to, file by file. What is not certain counts."""
    found: dict[Place, list[Edit]] = {}
    for edit in edits:
        if not edit.is_undone:
            found.setdefault(edit.place, []).append(edit)
    changes = [
        Change(place, chain[0].change.before, chain[-1].change.after, tuple(chain))
        for place, chain in found.items()
    ]
    return [change for change in changes if change.before != change.after]
