"""Goes back to a record: with a branch that takes over the session's name, or one that works in a copy of the files.

A rewind has three steps: branch off, put files back, take over the name. If it is killed in between, the same command
finds the branch and completes it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.config.paths import is_folder
from holdfast.core.evolve import fold
from holdfast.errors import Conflict, UsageError
from holdfast.policy.protected import HOME
from holdfast.protocol.commands import Principal
from holdfast.protocol.events import MessageReceived, Record, RunStarted, SessionForked, SessionRenamed
from holdfast.protocol.rows import Commit
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime.drafts import draft_beside
from holdfast.runtime.fold import Fold, readable
from holdfast.runtime.fork import CAUSE, check_place, fork
from holdfast.runtime.holder import LiveLease
from holdfast.runtime.undo import NOT_DONE, Workshop, put_back, shelf_of, todo_of
from holdfast.runtime.visit import leased
from holdfast.tools import restoring
from holdfast.tools.copying import MAX_DEPTH, copy_file
from holdfast.tools.own import OwnPlaces, identity
from holdfast.views.edits import Edit, Found, Look, Place, Todo, moves_to_copy, open_restore, rewind_of

ELSEWHERE = "it is not in the folder that was copied"


class Rewound(NamedTuple):
    """The branch, and what became of files."""

    session: str
    done: Sequence[FileRestore] = ()
    kept: Sequence[KeptFile] = ()


async def rewind(
    workshop: Workshop, parent: str, principal: Principal, seq: int, *, with_files: bool
) -> Rewound:
    """Branch off after a record, and give the branch the session's name. With files, put back what was done after it.

    Args:
        seq: The last record that stays; 0: go back before the first message.

    Raises:
        NoSuchSession: there is no such session.
        UsageError: it has no such record.
        Conflict: somebody drives it, or an undo of it has not ended.
        StorageError: it cannot be recorded. The same command completes it.
    """
    async with leased(workshop.store, workshop.clock, parent, NOT_DONE) as lease:
        records, at_seq = await _place(workshop, parent, seq)
        branch = await _begun(workshop, parent, at_seq)
        if not branch:
            branch = await fork(workshop.store, workshop.clock, parent, at_seq, is_rewind=True)
        outcome = Rewound(branch)
        if with_files:

            def plan(_: Sequence[Edit], look: Look) -> Todo:
                return rewind_of(records, at_seq, look)

            done = await put_back(workshop, branch, principal, "rewind", plan)
            outcome = Rewound(branch, done.done, done.kept)
        await _take_over(workshop, lease, branch)
        return outcome


async def planned_rewind(workshop: Workshop, parent: str, seq: int) -> Todo:
    """Return what a rewind would do to files, and do nothing. Raises what `rewind` raises."""
    records, at_seq = await _place(workshop, parent, seq)
    return await todo_of(workshop, parent, records, lambda _, look: rewind_of(records, at_seq, look))


async def _place(workshop: Workshop, parent: str, seq: int) -> tuple[list[Record], int]:
    """Return all records, and the number of the last one that stays."""
    records = [readable(each) for each in await workshop.store.read(parent)]
    if seq == 0:
        messages = (record.seq for record in records if isinstance(record.event, MessageReceived))
        seq = max(next(messages, len(records)) - 1, 1)
    await check_place(workshop.store, parent, seq, first_seq=0)
    if open_restore(records) is not None:
        raise Conflict(
            f"An undo of session {parent} was interrupted. Nothing was changed.",
            hint=f"Complete it first: `holdfast undo {parent}`.",
        )
    await _check_moved(workshop, parent, records, seq)
    return records, seq


async def _check_moved(workshop: Workshop, session: str, records: Sequence[Record], seq: int) -> None:
    """Refuse to go back to before a branch worked in its copy: there, it worked in another folder.

    Raises:
        UsageError: says what to do.
    """
    if moved := next((record.seq for record in records[seq:] if moves_to_copy(record)), 0):
        row = await workshop.store.session(session)
        parent = row.parent if row is not None else ""
        raise UsageError(
            f"Session {session} works in a copy of the workspace since record {moved}.",
            hint=f"Branch off from its parent: `holdfast fork {parent} --at {seq} --copy DIR`.",
        )


async def _begun(workshop: Workshop, parent: str, at_seq: int) -> str:
    """Return the branch that a killed rewind to this record has made; empty without one."""
    for branch in await workshop.store.branches(parent):
        own = [readable(each).event for each in await workshop.store.read(branch, at_seq)]
        is_made = own[:1] == [SessionForked(branch, parent, at_seq, is_rewind=True)]
        if is_made and not any(isinstance(event, SessionRenamed) for event in own):
            return branch
    return ""


async def _take_over(workshop: Workshop, parents_lease: LiveLease, branch: str) -> None:
    """Give the parent's name to the branch: both say so, in one transaction."""
    store, parent = workshop.store, parents_lease.row.session
    row = await store.session(parent)
    key = row.key if row is not None else ""
    async with leased(workshop.store, workshop.clock, branch, NOT_DONE) as lease:
        given = await _renamed(workshop, parents_lease, key, "", branch) if key else None
        taken = await _renamed(workshop, lease, "", key, parent)
        others = (given,) if given is not None else ()
        await lease.commit(store, replace(taken, others=others))


