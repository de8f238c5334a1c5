"""A store in memory that behaves like the durable one: for tests, embedders and `home=None`.

It outlives the runtimes that use it, so a test can crash one and start the next on what is left. It is for the
tasks of one event loop: nothing awaits between a check and its write, so no lock is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.core.budgets import decide_claim
from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.errors import Fenced, NoSuchSession, StorageCorrupt
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.budgets import (
    LAST_PASS_KEY,
    Balance,
    Bucket,
    Claim,
    Claimed,
    Reservation,
    counts_in,
    reserved_in,
)
from holdfast.protocol.circuits import CallEnded, Caller, Circuit
from holdfast.protocol.codec import FIRST_LINK, Selected, StoredRecord, UnreadableEvent, decode
from holdfast.protocol.ids import (
    is_session_id,
    is_session_key,
    is_session_prefix,
)
from holdfast.protocol.ports import Clock
from holdfast.protocol.rows import (
    EVERY,
    Approval,
    Commit,
    Damage,
    Holder,
    InboxEntry,
    Lease,
    Mark,
    News,
    Posted,
    Recovered,
    SessionRow,
    Situation,
    Sought,
    Stretch,
    Verified,
)
from holdfast.protocol.services import Answer, Outgoing
from holdfast.protocol.spending import LOST, Amounts, Line
from holdfast.storage.approvals import approval_row
from holdfast.storage.blobs import attached_in, gone
from holdfast.storage.chain import Examined, check_contiguous, checked, examine
from holdfast.storage.derived import Derived, compare, new_row
from holdfast.storage.names import check_command_id, check_session
from holdfast.storage.search import SAID_IN, is_in, says
from holdfast.storage.volatile_services import VolatileServices

T = TypeVar("T")


class VolatileBlobs:
    """Bytes by their SHA-256, in a dictionary."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.contents[sha256] = content
        return sha256

    def drop(self, hashes: Collection[str]) -> None:
        """Forget the bytes."""
        for sha256 in hashes:
            self.contents.pop(sha256, None)

    def check(self, hashes: Collection[str]) -> None:
        """Refuse to refer to bytes that are not there."""
        for sha256 in hashes:
            if sha256 not in self.contents:
                raise gone(sha256)

    async def get(self, sha256: str) -> bytes:
        content = self.contents.get(sha256)
        if content is None:
            raise StorageCorrupt(f"the blob {sha256} is missing")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StorageCorrupt(f"the blob {sha256} was changed")
        return content


