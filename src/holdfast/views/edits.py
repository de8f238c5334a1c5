"""Which files a session edited, read from its journal: the intents of file tools, and what was put back since.

What is on the disk is not asked here. `undo_of`, `redo_of` and `rewind_of` say what would have to be done to files
with given content, so that the caller looks at the disk once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, takewhile
from typing import NamedTuple

import msgspec

from holdfast.policy.paths import above
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
    is_accepted: bool = False
    """A person accepted it from a copy of the workspace. It may be a link, and may have other permissions."""
    mode: int = 0
    """The permission bits of the file when it was undone; 0 if it was not."""
    left: str | None = None
    """The mark of the file when it was undone; None if it was not."""
    emptied: int = 0
    """How many of the folders above it were removed with it."""

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
    odd: str = ""
    """Why it cannot be what a file tool left, if so. What was accepted may be a link."""


class Todo(msgspec.Struct, frozen=True):
    """What to do to put files back."""

    messages: tuple[int, ...]
    files: tuple[FileRestore, ...]
    """Those whose content stays the same are only cleared up."""
    kept: tuple[KeptFile, ...]


Look = Callable[[Place], Found]


def edits_of(records: Iterable[Record]) -> list[Edit]:
    """Return all edits in order, each with what became of it.

    A branch that works in a copy of the workspace has the edits of its parent there. What a person accepted from a
    copy is one step. The edits that were made in the copy are over then.
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
            case FilesRestored(kept=kept) as told if restoring is not None:
                edits = _after(edits, restoring, record.seq, kept)
                if told.why == "discard" or (told.why == "accept" and told.restored):
                    edits = [edit for edit in edits if edit.workspace != workspace]  # the copy is gone
                edits += _accepted(restoring, told, record.seq)
                restoring = None
    return edits


def _accepted(restoring: FilesRestoring, told: FilesRestored, seq: int) -> list[Edit]:
    """Return what a person accepted from a copy of the workspace, as edits of the workspace."""
    if told.why != "accept":
        return []
    return [
        Edit(
            seq,
            seq,
            file.workspace,
            FileChange(
                file.path, file.before, file.after, file.before_mode, file.new_folders if file.after else 0
            ),
            is_certain=True,
            is_accepted=True,
            emptied=0 if file.after else file.new_folders,
        )
        for file in restoring.files
        if file.path in told.restored and file.before != file.after
    ]


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


def workspaces_of(records: Iterable[Record]) -> set[str]:
    """Return the workspaces in which a session has worked."""
    return {workspace for _, workspace in _in_workspaces(records) if workspace}


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
    if patch := _text_in(call, "patch"):  # no file has it whole, so no diff is shown
        return MaskedTexts(patch, patch)
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


def _after(edits: list[Edit], restoring: FilesRestoring, seq: int, kept: Sequence[KeptFile]) -> list[Edit]:
    """Return the edits after files were put back. One whose file was left as it is stays in effect."""
    if restoring.why == "rewind":
        return edits
    messages, left_alone = set(restoring.messages), {each.path for each in kept}
    before = {each.path: (each.before_mode, each.before) for each in restoring.files}
    undone_seq = seq if restoring.why == "undo" else 0

    def after(edit: Edit) -> Edit:
        path = edit.change.path
        if edit.message not in messages or path in left_alone:
            return edit
        mode, left = before.get(path, (edit.mode, edit.left))
        return msgspec.structs.replace(edit, undone_seq=undone_seq, mode=mode, left=left)

    return [after(edit) for edit in edits]


# --- what to do ---------------------------------------------------------------------------------


def undo_of(edits: Sequence[Edit], count: int, look: Look) -> Todo:
    """Return what takes back the edits of the last `count` messages with edits that the files still show."""
    look = cache(look)
    in_effect = [edit for edit in reversed(edits) if not edit.is_undone]
    # Another attempt of a call may serve a later message, in the place of the first attempt.
    newest_first = sorted(in_effect, key=lambda edit: edit.message, reverse=True)
    chosen = _chosen(newest_first, count, look, _back)
    theirs = [edit for edit in edits if edit.message in chosen]
    found = [edit for edit in theirs if not edit.is_undone]
    return _without_folders(_todo(tuple(sorted(chosen)), found, look, _back), theirs)


