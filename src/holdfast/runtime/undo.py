"""Puts the files back that a session edited: undo, redo, and the files of a rewind.

Two facts, as for every effect: the intent names each file with its content before and after, and is durable before
the first file changes; the outcome tells which files were put back. If this is killed in between, the next command
completes the intent. It takes the lease for that time, so that no driver edits files meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.causes import Commanded
from holdfast.core.decide import decision
from holdfast.errors import Conflict, NoSuchSession
from holdfast.protocol.commands import Command, CommandBody, Principal, Restore, Restored, Restoring
from holdfast.protocol.events import FilesRestoring, Record
from holdfast.protocol.ports import Clock, Store
from holdfast.protocol.tools import FileRestore, KeptFile
from holdfast.runtime.fold import Fold, readable
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.holder import LEASE_MS, LiveLease, is_dead, is_free, this_process
from holdfast.storage.images import Images
from holdfast.tools import restoring
from holdfast.tools.own import OwnPlaces
from holdfast.views.edits import Edit, Found, Look, Place, Todo, edits_of, open_restore

Plan = Callable[[Sequence[Edit], Look], Todo]
"""Says what to do for the edits, given what is on the disk."""


class PutBack(NamedTuple):
    """What became of files."""

    done: tuple[FileRestore, ...]
    """Those that were changed."""
    kept: tuple[KeptFile, ...]


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
    async with leased(workshop, session) as lease:
        fold = Fold(session, await _key(workshop.store, session))
        await fold.open(workshop.store)
        visit = _Visit(workshop, lease, fold, principal)
        records = [readable(each) for each in await workshop.store.read(session)]
        left = open_restore(records)
        if left is not None:
            outcome = await visit.finish(left)
            if left.why == why:
                return outcome
            records = [readable(each) for each in await workshop.store.read(session)]
        todo = await todo_of(workshop, session, records, plan)
        if not todo.files:
            return PutBack((), todo.kept)
        await visit.tell(Restore(why, todo.messages, todo.files, todo.kept))
        intent = FilesRestoring(why, principal.label, todo.messages, todo.files, todo.kept)
        return await visit.finish(intent)


class _Visit:
    """Commits facts under a lease, without attaching."""

    def __init__(self, workshop: Workshop, lease: LiveLease, fold: Fold, principal: Principal) -> None:
        self.workshop = workshop
        self.lease = lease
        self.fold = fold
        self.principal = principal
        self.is_contested = lease.has_rival(fold.epoch)
        """The previous driver may still live. The first record says so: the next driver cannot find that out."""

    async def tell(self, body: CommandBody) -> None:
        """Record what a command means."""
        command = Command(secrets.token_hex(16), self.fold.session, self.principal, body)
        now_ms, epoch = self.workshop.clock.now_ms(), self.lease.row.epoch
        cause = Commanded(command, epoch, self.is_contested)
        batch = self.fold.take(decision(self.fold.state, cause, now_ms, 0))
        commit = self.fold.commit(batch, epoch, now_ms, (command.id,), releases_lease=False)
        await self.lease.commit(self.workshop.store, commit)
        self.is_contested = False

    async def finish(self, intent: FilesRestoring) -> PutBack:
        """Do what an intent says, and record the outcome."""
        shelf = await shelf_of(self.workshop, self.fold.session)
        done: list[FileRestore] = []
        kept = list(intent.kept)
        for goal in intent.files:
            reason = await asyncio.to_thread(self._one, goal, shelf)
            if reason:
                kept.append(KeptFile(goal.path, reason))
            elif goal.before != goal.after:
                done.append(goal)
        await asyncio.to_thread(restoring.remove_folders, self.workshop.own, intent.files, self.lease.check)
        await self.tell(Restored(intent.why, tuple(goal.path for goal in done), tuple(kept)))
        return PutBack(tuple(done), tuple(kept))

    def _one(self, goal: FileRestore, shelf: restoring.Shelf) -> str:
        return restoring.put_back(self.workshop.own, goal, shelf, self.lease.check)


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


async def _key(store: Store, session: str) -> str:
    row = await store.session(session)
    return row.key if row is not None else ""


@asynccontextmanager
async def leased(workshop: Workshop, session: str) -> AsyncIterator[LiveLease]:
    """Have the session's lease, so that nobody edits files meanwhile.

    Raises:
        NoSuchSession: there is no such session.
        Conflict: somebody drives it.
    """
    store, clock, holder = workshop.store, workshop.clock, this_process()
    situation = await store.situation(session)
    if situation is None:
        raise NoSuchSession(f"There is no session {session}.", hint="`holdfast sessions` lists them.")
    until_ms = clock.uptime_ms() + LEASE_MS
    row = situation.lease
    is_contested = row is not None and not is_dead(row.holder)
    if is_free(row):
        row = await store.lease(session, holder, LEASE_MS, row)
    if row is None or row.holder.nonce != holder.nonce:
        raise Conflict(
            f"A process drives session {session}, and may edit files. Nothing was put back.",
            hint=f"Stop it first: `holdfast stop {session}`.",
        )
    lease = LiveLease(row, until_ms, clock, is_contested)
    heartbeat = Heartbeat(store, clock)
    try:
        with heartbeat.keeping(lease):
            yield lease
    finally:
        lease.until_ms = 0
        await heartbeat.aclose()
        await store.release(row)
