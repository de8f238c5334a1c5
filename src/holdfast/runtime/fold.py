"""What a session's records come to, for who writes the next ones: state, conversation, end of the hash chain.

Everything here derives from the records. The driver and the visitor write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.context.conversation import FOLDED, REQUESTED, Conversation, rewritten
from holdfast.core import spending
from holdfast.core.causes import Commanded
from holdfast.core.decide import decision
from holdfast.core.draft import Draft
from holdfast.core.evolve import evolve
from holdfast.core.state import ModelCall, State, open_model_calls, open_run
from holdfast.core.summary import approval_marks, summary
from holdfast.errors import HoldfastError, RecordErased, StorageCorrupt, StorageNewer
from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.budgets import LAST_PASS_KEY
from holdfast.protocol.codec import (
    FIRST_LINK,
    Selected,
    StoredRecord,
    Unreadable,
    UnreadableEvent,
    decode,
    decode_command,
    decode_event,
    encode,
)
from holdfast.protocol.commands import Command
from holdfast.protocol.events import Event, ModelCallStarted, Record, SessionOpened, Trigger
from holdfast.protocol.ports import Journals
from holdfast.protocol.request import Request
from holdfast.protocol.rows import Commit, InboxEntry, Recovered
from holdfast.runtime.enclosing import fill
from holdfast.runtime.snapshot import Snapshot, is_due, packed, unpacked

_UNREADABLE: Mapping[Unreadable, tuple[type[HoldfastError], str]] = {
    "newer": (StorageNewer, ""),
    "damaged": (StorageCorrupt, "`holdfast fsck` lists all damage."),
    "erased": (
        RecordErased,
        "`holdfast show {session}` shows what is left of it. Start a new session to continue.",
    ),
}
"""The hint for each reason why a record cannot be read. It may name the session."""


class Fold:
    """The state and the conversation that the records of one session come to, and where its next record goes."""

    def __init__(self, session: str, key: str = "", *, is_limited: bool = True) -> None:
        """`is_limited`: whether model calls reserve money in budgets."""
        self._is_limited = is_limited
        self._has_reserved = is_limited
        """Whether the store may have money reserved for the session."""
        self.session = session
        self.key = key
        self.state = State(session=session, key=key)
        self.conversation = Conversation()
        self.wire = ""
        """The wire format of the last request; empty before the first one."""
        self.epoch = 0
        """The epoch of the last record that was read; 0 before the first."""
        self._link = FIRST_LINK
        self._named: set[str] = set()
        """The blobs that a commit referred to."""
        self._open: tuple[ModelCall, ...] = ()
        """The model calls that were open at the last commit."""

    async def open(self, store: Journals) -> Sequence[InboxEntry]:
        """Fold what is stored: everything, or what follows the last snapshot if that is valid. Return the waiting
        commands.

        Raises:
            StorageNewer, StorageCorrupt: a newer version wrote a record, or one is damaged.
            RecordErased: a record that it needs was erased.
        """
        found = await store.recover(self.session)
        snapshot = unpacked(found, self.session)
        if snapshot is not None and not await self._restore(store, snapshot):
            snapshot = None
        self.load(await _following(store, self.session, found, snapshot))
        return found.waiting

    def load(self, stored: Sequence[StoredRecord]) -> None:
        """Fold the next records. Raises what `open` raises."""
        for each in stored:
            self._fold(readable(each))
        self._has_reserved = True
        if stored:
            self._link, self.epoch = stored[-1].link, stored[-1].epoch
        self._open = open_model_calls(self.state)

    async def _restore(self, store: Journals, snapshot: Snapshot) -> bool:
        """Begin at the snapshot, if its conversation is exactly the request that was sent there.

        Earlier records are read only if requests quote them, so their hash chain is not checked. The hash of the
        request proves the words. If anything does not match, this fold stays unchanged.
        """
        try:
            models = snapshot.state.models
            conversation, sent = await store.select(
                self.session,
                REQUESTED,
                snapshot.state.seq,
                _conversation,
                from_seq=models.anew_seq,
                also=models.quoted,
            )
            await fill(conversation, store.blobs)
            if sent is None or not conversation.is_last_request(await store.blobs.get(sent.base), sent):
                return False
        except (StorageCorrupt, ValueError):  # a complete read reports what is wrong, also with a blob's name
            return False
        self.state, self.conversation, self.wire = snapshot.state, conversation, sent.wire
        self._link, self.epoch = snapshot.link, snapshot.state.epoch
        return True

    def opening(self) -> tuple[Event, ...]:
        """Return the first events of a new journal; none if there are records."""
        return () if self.state.seq else (SessionOpened(self.session, self.key),)

    def note(self, event: Event, now_ms: int, epoch: int, cause: Trigger, awake_ms: int = 0) -> Record:
        """Fold an event as the next record. It is true when it is committed."""
        record = Record(self.session, self.state.seq + 1, now_ms, epoch, cause, event, awake_ms)
        self._fold(record)
        return record

    def take(self, decided: Draft) -> list[Record]:
        """Add a decision. Its state comes with it and is not folded again."""
        for record in decided.records:
            self._follow(record)
        self.state = decided.state
        return decided.records

    def commit(
        self,
        batch: Sequence[Record],
        epoch: int,
        now_ms: int,
        acknowledged: tuple[str, ...] = (),
        *,
        releases_lease: bool,
    ) -> Commit:
        """Everything that a batch changes, after it was added and before it is committed."""
        lines = tuple(spending.lines(self._open, batch)) if self._open else ()
        self._open = open_model_calls(self.state)
        return Commit(
            session=self.session,
            epoch=epoch,
            expected_seq=self.state.seq - len(batch),
            records=self._linked(batch),
            row=summary(self.state),
            now_ms=now_ms,
            acknowledged=acknowledged,
            approvals=tuple(approval_marks(batch)),
            blobs=self._new_blobs(batch),
            snapshot=self._snapshot(batch),
            releases_lease=releases_lease,
            lines=lines,
            reserves=self._reserves(batch) if self._has_reserved else None,
        )

    def _reserves(self, batch: Iterable[Record]) -> tuple[str, ...] | None:
        """Return under which keys money stays reserved; None if the batch frees nothing."""
        if not spending.frees(batch):
            return None
        keys = [each.key for each in self._open] if self._is_limited else []
        if self._is_limited and open_run(self.state) is not None:
            keys.append(LAST_PASS_KEY)
        self._has_reserved = self._is_limited
        return tuple(keys)

    def _linked(self, batch: Iterable[Record]) -> tuple[StoredRecord, ...]:
        """Return the batch as it is stored, after the last one that was linked."""
        stored: list[StoredRecord] = []
        for record in batch:
            encoded = encode(record, self._link)
            self._link = encoded.link
            stored.append(encoded)
        return tuple(stored)

    def _new_blobs(self, batch: Iterable[Record]) -> tuple[str, ...]:
        """Return the blobs that the batch refers to for the first time. The base of a request stays the same for many
        turns.
        """
        new = {blob for record in batch for blob in blobs_of(record.event)} - self._named
        self._named |= new
        return tuple(new)

    def _snapshot(self, batch: Sequence[Record]) -> bytes:
        """Return the snapshot that the commit of a linked batch leaves for the next `open`; empty for most."""
        last = batch[-1].event if batch else None
        if not (type(last) is ModelCallStarted and last.purpose == "work" and is_due(self.state)):
            return b""
        return packed(Snapshot(self.state, self._link))

    async def rewrite(self, store: Journals, batch: Sequence[Record]) -> None:
        """Make every message unsent, to encode it in another wire format. `batch` was added and is not stored yet."""
        stored = await store.read(self.session)
        records = [*(readable(each) for each in stored), *batch]
        self.conversation = rewritten(records, last_sent=self.conversation.last_sent())
        self.wire = ""

    def _fold(self, record: Record) -> None:
        self.state = evolve(self.state, record)
        self._follow(record)

    def _follow(self, record: Record) -> None:
        """Update everything beside the state that derives from a record."""
        event = record.event
        if type(event) in FOLDED:
            self.conversation.add(record)
            if type(event) is ModelCallStarted and event.purpose == "work":
                self.wire = event.request.wire


class Prospect(NamedTuple):
    """The state of a session now, and the state after the commands that wait in its inbox."""

    now: State
    ahead: State


async def state_of(store: Journals, session: str, key: str = "") -> State:
    """Return the fold of a journal without its conversation. Raises what `Fold.open` raises."""
    return await _state(store, await store.recover(session), session, key)


async def prospect_of(store: Journals, session: str, key: str = "") -> Prospect:
    """Return the same, with the state after the waiting commands. Raises what `Fold.open` raises."""
    found = await store.recover(session)
    now = ahead = await _state(store, found, session, key)
    for entry in found.waiting:
        command = Commanded(waiting_command(entry), ahead.epoch)
        ahead = decision(ahead, command, entry.posted_ms, ahead.awake_ms).state
    return Prospect(now, ahead)


async def _state(store: Journals, found: Recovered, session: str, key: str) -> State:
    snapshot = unpacked(found, session)
    state = snapshot.state if snapshot is not None else State(session=session, key=key)
    for each in await _following(store, session, found, snapshot):
        state = evolve(state, readable(each))
    return state


async def _following(
    store: Journals, session: str, found: Recovered, snapshot: Snapshot | None
) -> Sequence[StoredRecord]:
    """Return the records to fold onto the snapshot; all of them if the snapshot cannot be used."""
    is_unused = snapshot is None and found.after_seq > 0
    return await store.read(session) if is_unused else found.records


def _conversation(selected: Iterator[Selected]) -> tuple[Conversation, Request | None]:
    """Return the conversation right after the last of these records, and its request. The request is None if no
    record has one, or if a record does not fit."""
    try:
        return Conversation.restored((seq, decode_event(type_, v, body)) for seq, type_, v, body in selected)
    except (UnreadableEvent, LookupError, ValueError):
        return Conversation(), None


def waiting_command(entry: InboxEntry) -> Command:
    """Decode the command.

    Raises:
        StorageNewer: a newer version wrote it.
    """
    try:
        return decode_command(entry.body)
    except UnreadableEvent as error:
        told = f"A command that waits in session {entry.session} cannot be read: {error}."
        raise StorageNewer(told, hint="Upgrade Holdfast to continue the session.") from None


def readable(stored: StoredRecord) -> Record:
    """Decode the record.

    Raises:
        StorageNewer: a newer version wrote it.
        StorageCorrupt: it is damaged.
        RecordErased: it was erased.
    """
    try:
        return decode(stored)
    except UnreadableEvent as error:
        kind, hint = _UNREADABLE[error.why]
        told = f"Record {stored.seq} of session {stored.session}: {error}."
        raise kind(told, hint=hint.format(session=stored.session)) from None
