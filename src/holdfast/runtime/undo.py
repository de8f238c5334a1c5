"""Puts the files back that a session edited: undo, redo, and the files of a rewind.

Two facts, as for every effect: the intent names each file with its content before and after, and is durable before
the first file changes; the outcome tells which files were put back. If this is killed in between, the next command
completes the intent. It takes the lease for that time, so that no driver edits files meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import NoSuchSession
from holdfast.protocol.commands import Principal, Restore, Restored, Restoring
from holdfast.protocol.events import FilesRestoring, Record
from holdfast.protocol.ports import Check, Clock, Store
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime.fold import readable
from holdfast.runtime.visit import Visit, visiting
from holdfast.storage.images import Images
from holdfast.tools import restoring
from holdfast.tools.own import OwnPlaces
from holdfast.views.edits import Edit, Found, Look, Place, Todo, edits_of, open_restore

NOT_DONE = "It may edit files. Nothing was put back."
"""Why nothing is done while a process drives the session."""
Plan = Callable[[Sequence[Edit], Look], Todo]
"""Says what to do for the edits, given what is on the disk."""


class PutBack(NamedTuple):
    """What became of files."""

    done: tuple[FileRestore, ...]
    """Those that were changed."""
    kept: tuple[KeptFile, ...]
    halfway: tuple[str, ...] = ()
    """The files of an `accept` that were changed and could not be changed back. The next command completes it."""


@dataclass(frozen=True)
class Workshop:
    """What putting files back needs."""

    store: Store
    clock: Clock
    images: Images
    own: OwnPlaces


async def shelf_of(workshop: Workshop, session: str) -> restoring.Shelf:
    """Return where the content of the session's files is kept: with it, and with those that it branched off from."""
    lineage = [session]
    while (row := await workshop.store.session(lineage[-1])) is not None and row.parent not in ("", *lineage):
        lineage.append(row.parent)
    return restoring.Shelf(workshop.images, session, tuple(lineage))


async def planned(workshop: Workshop, session: str, plan: Plan) -> Todo:
    """Return what would be done, and do nothing.

    Raises:
        NoSuchSession: there is no such session.
    """
    if await workshop.store.session(session) is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    records = [readable(each) for each in await workshop.store.read(session)]
    left = open_restore(records)
    if left is not None:
        return Todo(left.messages, left.files, left.kept)
    return await todo_of(workshop, session, records, plan)


async def put_back(
    workshop: Workshop, session: str, principal: Principal, why: Restoring, plan: Plan
) -> PutBack:
    """Put files back, and return what became of them. First complete what an earlier one left undone: if that was
    the same kind, it is all that is done.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: somebody drives the session.
        StorageError: it cannot be recorded, or what is overwritten cannot be kept. The same command completes it.
    """
    async with visiting(workshop.store, workshop.clock, session, principal, NOT_DONE) as visit:
        records = [readable(each) for each in await workshop.store.read(session)]
        left = open_restore(records)
        if left is not None:
            outcome = await finish(workshop, visit, left)
            if left.why == why or outcome.halfway:
                return outcome
            records = [readable(each) for each in await workshop.store.read(session)]
        todo = await todo_of(workshop, session, records, plan)
        if not todo.files:
            return PutBack((), todo.kept)
        await visit.tell(Restore(why, todo.messages, todo.files, todo.kept))
        intent = FilesRestoring(why, principal.label, todo.messages, todo.files, todo.kept)
        return await finish(workshop, visit, intent)


async def finish(workshop: Workshop, visit: Visit, intent: FilesRestoring) -> PutBack:
    """Do what an intent says, and record the outcome, unless an `accept` ended halfway."""
    shelf = await shelf_of(workshop, visit.fold.session)
    reasons, halfway = await asyncio.to_thread(_put_all_back, workshop.own, intent, shelf, visit.lease.check)
    failed = {path for path, _ in reasons}
    done = tuple(
        goal
        for goal in intent.files
        if goal.path not in failed and (goal.before, goal.before_mode) != (goal.after, goal.mode)
    )
    if intent.why == "accept" and failed:
        done = ()
    elif intent.why != "accept":
        done = tuple(goal for goal in done if goal.before != goal.after)
    kept = (*intent.kept, *(KeptFile(*each) for each in reasons))
    if not halfway:
        await visit.tell(Restored(intent.why, tuple(goal.path for goal in done), kept))
    return PutBack(done, kept, halfway)


def _put_all_back(
    own: OwnPlaces, intent: FilesRestoring, shelf: restoring.Shelf, check: Check
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the files that stay as they are, each with the reason, and those of an `accept` that are changed all the
    same. What is accepted changes all files or none.
    """
    reasons = _in_order(own, intent.files, shelf, check)
    by_path = {goal.path: goal for goal in intent.files}
    if intent.why == "accept" and reasons:
        # All of them: what failed may have changed its file, or made folders. A file that something else changed in
        # this moment stays: the next command tells it from what was accepted.
        back = [_reversed(goal) for goal in intent.files]
        failed = {path for path, _ in reasons}
        left = [
            each
            for each in _in_order(own, back, shelf, check)
            if restoring.has(own, by_path[each[0]], shelf.images)
        ]
        reasons += [each for each in left if each[0] not in failed]
        return reasons, tuple(path for path, _ in left)
    return [each for each in reasons if not restoring.has(own, by_path[each[0]], shelf.images)], ()


def _in_order(
    own: OwnPlaces, goals: Sequence[FileRestore], shelf: restoring.Shelf, check: Check
) -> list[tuple[str, str]]:
    """Put files back, and return those that stay. A file that goes may be where a folder is to be, or above one."""
    removed = [goal for goal in goals if not goal.after]
    reasons = {}
    swept: set[tuple[int, int]] = set()
    for goal in removed:
        reasons[goal.path] = restoring.put_back(own, goal, shelf, check, swept)
    restoring.remove_folders(own, removed, check)
    for goal in goals:
        if goal.after:
            reasons[goal.path] = restoring.put_back(own, goal, shelf, check, swept)
    return [(goal.path, reasons[goal.path]) for goal in goals if reasons[goal.path]]


def _reversed(goal: FileRestore) -> FileRestore:
    return replace(goal, before=goal.after, after=goal.before, before_mode=goal.mode, mode=goal.before_mode)


async def todo_of(workshop: Workshop, session: str, records: Sequence[Record], plan: Plan) -> Todo:
    """Return what to do. A file whose old content is not kept is left as it is."""
    shelf = await shelf_of(workshop, session)

    def look(where: Place) -> Found:
        return restoring.look_at(workshop.own, workshop.images, where)

    def checked() -> Todo:
        workshop.images.check_key(shelf.lineage)
        todo = plan(edits_of(records), look)
        kept, files = [*todo.kept], []
        for each in todo.files:
            if each.after in ("", each.before) or shelf.content(each.after) is not None:
                files.append(each)
            else:
                kept.append(KeptFile(each.path, restoring.GONE))
        return Todo(todo.messages, tuple(files), tuple(kept))

    return await asyncio.to_thread(checked)