def redo_of(edits: Sequence[Edit], count: int, look: Look) -> Todo:
    """Return what makes the edits of the `count` messages again that were undone last and that changed something. A
    new edit ends that: what was undone before it stays undone."""
    look = cache(look)
    last_seq = max((edit.seq for edit in edits), default=0)
    undone = _happened([edit for edit in edits if edit.undone_seq > last_seq])
    chosen = _chosen(sorted(undone, key=lambda edit: edit.message), count, look, _forth)
    return _todo(tuple(sorted(chosen)), [edit for edit in undone if edit.message in chosen], look, _forth)


def _chosen(edits: Iterable[Edit], count: int, look: Look, step: _Step) -> set[int]:
    """Return the first messages of which `count` would change something. Each edit is looked at once: a session may
    have thousands."""
    chosen: set[int] = set()
    chains: dict[Place, _Chain] = {}
    told: dict[Place, FileRestore | KeptFile | None] = {}
    for message, theirs in groupby(edits, lambda edit: edit.message):
        if count <= 0:
            break
        chosen.add(message)
        touched: dict[Place, FileRestore | KeptFile | None] = {}
        for edit in theirs:
            chain = chains.get(edit.place)
            if chain is None:
                chain = chains[edit.place] = _Chain(edit.place, look(edit.place), edit)
            touched.setdefault(edit.place, told.get(edit.place))
            chain.take(edit, step)
        for place in touched:
            told[place] = _changing(chains[place].outcome())
        count -= any(told[place] != before for place, before in touched.items())
    return chosen


def _changing(outcome: FileRestore | KeptFile | None) -> FileRestore | KeptFile | None:
    """Return the outcome, unless the content of the file stays the same."""
    is_same = isinstance(outcome, FileRestore) and outcome.before == outcome.after
    return None if is_same else outcome


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
    return _without_folders(_todo((), chosen, look, _back), chosen)


def _without_folders(todo: Todo, edits: Sequence[Edit]) -> Todo:
    """Return what to do, with all folders that these edits made and that are above a removed file. Another file may
    have been the first in a folder, and may be gone already."""
    made = {
        Place(edit.workspace, folder)
        for edit in edits
        for folder in above(edit.change.path)[: edit.change.new_folders]
    }
    files: list[FileRestore] = []
    for each in todo.files:
        places = [Place(each.workspace, folder) for folder in above(each.path)]
        count = max(each.new_folders, len(list(takewhile(made.__contains__, places))))
        files.append(msgspec.structs.replace(each, new_folders=0 if each.after else count))
    return msgspec.structs.replace(todo, files=tuple(files))


def _put_back(records: Sequence[Record]) -> Iterator[Edit]:
    """Yield the files that were put back, as if they had been edited."""
    restoring: FilesRestoring | None = None
    imported_seq = max((each.seq for each in records if isinstance(each.event, SessionImported)), default=0)
    for record in records:
        match record.event:
            case FilesRestoring() as restoring:
                pass
            case FilesRestored(restored=restored) if restoring is not None:
                # A rewind took back what the parent did later, which is not in this journal. What was accepted is an
                # edit.
                for file in restoring.files if restoring.why not in ("rewind", "accept") else ():
                    if file.path in restored:
                        change = FileChange(
                            file.path, file.before, file.after, file.before_mode, file.new_folders
                        )
                        is_foreign = record.seq < imported_seq
                        yield Edit(
                            record.seq, 0, file.workspace, change, is_certain=True, is_foreign=is_foreign
                        )
                restoring = None


class _Walk(msgspec.Struct, frozen=True):
    sha256: str
    """What the file is to be."""
    mode: int
    new_folders: int
    problem: str = ""
    is_over: bool = False
    """The problem cannot go away with further edits."""


_Step = Callable[[_Walk, "_Chain", Edit], _Walk]


