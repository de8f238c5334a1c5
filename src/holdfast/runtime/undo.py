"""Puts the files back that a session edited: undo, redo, and the files of a rewind.

Two facts, as for every effect: the intent names each file with its content before and after, and is durable before
the first file changes; the outcome tells which files were put back. If this is killed in between, the next command
completes the intent. It takes the lease for that time, so that no driver edits files meanwhile.
As long as files are neither as they were nor as they are to be, the intent stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.errors import NoSuchSession, Unfinished
from holdfast.protocol.commands import Principal, Restore, Restored, Restoring
from holdfast.protocol.events import FilesRestoring, Record
from holdfast.protocol.ports import Clock, Store
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime.fold import readable
from holdfast.runtime.visit import Visit, visiting
from holdfast.storage.images import Images
from holdfast.tools import restoring
from holdfast.tools.own import OwnPlaces
from holdfast.tools.together import Reasons, Work, all_or_none, backwards, one_by_one, taken_back
from holdfast.views.edits import Edit, Found, Look, Place, Todo, edits_of, open_restore

NOT_DONE = "It may edit files. Nothing was put back."
"""Why nothing is done while a process drives the session."""
_NAMED = 20
"""How many files the sentence about an unfinished command names."""
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


async def planned(workshop: Workshop, session: str, why: Restoring, plan: Plan) -> Todo:
    """Return what would be done, and do nothing.

    Raises:
        NoSuchSession: there is no such session.
    """
    if await workshop.store.session(session) is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    records = [readable(each) for each in await workshop.store.read(session)]
    left = open_restore(records)
    if left is not None and _is_taken_back(left, why):
        files = await asyncio.to_thread(_changed, workshop, backwards(left.files))
        return Todo(left.messages, tuple(files), left.kept)
    if left is not None:
        return Todo(left.messages, left.files, left.kept)
    return await todo_of(workshop, session, records, plan)


async def put_back(
    workshop: Workshop, session: str, principal: Principal, why: Restoring, plan: Plan
) -> PutBack:
    """Put files back, and return what became of them. First complete what an earlier one left undone: if that was
    the same kind, it is all that is done. An undo takes back an `accept` that was cut off, and nothing else.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: somebody drives the session.
        StorageError: it cannot be recorded, or what is overwritten cannot be kept. The same command completes it.
        Unfinished: some files are halfway. The same command completes it.
    """
    async with visiting(workshop.store, workshop.clock, session, principal, NOT_DONE) as visit:
        records = [readable(each) for each in await workshop.store.read(session)]
        left = open_restore(records)
        if left is not None and _is_taken_back(left, why):
            return await _take_back(workshop, visit, left)
        if left is not None:
            outcome = await finish(workshop, visit, left)
            if outcome.halfway:
                raise _unfinished(left, session, {each.path: each.reason for each in outcome.kept})
            if left.why == why or (left.why == "accept" and outcome.kept):
                return outcome
            records = [readable(each) for each in await workshop.store.read(session)]
        todo = await todo_of(workshop, session, records, plan)
        if not todo.files:
            return PutBack((), todo.kept)
        await visit.tell(Restore(why, todo.messages, todo.files, todo.kept))
        intent = FilesRestoring(why, principal.label, todo.messages, todo.files, todo.kept)
        return await finish(workshop, visit, intent)


def _is_taken_back(left: FilesRestoring, why: Restoring) -> bool:
    return left.why == "accept" and why == "undo"


async def finish(workshop: Workshop, visit: Visit, intent: FilesRestoring) -> PutBack:
    """Do what an intent says, and record the outcome. What is accepted changes all files or none. If neither is
    possible, there is no outcome yet, so that the same command completes it.

    Raises:
        Unfinished: some files that were to be put back are halfway.
    """
    work = await _work_of(workshop, visit)
    is_accept = intent.why == "accept"
    reasons, halfway = await asyncio.to_thread(all_or_none if is_accept else one_by_one, work, intent.files)
    if halfway and is_accept:
        told = reasons | halfway
        return PutBack((), tuple(KeptFile(*each) for each in told.items()), tuple(halfway))
    if halfway:
        raise _unfinished(intent, visit.fold.session, halfway)
    changed = (goal for goal in intent.files if (goal.before, goal.before_mode) != (goal.after, goal.mode))
    done = tuple(goal for goal in changed if goal.path not in reasons)
    if is_accept and reasons:
        done = ()
    elif not is_accept:
        done = tuple(goal for goal in done if goal.before != goal.after)
    kept = (*intent.kept, *(KeptFile(*each) for each in reasons.items()))
    await visit.tell(Restored(intent.why, tuple(goal.path for goal in done), kept))
    return PutBack(done, kept)


async def _take_back(workshop: Workshop, visit: Visit, intent: FilesRestoring) -> PutBack:
    """Take back an `accept` that was cut off, and record that nothing was accepted."""
    work = await _work_of(workshop, visit)
    goals = backwards(intent.files)
    changed = await asyncio.to_thread(_changed, workshop, goals)
    reasons, halfway = await asyncio.to_thread(taken_back, work, goals)
    if halfway:
        raise _unfinished(intent, visit.fold.session, halfway)
    kept = (*intent.kept, *(KeptFile(*each) for each in reasons.items()))
    await visit.tell(Restored(intent.why, (), kept))
    return PutBack(tuple(goal for goal in changed if goal.path not in reasons), kept)


def _changed(workshop: Workshop, goals: Sequence[FileRestore]) -> list[FileRestore]:
    """Return the goals that are not reached, of files that nothing else changed."""
    images = workshop.images
    return [goal for goal in goals if restoring.how_far(workshop.own, goal, images) == "before"]


def _unfinished(intent: FilesRestoring, session: str, halfway: Reasons) -> Unfinished:
    named = "; ".join(f"{path}: {reason}" for path, reason in list(halfway.items())[:_NAMED])
    more = f"; and {len(halfway) - _NAMED} more" if len(halfway) > _NAMED else ""
    if intent.why == "accept":
        return Unfinished(
            f"An accept of session {session} failed, and could not be taken back whole. {named}{more}",
            hint=f"See to these files and their disk. Then complete it with `holdfast accept {session}`, or take it "
            f"back with `holdfast undo {session}`.",
        )
    return Unfinished(
        f"The {intent.why} of session {session} is not whole. {named}{more}",
        hint="See to these files and their disk. Then the same command completes it.",
    )


async def _work_of(workshop: Workshop, visit: Visit) -> Work:
    shelf = await shelf_of(workshop, visit.fold.session)
    return Work(workshop.own, shelf, visit.lease.check)


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