@dataclass
class _Kept:
    """What the store keeps of one session."""

    row: SessionRow
    records: list[StoredRecord] = field(default_factory=list)
    """The session's own records. The parent has the shared ones."""
    inbox: dict[str, InboxEntry] = field(default_factory=dict)
    commands: set[str] = field(default_factory=set)
    """The ids of all commands that ever were in the inbox, or were acknowledged."""
    written: int = 0
    asked: int = 0
    """The counts of all records and all commands of the store when its last one came."""
    head_seq: int = 0
    position: int = 0
    """The position of its last record among those of all sessions."""
    blobs: set[str] = field(default_factory=set)
    """The blobs that its records refer to."""
    approvals: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The records that request and decide each approval, by its id."""
    epoch: int = 0
    holder: Holder | None = None
    """The holder of the lease, which ends at `until_ms`; None if nobody has it."""
    until_ms: int = 0
    snapshot: tuple[int, bytes] = (0, b"")
    """The snapshot, and the record up to which it goes."""
    parent: str = ""
    at_seq: int = 0

    def all_blobs(self) -> set[str]:
        """Return the blobs that its records and its waiting commands refer to."""
        return self.blobs.union(*(attached_in(entry.body) for entry in self.inbox.values()))

    def is_leased_in(self, epoch: int) -> bool:
        """Return whether the lease of that epoch was neither taken nor given back, lapsed or not."""
        return self.holder is not None and self.epoch == epoch


class VolatileStore:
    """A `protocol.ports.Store` that loses everything with its process."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """The `clock` measures leases."""
        self.blobs = VolatileBlobs()
        self._clock = clock
        self._position = 0
        """The position of the newest record of the store."""
        self._sessions: dict[str, _Kept] = {}
        self._keys: dict[str, str] = {}
        self._mark = Mark(0, 0, 0)
        self._lines: list[Line] = []
        self._reserved: dict[tuple[str, str], Reservation] = {}
        """What attempts have reserved in budgets, by session and key."""
        self._services = VolatileServices(clock, self._has_lease)

    async def claim(self, session: str, key: str, now_ms: int, first: InboxEntry | None = None) -> str:
        check_session(session, key)
        if first is not None:
            check_command_id(first.command_id)
        if key and self._keys.get(key, session) != session:
            return self._keys[key]
        if session not in self._sessions:
            if first is not None:
                self.blobs.check(attached_in(first.body))
            if key:
                self._keys[key] = session
            kept = self._sessions[session] = _Kept(new_row(session, key, now_ms), position=self._position)
            if first is not None:
                self._put(kept, first)
        return session

    async def post(self, entry: InboxEntry, capacity: int) -> Posted:
        check_command_id(entry.command_id)
        kept = self._of(entry.session)
        if entry.command_id in kept.commands:
            return Posted("duplicate", self._lease(kept))
        if len(kept.inbox) >= capacity:
            return Posted("full", self._lease(kept))
        self.blobs.check(attached_in(entry.body))
        self._put(kept, entry)
        return Posted("accepted", self._lease(kept))

    def _put(self, kept: _Kept, entry: InboxEntry) -> None:
        self._mark = Mark(self._mark.records, self._mark.commands + 1, self._mark.waiting + 1)
        kept.asked = self._mark.commands
        kept.commands.add(entry.command_id)
        kept.inbox[entry.command_id] = entry

    async def news(self, since: Mark | None = None) -> News:
        mark = self._mark
        if since is None or since == mark:
            return News(mark)
        sessions = self._sessions.items()
        return News(
            mark,
            tuple(name for name, kept in sessions if kept.written > since.records),
            tuple(name for name, kept in sessions if kept.asked > since.commands),
            mark.waiting - since.waiting < mark.commands - since.commands,
        )

    async def inbox(self, session: str) -> Sequence[InboxEntry]:
        kept = self._sessions.get(session)
        return list(kept.inbox.values()) if kept is not None else []

    async def lease(self, session: str, holder: Holder, duration_ms: int, over: Lease | None = None) -> Lease:
        kept = self._of(session)
        current = self._lease(kept)
        is_dead = current is not None and over is not None and current.epoch == over.epoch
        if current is not None and current.left_ms and not is_dead:
            return current
        kept.epoch += 1
        kept.holder = holder
        kept.until_ms = self._clock.uptime_ms() + duration_ms
        return Lease(session, kept.epoch, holder, duration_ms)

    async def situation(self, session: str) -> Situation | None:
        kept = self._sessions.get(session)
        return Situation(kept.row, self._lease(kept), len(kept.inbox)) if kept is not None else None

    async def leased(self) -> Collection[str]:
        leases = map(self._lease, self._sessions.values())
        return {lease.session for lease in leases if lease is not None and lease.left_ms}

    async def renew(self, leases: Sequence[Lease], duration_ms: int) -> Sequence[Lease]:
        lost: list[Lease] = []
        for lease in leases:
            kept = self._sessions.get(lease.session)
            if kept is None or not kept.is_leased_in(lease.epoch):
                lost.append(lease)
            else:
                kept.until_ms = self._clock.uptime_ms() + duration_ms
        return lost

    async def release(self, lease: Lease) -> None:
        kept = self._sessions.get(lease.session)
        if kept is not None and kept.is_leased_in(lease.epoch):
            kept.holder = None

    def _lease(self, kept: _Kept) -> Lease | None:
        if kept.holder is None:
            return None
        left_ms = max(kept.until_ms - self._clock.uptime_ms(), 0)
        return Lease(kept.row.session, kept.epoch, kept.holder, left_ms)

    async def commit(self, commit: Commit) -> bool:
        check_contiguous(commit)
        kept = self._sessions.get(commit.session)
        if kept is None or not kept.is_leased_in(commit.epoch):
            raise Fenced(f"epoch {commit.epoch} of session {commit.session} is over")
        head_seq = self._branch_point(kept, commit) if commit.forked_from else kept.head_seq
        if head_seq != commit.expected_seq:
            raise Fenced(f"session {commit.session} is at record {head_seq}, not {commit.expected_seq}")
        self.blobs.check(commit.blobs)
        for other in commit.others:
            await self.commit(other)
        if commit.key is not None:
            self._keys.pop(kept.row.key, None)
            if commit.key:
                self._keys[commit.key] = commit.session
        if commit.forked_from:
            kept.parent, kept.at_seq = commit.forked_from, commit.expected_seq
        kept.records += commit.records
        self._lines += commit.lines
        if commit.reserves is not None:
            self._free(commit.session, commit.reserves)
        self._services.ended(commit.ended)
        handled = kept.inbox.keys() & set(commit.acknowledged)
        self._mark = Mark(
            self._mark.records + len(commit.records), self._mark.commands, self._mark.waiting - len(handled)
        )
        kept.written = self._mark.records if commit.records else kept.written
        kept.head_seq = commit.expected_seq + len(commit.records)
        kept.row = commit.row
        kept.blobs.update(commit.blobs)
        if commit.records:
            self._position += len(commit.records)
            kept.position = self._position
        if commit.snapshot:
            kept.snapshot = (kept.head_seq, commit.snapshot)
        kept.commands.update(commit.acknowledged)
        for command_id in commit.acknowledged:
            kept.inbox.pop(command_id, None)
        for mark in commit.approvals:
            known = kept.approvals.get(mark.id, ())
            if len(known) == int(mark.is_decision):
                kept.approvals[mark.id] = (*known, mark.seq)
        is_released = commit.releases_lease and not kept.inbox
        if is_released:
            kept.holder = None
        return is_released

    async def begin(self, commit: Commit, holder: Holder, duration_ms: int) -> bool:
        session, key = commit.session, commit.row.key
        check_session(session, key)
        has_wrong_seq = commit.expected_seq and not commit.forked_from
        if session in self._sessions or key in self._keys or has_wrong_seq:
            raise Fenced(f"session {session} or its name {key!r} is taken")
        self.blobs.check(commit.blobs)
        await self.claim(session, key, commit.row.created_ms)
        self._sessions[session].epoch = commit.epoch - 1
        await self.lease(session, holder, duration_ms)
        return await self.commit(commit)

    def _branch_point(self, kept: _Kept, commit: Commit) -> int:
        parent = self._of(commit.forked_from)
        if kept.head_seq or commit.expected_seq > parent.head_seq:
            raise Fenced(f"session {commit.session} cannot branch off at record {commit.expected_seq}")
        return commit.expected_seq

    async def read(self, session: str, after_seq: int = 0, upto_seq: int | None = None) -> list[StoredRecord]:
        kept = self._sessions.get(session)
        if kept is None:
            return []
        upto = kept.head_seq if upto_seq is None else min(upto_seq, kept.head_seq)
        if upto <= after_seq:
            return []
        link = self._link_at(session, after_seq) or FIRST_LINK
        records = [
            record if record.session == session else msgspec.structs.replace(record, session=session)
            for record in self._slice(session, after_seq, upto)
        ]
        return checked(session, records, after_seq, link, upto)

    async def recover(self, session: str) -> Recovered:
        seq, snapshot = self._sessions[session].snapshot if session in self._sessions else (0, b"")
        records, waiting = await self.read(session, seq), await self.inbox(session)
        return Recovered(seq, snapshot, tuple(records), tuple(waiting))

    async def select(
        self,
        session: str,
        types: Sequence[str],
        upto_seq: int,
        read: Callable[[Iterator[Selected]], T],
        *,
        from_seq: int = 1,
        also: Sequence[int] = (),
    ) -> T:
        records = self._slice(session, 0, upto_seq) if session in self._sessions else []
        named = frozenset(also)
        return read(
            (each.seq, each.type, each.v, each.body)
            for each in records
            if (each.seq in named if each.seq < from_seq else each.type in types)
        )

    def _slice(self, session: str, after_seq: int, upto_seq: int) -> list[StoredRecord]:
        kept = self._sessions[session]
        own = kept.records[max(after_seq - kept.at_seq, 0) : max(upto_seq - kept.at_seq, 0)]
        if after_seq >= kept.at_seq:
            return own
        return self._slice(kept.parent, after_seq, min(kept.at_seq, upto_seq)) + own

    def _link_at(self, session: str, seq: int) -> bytes | None:
        found = self._slice(session, seq - 1, seq) if seq else []
        return found[0].link if found else None

    async def last_seq(self, session: str) -> int:
        kept = self._sessions.get(session)
        return kept.head_seq if kept is not None else 0

    async def session(self, session: str) -> SessionRow | None:
        kept = self._sessions.get(session)
        return kept.row if kept is not None else None

    async def find(self, name: str) -> list[str]:
        if name == "last":
            return [row.session for row in self._newest()[:1]]
        if is_session_key(name):
            return [self._keys[name]] if name in self._keys else []
        if is_session_id(name) or is_session_prefix(name):
            return sorted(session for session in self._sessions if session.startswith(name.upper()))
        return []

    async def sessions(self, sought: Sought = EVERY, limit: int = 20) -> list[SessionRow]:
        rows = self._newest()
        if sought.before:
            names = [row.session for row in rows]
            rows = rows[names.index(sought.before) + 1 :] if sought.before in names else []
        return [row for row in rows if self._is_sought(row, sought)][:limit]

    def _is_sought(self, row: SessionRow, sought: Sought) -> bool:
        if sought.status not in ("", row.status) or sought.workspace not in ("", row.workspace):
            return False
        return row.updated_ms >= sought.since_ms and (not sought.grep or self._mentions(row, sought.grep))

    async def branches(self, session: str) -> list[str]:
        return [name for name, kept in self._sessions.items() if kept.parent == session]

    def _newest(self) -> list[SessionRow]:
        by_age = sorted(self._sessions.values(), key=lambda kept: kept.position)
        return [kept.row for kept in reversed(by_age)]

    def _mentions(self, row: SessionRow, text: str) -> bool:
        return is_in(text, row.title) or any(
            says(record.type, record.v, record.body, text)
            for record in self._slice(row.session, 0, self._sessions[row.session].head_seq)
            if record.type in SAID_IN
        )

    async def due(self, upto_ms: int, limit: int = 20) -> list[SessionRow]:
        rows = (kept.row for kept in self._sessions.values() if 0 < kept.row.due_ms <= upto_ms)
        return sorted(rows, key=lambda row: row.due_ms)[:limit]

    async def granting(self) -> list[SessionRow]:
        return [kept.row for kept in self._sessions.values() if kept.row.grants]

    async def approvals(self, session: str = "", is_open: bool = True) -> list[Approval]:
        rows = [
            await self.approval(name)
            for kept in self._sessions.values()
            for name, seqs in kept.approvals.items()
            if session in ("", kept.row.session) and is_open == (len(seqs) == 1)
        ]
        return sorted((row for row in rows if row is not None), key=lambda row: (row.asked_ms, row.id))

    async def approval(self, approval_id: str) -> Approval | None:
        for session, kept in self._sessions.items():
            if approval_id in kept.approvals:
                records = [await self.read(session, seq - 1, seq) for seq in kept.approvals[approval_id]]
                return approval_row(approval_id, [record for each in records for record in each])
        return None

    async def spent(self, since_ms: int = 0, session: str = "") -> Amounts:
        return sum((line.amounts for line in await self.lines(since_ms, session)), Amounts())

    async def lines(self, since_ms: int = 0, session: str = "") -> Sequence[Line]:
        return [each for each in self._lines if each.begun_ms >= since_ms and session in ("", each.session)]

    async def reserve(self, claim: Claim) -> Claimed:
        amounts = [self._booked(bucket) for bucket in claim.buckets]
        claimed, mine = decide_claim(claim, amounts, [*self._reserved.values()])
        session, key = claim.attempt.session, claim.attempt.key
        self._reserved.pop((session, key), None)
        if claimed.short is None and claim.kept_microusd == 0:
            self._reserved.pop((session, LAST_PASS_KEY), None)
        self._reserved |= {(session, each.key): each for each in mine}
        return claimed

    async def balances(self, buckets: Sequence[Bucket]) -> Sequence[Balance]:
        found: list[Balance] = []
        for bucket in buckets:
            booked, reserved = self._booked(bucket), reserved_in(bucket, [*self._reserved.values()])
            found.append(Balance(bucket, booked.spent, booked.estimated, booked.held, reserved))
        return found

    def _booked(self, bucket: Bucket) -> Amounts:
        counting = [
            each.amounts for each in self._lines if counts_in(bucket, each.begun_ms, each.user, each.session)
        ]
        return sum(counting, Amounts())

    def _free(self, session: str, but: Sequence[str]) -> None:
        """Free what a session has reserved under other keys than these."""
        mine = [name for name in self._reserved if name[0] == session and name[1] not in but]
        for name in mine:
            del self._reserved[name]

    async def may_call(self, outgoing: Outgoing, claim: Claim | None = None) -> Answer:
        claimed = await self.reserve(claim) if claim is not None else None
        if claimed is not None and claimed.short is not None:
            return Answer(claimed=claimed)
        answer = self._services.may_call(outgoing)
        if claim is not None and answer.later is not None:
            self._reserved.pop((claim.attempt.session, claim.attempt.key), None)
            return answer
        return msgspec.structs.replace(answer, claimed=claimed) if claimed is not None else answer

    async def ended(self, *calls: CallEnded) -> None:
        self._services.ended(calls)

    async def circuits(self) -> Sequence[Circuit]:
        return self._services.circuits()

    async def reset_circuit(self, name: str) -> bool:
        return self._services.reset_circuit(name)

    def _has_lease(self, caller: Caller) -> bool:
        kept = self._sessions.get(caller.session)
        lease = self._lease(kept) if kept is not None else None
        return lease is not None and lease.epoch == caller.epoch and lease.left_ms > 0

    async def delete(self, lease: Lease) -> None:
        session = lease.session
        kept = self._sessions.get(session)
        if kept is None or not kept.is_leased_in(lease.epoch):
            raise Fenced(f"epoch {lease.epoch} of session {session} is over")
        if await self.branches(session):
            raise Fenced(f"another session branched off from session {session}")
        del self._sessions[session]
        self._lines += [
            Line(session, each.key, each.begun_ms, each.user, "", LOST, Amounts(held=each.microusd))
            for each in self._reserved.values()
            if each.session == session and each.key != LAST_PASS_KEY and each.microusd
        ]
        self._free(session, ())
        self._services.forget(session)
        self._keys.pop(kept.row.key, None)
        self._mark = Mark(self._mark.records, self._mark.commands, self._mark.waiting - len(kept.inbox))
        used = {blob for each in self._sessions.values() for blob in each.all_blobs()}
        self.blobs.drop(kept.all_blobs() - used)

    async def verify(self) -> Verified:
        damages: list[Damage] = []
        erased: list[Stretch] = []
        for session, kept in self._sessions.items():
            link = FIRST_LINK if not kept.parent else self._link_at(kept.parent, kept.at_seq)
            found = examine(session, kept.records, kept.at_seq, link, kept.head_seq)
            erased += found.erased
            damages += found.damages
            derived = Derived(kept.row, frozenset(kept.blobs), kept.approvals)
            damages += compare(session, kept.head_seq, found, await self._state(kept, found), derived)
            for record in found.records:
                for sha256 in blobs_of(record.event):
                    try:
                        await self.blobs.get(sha256)
                    except StorageCorrupt as error:
                        damages.append(Damage("blob", error.message, session, record.seq))
        return Verified(tuple(damages), tuple(erased))

    async def _state(self, kept: _Kept, found: Examined) -> State | None:
        if not found.is_whole:
            return None
        try:
            shared = [decode(each) for each in await self.read(kept.row.session, 0, kept.at_seq)]
        except (StorageCorrupt, UnreadableEvent):
            return None
        start = State(session=kept.row.session, key=kept.row.key)
        return fold([*shared, *found.records], start)

    async def aclose(self) -> None:
        """Do nothing: the content stays for the next user."""

    def _of(self, session: str) -> _Kept:
        kept = self._sessions.get(session)
        if kept is None:
            raise NoSuchSession(f"no session {session} in this home")
        return kept