class _Chain:
    """The edits of one file, taken one after the other: backwards from the last one, or forwards from the first."""

    def __init__(self, place: Place, found: Found, first: Edit) -> None:
        if found.odd and not first.is_accepted:
            found = msgspec.structs.replace(found, problem=found.problem or found.odd)
        self.place, self.found = place, found
        self.count = 0
        problem = _other_mode(first, found)
        self._goal = _Walk(found.sha256, found.mode, 0, problem, is_over=bool(problem))
        self._is_given_up = bool(problem)
        self._from, self._to = "", ""
        """The mark on this side of the first edit, and that on the other side of the last one."""
        self._folders = 0
        self._is_certain = True
        self._hurdles: set[str] = set()

    def take(self, edit: Edit, step: _Step) -> None:
        """Take the next edit."""
        here, there = edit.change.after, edit.change.before
        if step is _forth:
            here, there = there, here
        else:
            self._folders += edit.change.new_folders
        self._from, self._to = self._from if self.count else here, there
        if not self._goal.is_over:
            self._goal = step(self._goal, self, edit)
        self.count += 1
        self._is_certain = self._is_certain and edit.is_certain
        hurdles = {FOREIGN: edit.is_foreign, OPEN: edit.is_open, MASKED: edit.is_nameless}
        self._hurdles |= {why for why, is_there in hurdles.items() if is_there}

    def outcome(self) -> FileRestore | KeptFile | None:
        """Return what is to be done to the file, or why nothing; None if it is as it should be."""
        found, goal = self.found, self._goal
        if not self._is_given_up and found.sha256 == self._to != self._from:
            # Something else put it there, or no edit happened.
            goal = _Walk(found.sha256, found.mode, self._folders)
        problem = found.problem or goal.problem
        problem = next((why for why in (FOREIGN, OPEN, MASKED) if why in self._hurdles), problem)
        if problem:
            return KeptFile(self.place.path, problem)
        if goal.sha256 == found.sha256 and self._is_certain:
            return None
        # An edit that was killed may have left an empty folder or a draft of the file, and no change.
        return FileRestore(*self.place, found.sha256, goal.sha256, found.mode, goal.mode, goal.new_folders)


def _todo(messages: tuple[int, ...], edits: Sequence[Edit], look: Look, step: _Step) -> Todo:
    by_place: dict[Place, list[Edit]] = {}
    for edit in edits:
        by_place.setdefault(edit.place, []).append(edit)
    outcomes: list[FileRestore | KeptFile | None] = []
    for place, theirs in by_place.items():
        ordered = theirs if step is _forth else theirs[::-1]
        chain = _Chain(place, look(place), ordered[0])
        for edit in ordered:
            chain.take(edit, step)
        outcomes.append(chain.outcome())
    files = tuple(each for each in outcomes if isinstance(each, FileRestore))
    return Todo(messages, files, tuple(each for each in outcomes if isinstance(each, KeptFile)))


def since(now: str) -> str:
    """Return what something else did to a file. `now`: the mark of its content; empty if there is no file."""
    return CHANGED if now else REMOVED


def _other_mode(edit: Edit, found: Found) -> str:
    """Return a problem if somebody changed the permissions of a file: an edit, its undo and its redo keep them."""
    is_same = not edit.change.mode or edit.change.mode == found.mode
    is_put_back = not edit.message or edit.is_accepted  # it may have got other permissions then
    return "" if is_same or is_put_back or not found.sha256 else MODE


def _back(goal: _Walk, chain: _Chain, edit: Edit) -> _Walk:
    """Walk from the file to what it was before the edit. One that is not certain is skipped if the file shows that it
    did not happen."""
    change = edit.change
    folders = goal.new_folders + change.new_folders
    if goal.sha256 == change.after:
        return _Walk(change.before, change.mode or goal.mode, folders, LARGE if change.is_large else "")
    if not edit.is_certain and goal.sha256 == change.before:
        return msgspec.structs.replace(goal, new_folders=folders)
    return _stopped(goal, chain)


def _forth(goal: _Walk, chain: _Chain, edit: Edit) -> _Walk:
    """Walk from the file to what it was after the edit."""
    change = edit.change
    if goal.sha256 == change.before:
        folders = goal.new_folders + change.new_folders if change.after else edit.emptied
        return _Walk(change.after, edit.mode or goal.mode, folders)
    return _stopped(goal, chain) if edit.is_certain else goal


def _stopped(goal: _Walk, chain: _Chain) -> _Walk:
    problem = BETWEEN if chain.count else since(chain.found.sha256)
    return msgspec.structs.replace(goal, problem=problem, is_over=True)


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