async def _renamed(workshop: Workshop, lease: LiveLease, before: str, after: str, other: str) -> Commit:
    fold = Fold(lease.row.session, before)
    await fold.open(workshop.store)
    now_ms, epoch = workshop.clock.now_ms(), lease.row.epoch
    record = fold.note(SessionRenamed(after, other), now_ms, epoch, CAUSE)
    return replace(fold.commit([record], epoch, now_ms, releases_lease=False), key=after)


# --- a copy -------------------------------------------------------------------------------------


async def fork_with_copy(workshop: Workshop, parent: str, at_seq: int, folder: Path) -> Rewound:
    """Branch off after a record. The branch works in a copy of the workspace as it was then.

    Raises:
        NoSuchSession, UsageError: there is no such session or record, or the copy cannot be made there.
        Conflict: somebody drives the session.
    """
    async with leased(workshop.store, workshop.clock, parent, NOT_DONE):
        await check_place(workshop.store, parent, at_seq)
        records = [readable(each) for each in await workshop.store.read(parent)]
        await _check_moved(workshop, parent, records, at_seq)
        settings = fold(records[:at_seq]).settings
        if settings is None:
            begun = next((each.seq for each in records if isinstance(each.event, RunStarted)), 0)
            raise UsageError(
                f"No run had begun by record {at_seq}, so there is no workspace to copy.",
                hint=f"The first run began with record {begun}." if begun else "No run has begun yet.",
            )
        workspace = settings.tools.workspace
        _check_new(Path(workspace), folder)
        shelf = await shelf_of(workshop, parent)

        def copy() -> tuple[list[FileRestore], list[KeptFile], str]:
            return _copied(workshop, records, at_seq, _Copy(Path(workspace), folder), shelf)

        done, kept, real = await asyncio.to_thread(copy)
        branch = await fork(workshop.store, workshop.clock, parent, at_seq, workspace=real)
        return Rewound(branch, done, kept)


class _Copy(msgspec.Struct, frozen=True):
    workspace: Path
    folder: Path


def _check_new(workspace: Path, folder: Path) -> None:
    """Refuse a place where no copy can be made.

    Raises:
        UsageError: says why.
    """
    if os.path.lexists(folder):
        raise UsageError(f"{folder} is there already.", hint="Name a folder that is not.")
    if not is_folder(folder.parent):
        raise UsageError(f"The folder of {folder} does not exist.", hint="Make it, or name another one.")
    if not is_folder(workspace):
        raise UsageError(f"The workspace {workspace} no longer exists.")
    if folder.parent.resolve().is_relative_to(workspace.resolve()):
        raise UsageError(f"{folder} is inside the workspace.", hint="Name a folder outside of it.")


def _copied(
    workshop: Workshop, records: Sequence[Record], at_seq: int, copy: _Copy, shelf: restoring.Shelf
) -> tuple[list[FileRestore], list[KeptFile], str]:
    """Copy the workspace, put files in the copy back, and give it its name at last. Return the files and the
    copy's real path."""
    workshop.images.check_key(shelf.lineage)
    try:
        with draft_beside(copy.folder, is_folder=True) as (draft, _):
            copy_folder(workshop.own, copy.workspace, draft)
            done, kept = _put_back_in(workshop, records, at_seq, copy.workspace, draft, shelf)
            draft.rename(copy.folder)
        return done, kept, os.path.realpath(copy.folder)
    except shutil.Error as error:  # for each file: from, to, and the text of an error that names it
        why = str(error.args[0][0][2])
        raise UsageError(f"{copy.folder} cannot be made: {why.partition('] ')[2] or why}.") from None
    except OSError as error:
        raise UsageError(f"{copy.folder} cannot be made: {error.strerror or error}.") from None


def copy_folder(own: OwnPlaces, workspace: Path, to: Path) -> None:
    """Copy all of a workspace into an empty folder, but homes.

    Raises:
        shutil.Error, OSError: something cannot be copied.
        UsageError: its folders are too deep.
    """

    def copied(source: str, target: str) -> None:
        copy_file(workspace, os.path.relpath(source, workspace), target)

    ignored = _ignored(own, workspace)
    shutil.copytree(workspace, to, symlinks=True, ignore=ignored, copy_function=copied, dirs_exist_ok=True)


def _put_back_in(
    workshop: Workshop,
    records: Sequence[Record],
    at_seq: int,
    workspace: Path,
    draft: Path,
    shelf: restoring.Shelf,
) -> tuple[list[FileRestore], list[KeptFile]]:
    """Put the files in a copy back to what they were at a record."""
    old, new = str(workspace), str(draft)

    def look(where: Place) -> Found:
        if where.workspace != old:
            return Found("", 0, ELSEWHERE)
        return restoring.look_at(workshop.own, workshop.images, Place(new, where.path))

    todo = rewind_of(records, at_seq, look)
    goals = [replace(goal, workspace=new) for goal in todo.files]
    kept = list(todo.kept)
    done: list[FileRestore] = []
    swept: set[tuple[int, int]] = set()
    for goal in goals:
        reason = restoring.put_back(workshop.own, goal, shelf, _unhindered, swept)
        if reason:
            kept.append(KeptFile(goal.path, reason))
        elif goal.before != goal.after:
            done.append(goal)
    restoring.remove_folders(workshop.own, goals, _unhindered)
    return done, kept


def _unhindered() -> int:
    """Nobody else knows of the copy yet."""
    return 0


def _ignored(own: OwnPlaces, workspace: Path) -> Callable[[str, list[str]], list[str]]:
    """Leave out homes, whatever path leads to them, and what is neither file nor folder nor link. Refuse folders that
    are so deep that the stack would not reach.
    """
    homes = own.identities(HOME)

    def ignored(folder: str, names: list[str]) -> list[str]:
        if len(Path(folder).relative_to(workspace).parts) > MAX_DEPTH:
            raise UsageError(f"The workspace {workspace} has more than {MAX_DEPTH} folders in each other.")
        return [name for name in names if is_left_out(Path(folder) / name)]

    def is_left_out(path: Path) -> bool:
        facts = path.lstat()
        kinds = (stat.S_ISLNK, stat.S_ISDIR, stat.S_ISREG)
        return identity(facts) in homes or not any(is_kind(facts.st_mode) for is_kind in kinds)

    return ignored
